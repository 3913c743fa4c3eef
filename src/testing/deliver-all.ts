// deliverAll: claims, calls and settles on the client of the test until nothing is due. Destinations take turns in the
// order of the configuration, and messages are sent one after the other, so that a test gives the same result each time.

import type { ClaimedMessage } from '../core/claimed-message.js';
import { errorText } from '../core/errors.js';
import type { Outcome } from '../core/outcome.js';
import { Call } from '../relay/delivery/call.js';
import { Caller } from '../relay/delivery/caller.js';
import { InFlightCalls } from '../relay/delivery/in-flight-calls.js';
import { unreadable } from '../relay/delivery/unreadable.js';
import { drainCounts, noneDrained } from '../relay/drains.js';
import type { Drained } from '../relay/drains.js';
import type { TestDestination } from './destinations.js';
import { TestKitError } from './errors.js';
import { claim, release, settle } from './claims.js';
import type { TestSession } from './session.js';
import { advance, countForeign, waiting } from './tables.js';
import type { Waiting } from './tables.js';

export type DeliverAllOptions = {
  /** Advances to the next due time, again and again, until no delivery will be due. Default false: until nothing is due now. */
  skipDelays?: boolean;
  /** Errors that handlers throw count as failed tries, as in a relay. Default false: the first one rejects `deliverAll`. */
  catchErrors?: boolean;
  /** More deliveries than this are an error: a handler may enqueue a message for itself. Default 1,000. */
  maxDeliveries?: number;
};

export type DeliveryReport = {
  /** Deliveries that succeeded or failed. */
  processed: number;
  succeeded: number;
  failed: number;
  /** Deliveries that were given back without using a try: `release()` and `pause()`. */
  released: number;
  /** Deliveries that are still pending: not due, behind another message of their key, or at a paused destination. */
  waiting: number;
  /** By how much to advance until the next one is due; null if none will be. */
  nextDueMs: number | null;
};

const shownLast = 5;

/** So many claims in a row that find nothing, although something is due, mean that it cannot be claimed. */
const mostMisses = 5;

export class DeliverAll {
  readonly #session: TestSession;
  readonly #destinations: readonly TestDestination[];
  readonly #options: Required<DeliverAllOptions>;
  readonly #counts: Drained = { ...noneDrained };
  #last: string[] = [];
  #deliveries = 0;

  constructor(
    session: TestSession,
    destinations: readonly TestDestination[],
    options: Required<DeliverAllOptions>,
  ) {
    this.#session = session;
    this.#destinations = destinations;
    this.#options = options;
  }

  async run(): Promise<DeliveryReport> {
    const ids = this.#destinations.map(({ id }) => id);
    const foreign = await countForeign(this.#session, ids);
    refuseForeign(foreign);
    const opened: TestDestination[] = [];
    try {
      for (const destination of this.#destinations) {
        opened.push(destination);
        await destination.open();
      }
      for (let misses = 0; ;) {
        if (await this.#deliverDue()) {
          misses = 0;
          continue;
        }
        const left = await waiting(this.#session, ids);
        if (!this.#options.skipDelays || left.nextDueMs === null) return this.#report(left);
        if (++misses > mostMisses)
          throw new TestKitError(
            `${left.count} deliveries are pending, and those that are due cannot be claimed: another transaction holds them; let nothing but the test kit deliver in a test`,
          );
        // what is due already, and held by another transaction, would make this wait for it
        if (left.nextDueMs > 0) await advance(this.#session, left.nextDueMs);
      }
    } finally {
      for (const destination of opened) await destination.close();
    }
  }

  #report({ count, nextDueMs }: Waiting): DeliveryReport {
    return { ...drainCounts(this.#counts, noneDrained), waiting: count, nextDueMs };
  }

  /** One claim for each destination; whether there was anything. */
  async #deliverDue(): Promise<boolean> {
    let found = false;
    for (const destination of this.#destinations) {
      const lease = await claim(this.#session, destination.id);
      if (lease.messages.length === 0) continue;
      found = true;
      try {
        // committed since the last check
        if (this.#session.isInside) refuseForeign(lease.foreign);
        for (const messages of inCalls(destination, lease.messages))
          await this.#deliver(destination, lease.id, messages);
      } catch (error) {
        // the rest of the claim is due again; this fails if the transaction has ended, and then there is no claim
        await release(this.#session, lease.id).catch(() => undefined);
        throw error;
      }
    }
    return found;
  }

  async #deliver(
    target: TestDestination,
    leaseId: string,
    messages: readonly ClaimedMessage[],
  ): Promise<void> {
    this.#count(target, messages);
    let outcomes: readonly Outcome[] = [];
    await this.#session.protect(`the handler of ${target.name}`, async () => {
      outcomes = await call(target, leaseId, messages);
    });
    for (const [index, message] of messages.entries()) {
      const outcome = outcomes[index] as Outcome;
      await settle(this.#session, leaseId, message, outcome);
      this.#counts[outcome.kind] += 1;
    }
    if (!this.#options.catchErrors) refuseThrown(target, messages);
    target.thrown.clear();
  }

  /** The bound of a test whose handlers make new work for ever. */
  #count({ name }: TestDestination, messages: readonly ClaimedMessage[]): void {
    const { maxDeliveries } = this.#options;
    this.#deliveries += messages.length;
    this.#last = [
      ...this.#last,
      ...messages.map(({ topic, tries }) => `${topic} to ${name}, try ${tries}`),
    ].slice(-shownLast);
    if (this.#deliveries <= maxDeliveries) return;
    throw new TestKitError(
      `deliverAll() has made ${maxDeliveries} deliveries, and more are due. Does a handler enqueue a message that leads back to itself? The last ones: ${this.#last.join('; ')}. If so many are right, raise maxDeliveries.`,
    );
  }
}

function refuseForeign(count: number): void {
  if (count === 0) return;
  throw new TestKitError(
    `${count === 1 ? 'a delivery of another transaction is' : `${count} deliveries of other transactions are`} pending in this database, and deliverAll() would call handlers with it: give the tests a database of their own, or remove the messages with reset() of a test kit outside a transaction`,
  );
}

/** A message that cannot be read is a call of its own, which is not made. */
function inCalls(
  { destination }: TestDestination,
  messages: readonly ClaimedMessage[],
): ClaimedMessage[][] {
  const size = 'batchSize' in destination ? destination.batchSize : 1;
  const calls: ClaimedMessage[][] = messages
    .filter((message) => unreadable(message) !== undefined)
    .map((message) => [message]);
  const readable = messages.filter((message) => unreadable(message) === undefined);
  for (let start = 0; start < readable.length; start += size)
    calls.push(readable.slice(start, start + size));
  return calls;
}

/** One call with the relay's own caller: its timeout, its outcome of errors, and `classify`. */
async function call(
  { name, destination }: TestDestination,
  leaseId: string,
  messages: readonly ClaimedMessage[],
): Promise<readonly Outcome[]> {
  const refused = messages.map((message) => unreadable(message)).find((each) => each !== undefined);
  if (refused !== undefined) return [refused];
  let caller: Caller | undefined;
  try {
    return await new Promise((resolve) => {
      caller = new Caller({
        name,
        destination,
        inFlight: new InFlightCalls(),
        onEnded: (_call, outcomes) => resolve(outcomes),
        onReturned: () => undefined,
        onSlow: () => undefined,
        onHung: () => undefined,
      });
      caller.start(new Call(leaseId, messages));
    });
  } finally {
    caller?.close();
  }
}

function refuseThrown(
  { name, thrown }: TestDestination,
  messages: readonly ClaimedMessage[],
): void {
  const message = messages.find(({ id }) => thrown.has(id));
  if (message === undefined) return;
  const error = thrown.get(message.id);
  thrown.clear();
  throw new TestKitError(
    `the handler of ${name} threw at ${message.topic} (message ${message.id}, try ${message.tries}): ${errorText(error)}. It counts as a failed try; if the test expects it, call deliverAll({ catchErrors: true }).`,
    { cause: error },
  );
}
