// A named processor of the log: reads messages in order, batch by batch, at least once, and resumes where it
// left off. Any number of processes may subscribe under one name; one of them reads at a time, and another
// takes over when it is gone. Dead letters that an operator sends again come to the same function.

import { randomUUID } from 'node:crypto';
import os from 'node:os';

import { reap } from './database/claims.js';
import { Database, resolveDatabaseOptions } from './database/connection.js';
import type { DatabaseOptions } from './database/connection.js';
import { defineSubscription } from './database/cursors.js';
import { signOff } from './database/definitions.js';
import { errorText } from './errors.js';
import { batchHandler } from './destinations/handler.js';
import type { DeliveryContext } from './destinations/destination.js';
import type { ClaimedMessage } from './model/claimed-message.js';
import {
  anything,
  checkOptions,
  choice,
  integer,
  list,
  optional,
  refuse,
  text,
} from './model/options.js';
import type { RetryPolicy } from './model/retry-policy.js';
import { resolveRetryPolicy } from './model/retry-policy.js';
import { topicKind } from './model/route.js';
import { Doorbells } from './relay/doorbells.js';
import { LeaseKeeper } from './relay/lease-keeper.js';
import { Lookout } from './relay/lookout.js';
import { resolveRelayOptions } from './relay/options.js';
import { Pipeline } from './relay/pipeline.js';
import { Slots } from './relay/slots.js';
import { StreamReader } from './relay/stream-reader.js';
import { StreamSender } from './relay/stream-sender.js';
import { Ticker } from './relay/ticker.js';
import type { Emit } from './telemetry/events.js';

export type SubscribeOptions = {
  /** Names the cursor: whoever subscribes under it goes on where it stands. */
  name: string;
  database?: DatabaseOptions;
  /** Exact (`user.registered`), everything below (`user.*`), or everything (`*`). Default: everything. */
  topics?: readonly string[];
  /** Only this namespace. Default: all. */
  namespace?: string;
  /** Only this tenant. Default: all. */
  tenantId?: string;
  /** Where a new name begins: with what comes from `now` on, or at the `beginning` of what is kept. Default `now`. */
  from?: 'now' | 'beginning';
  /** Messages in one call, at most. Default 1,000. */
  batchSize?: number;
  /** Payload bytes in one call, at most. Default 8 MiB. */
  batchBytes?: number;
  /** After this long a call is aborted and counts as failed. Default 30,000. */
  timeoutMs?: number;
  retry?: RetryPolicy;
  /** A message whose tries are used up is parked with the dead letters and the rest goes on, or blocks it. Default `park`. */
  whenExhausted?: 'park' | 'block';
  /** How long a reader that died keeps others from taking over. Default 30,000. */
  leaseMs?: number;
  /** The longest pause between two looks at an idle log. Default 100. */
  pollMs?: number;
  /** How long a stop may take. Default 8,000. */
  stopDeadlineMs?: number;
  onEvent?: Emit;
};

/** Returns nothing when all is well; a throw means that the messages come again. */
export type StreamHandler = (
  messages: readonly ClaimedMessage[],
  context: DeliveryContext,
) => Promise<void> | void;

export type Subscription = {
  /** True while this one reads, and not another under the same name. */
  readonly reading: boolean;
  /** Lets the batch under way finish, within the deadline, and gives the cursor to others. */
  stop(): Promise<void>;
};

const namePattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$/;

export function resolveSubscribeOptions(options: SubscribeOptions) {
  return checkOptions('subscribe', options, {
    name: text({ pattern: namePattern, meaning: 'letters, digits, _ - and ., at most 63' }),
    database: anything<DatabaseOptions | undefined>(),
    topics: (name: string, value: unknown) =>
      list(topicKind, { min: 1, max: 1000 })(name, value ?? ['*']),
    namespace: optional(text({ meaning: 'a namespace' })),
    tenantId: optional(text({ meaning: 'a tenant id' })),
    from: choice('now', 'beginning'),
    batchSize: integer({ min: 1, max: 10_000, default: 1000 }),
    batchBytes: integer({ min: 1024, max: 256 * 1024 * 1024, default: 8 * 1024 * 1024 }),
    timeoutMs: integer({ min: 1, max: 3_600_000, default: 30_000 }),
    retry: (name: string, value: unknown) => resolveRetryPolicy(name, value as RetryPolicy),
    whenExhausted: choice('park', 'block'),
    leaseMs: integer({ min: 1000, max: 3_600_000, default: 30_000 }),
    pollMs: integer({ min: 5, max: 60_000, default: 100 }),
    stopDeadlineMs: integer({ min: 0, max: 3_600_000, default: 8000 }),
    onEvent: anything<Emit | undefined>(),
  });
}

type Resolved = ReturnType<typeof resolveSubscribeOptions>;

/** Starts reading; resolves once it reads, or stands by because another does. */
export async function subscribe(
  options: SubscribeOptions,
  handle: StreamHandler,
): Promise<Subscription> {
  const resolved = resolveSubscribeOptions(options);
  if (typeof handle !== 'function')
    refuse('subscribe', handle, 'give a function async (messages, context) => …');
  const running = new RunningSubscription(resolved, handle);
  try {
    await running.start();
  } catch (error) {
    await running.stop();
    throw error;
  }
  return running;
}

class RunningSubscription implements Subscription {
  readonly #options: Resolved;
  readonly #handle: StreamHandler;
  readonly #id = randomUUID();
  readonly #emit: Emit;
  readonly #work: Database;
  readonly #control: Database;
  #reader: StreamReader | undefined;
  #pipeline: Pipeline | undefined;
  #tickers: Ticker[] = [];
  #stopped: Promise<void> | undefined;

  constructor(options: Resolved, handle: StreamHandler) {
    this.#options = options;
    this.#handle = handle;
    this.#emit = (event) => {
      try {
        options.onEvent?.(event);
      } catch (error) {
        // whoever listens must not be able to stop the reader
        process.emitWarning(`onEvent failed: ${errorText(error)}`, 'WaybillWarning');
      }
    };
    const database = resolveDatabaseOptions(options.database);
    const applicationName = `waybill ${options.name}`;
    this.#work = new Database(database, { connections: 4, applicationName });
    this.#control = new Database(database, { connections: 2, applicationName });
  }

  get reading(): boolean {
    return this.#reader?.reading ?? false;
  }

  async start(): Promise<void> {
    const { name, topics, namespace, tenantId, from, retry } = this.#options;
    const filters = topics.map((topic) => ({
      topic,
      ...(namespace !== undefined && { namespace }),
      ...(tenantId !== undefined && { tenantId }),
    }));
    const destinationId = await defineSubscription(this.#control, name, from, filters, retry);
    const { batchSize, batchBytes, timeoutMs, whenExhausted, leaseMs, pollMs } = this.#options;
    this.#reader = new StreamReader({
      cursor: name,
      filters,
      database: this.#work,
      control: this.#control,
      reader: { id: this.#id, name: `${os.hostname()}:${process.pid}`, leaseMs },
      batchSize,
      batchBytes,
      pollMs,
      sender: new StreamSender({
        cursor: name,
        deliver: async (messages, context) => {
          await this.#handle(messages, context);
          return { done: messages.length };
        },
        timeoutMs,
        maxAttempts: retry.maxAttempts,
        whenExhausted,
        emit: this.#emit,
      }),
      emit: this.#emit,
    });
    await this.#reader.start();
    this.#startReplays(destinationId);
  }

  /** Dead letters that are sent again are deliveries: they take the way of every delivery. */
  #startReplays(destinationId: number): void {
    const { name, batchSize, timeoutMs, leaseMs } = this.#options;
    const fallbackPollMs = Math.min(500, Math.floor(leaseMs / 3));
    const reapMs = Math.min(1000, Math.floor(leaseMs / 3));
    const destination = batchHandler(async (...call) => this.#handle(...call), {
      batchSize,
      timeoutMs,
      concurrency: 1,
    });
    const relay = resolveRelayOptions({
      leaseMs,
      batchSize,
      listen: false,
      fallbackPollMs,
      reapMs,
    });
    const isListening = () => false;
    this.#pipeline = new Pipeline({
      name,
      destination,
      destinationId,
      slots: new Slots(1),
      relay,
      database: this.#work,
      relayId: this.#id,
      emit: this.#emit,
      doorbells: new Doorbells(this.#work, this.#id, isListening),
      lookout: new Lookout({
        database: this.#work,
        fallbackPollMs,
        maySilence: true,
        isListening,
        emit: this.#emit,
      }),
      onUnknownLease: (leaseId) => keeper.unknown(leaseId),
      drain: null,
    });
    const keeper = new LeaseKeeper(this.#control, this.#id, [this.#pipeline], this.#emit);
    const ticker = (what: string, ms: number, task: () => Promise<unknown>) =>
      new Ticker(what, ms, this.#emit, async () => void (await task()));
    this.#tickers = [
      ticker('extend leases', Math.floor(leaseMs / 3), () => keeper.extend()),
      ticker('release leases', 1000, () => keeper.releaseUnknown()),
      ticker('reap', reapMs, () => reap(this.#control)),
    ];
    this.#pipeline.start();
    for (const each of this.#tickers) each.start();
  }

  async stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    await this.#stopped;
  }

  async #stop(): Promise<void> {
    const deadlineMs = performance.now() + this.#options.stopDeadlineMs;
    await Promise.all([this.#reader?.stop(deadlineMs), this.#pipeline?.stop(deadlineMs)]);
    await Promise.all(this.#tickers.map((ticker) => ticker.stop()));
    if (this.#pipeline) await signOff(this.#control, this.#id).catch(() => {});
    await Promise.all([this.#work.close(), this.#control.close()]);
  }
}
