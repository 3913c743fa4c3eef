// Publishes on one connection to RabbitMQ, with a confirm for each message. An error in AMQP closes the channel and
// does not say which message was to blame. So each exchange has a channel of its own, for an exchange that is missing
// or forbidden is the same for all of its messages; and what a channel refuses for the sake of one message is sent
// again alone, until it is known which. A message that no queue takes comes back before it is confirmed.

import { once } from 'node:events';

import type { Channel, Connection, Envelope } from 'rabbitmq-client';

/** It was confirmed, and came back: no queue was there for it. */
export class ReturnedError extends Error {
  override readonly name = 'ReturnedError';
}

/** The broker takes nothing now, for want of memory or disk. */
export class BlockedError extends Error {
  override readonly name = 'BlockedError';
}

type Published = Envelope & { messageId: string };

/** A channel and what is under way on it. */
type Line = {
  readonly channel: Channel;
  readonly underWay: Map<string, { returned: string | null }>;
  count: number;
  /** Why the server closed it, and how many were under way then. */
  closedBy: { readonly error: Error; readonly count: number } | undefined;
};

/** The channel of an exchange, which may not be open yet, and who uses it or is about to. */
type Slot = {
  readonly opening: Promise<Line>;
  line: Line | undefined;
  failed: boolean;
  users: number;
};

const mostSlots = 64;
/** Codes of errors that one message causes, whatever the others are. */
const ownFault = new Set(['PRECONDITION_FAILED', 'CONTENT_TOO_LARGE']);

export class Publisher {
  readonly connection: Connection;
  /** What the broker said when it stopped taking messages. */
  blocked: string | null = null;
  readonly #slots = new Map<string, Slot>();
  readonly #waiting = new Set<(error: Error) => void>();
  #alone: Promise<unknown> = Promise.resolve();

  constructor(connection: Connection) {
    this.connection = connection;
    connection.on('connection.blocked', (reason: string) => {
      this.blocked = reason;
      for (const refuse of this.#waiting) refuse(new BlockedError(reason));
    });
    connection.on('connection.unblocked', () => (this.blocked = null));
  }

  /** Ends when the broker has confirmed it; throws the broker's reason, a `ReturnedError` or a `BlockedError`. */
  publish(envelope: Published, body: Buffer, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.blocked !== null) return reject(new BlockedError(this.blocked));
      this.#waiting.add(reject);
      this.#publish(envelope, body, signal)
        .then(resolve, reject)
        .finally(() => this.#waiting.delete(reject));
    });
  }

  async #publish(envelope: Published, body: Buffer, signal: AbortSignal): Promise<void> {
    const slot = this.#slotOf(envelope.exchange ?? '');
    slot.users += 1;
    try {
      // at once where it is open: meanwhile it could be closed because of another
      const line = slot.line ?? (await slot.opening);
      const isSuspect = await send(line, envelope, body);
      if (isSuspect) await this.#publishAlone(envelope, body, signal);
    } finally {
      slot.users -= 1;
    }
  }

  /** One after the other, each on a channel of its own. */
  async #publishAlone(envelope: Published, body: Buffer, signal: AbortSignal): Promise<void> {
    const turn = this.#alone.then(async () => {
      signal.throwIfAborted();
      const line = await openLine(this.connection);
      try {
        await send(line, envelope, body);
      } finally {
        void line.channel.close();
      }
    });
    this.#alone = turn.catch(() => undefined);
    return turn;
  }

  #slotOf(exchange: string): Slot {
    const known = this.#slots.get(exchange);
    if (known !== undefined && !known.failed && known.line?.channel.active !== false) return known;
    const opening = openLine(this.connection);
    const slot: Slot = { opening, line: undefined, failed: false, users: 0 };
    opening.then(
      (line) => (slot.line = line),
      () => (slot.failed = true),
    );
    this.#slots.set(exchange, slot);
    if (this.#slots.size > mostSlots) this.#closeIdle(slot);
    return slot;
  }

  /** Where names have fields in them, there may be more exchanges than channels. */
  #closeIdle(butNot: Slot): void {
    for (const [exchange, slot] of this.#slots) {
      if (slot === butNot || slot.users > 0) continue;
      this.#slots.delete(exchange);
      void slot.opening.then(
        ({ channel }) => channel.close(),
        () => undefined,
      );
      return;
    }
  }
}

async function openLine(connection: Connection): Promise<Line> {
  const channel = await connection.acquire({ emitErrorsFromChannel: true });
  const line: Line = { channel, underWay: new Map(), count: 0, closedBy: undefined };
  channel.on('error', (error: Error) => note(line, error));
  channel.on('basic.return', ({ messageId, replyText }) => {
    const entry = line.underWay.get(messageId ?? '');
    if (entry !== undefined) entry.returned = replyText;
  });
  await channel.confirmSelect();
  return line;
}

/** Gives true if the channel was closed for the sake of one message, which this may be or not. */
async function send(line: Line, envelope: Published, body: Buffer): Promise<boolean> {
  const entry: { returned: string | null } = { returned: null };
  line.underWay.set(envelope.messageId, entry);
  line.count += 1;
  try {
    await line.channel.basicPublish(envelope, body);
    // the library tells of a returned message a moment after it has told of its confirm
    await new Promise(setImmediate);
  } catch (error) {
    note(line, error as Error);
    const { closedBy } = line;
    if (closedBy !== undefined && closedBy.count > 1 && isOwnFault(closedBy.error)) return true;
    throw closedBy?.error ?? error;
  } finally {
    line.count -= 1;
    if (line.underWay.get(envelope.messageId) === entry) line.underWay.delete(envelope.messageId);
  }
  if (entry.returned !== null) throw new ReturnedError(entry.returned);
  return false;
}

/** One of those under way is told why the channel closed, the others only that it did. */
function note(line: Line, error: Error): void {
  if (line.channel.active || codeOf(error) === 'CH_CLOSE') return;
  line.closedBy ??= { error, count: line.count };
}

function isOwnFault(error: Error): boolean {
  return ownFault.has(codeOf(error) ?? '');
}

function codeOf(error: Error): string | undefined {
  return (error as Error & { code?: string }).code;
}

/** A connection that is open; it throws the reason if it cannot be, and tells when it is lost. */
export async function openConnection(
  connection: Connection,
  closing: AbortSignal,
  lost: () => void,
): Promise<Connection> {
  connection.on('error', () => {
    // the link connects again; the library would go on by itself, and keep the reasons to itself
    connection.unsafeDestroy();
    lost();
  });
  const end = (): void => connection.unsafeDestroy();
  closing.addEventListener('abort', end);
  try {
    await once(connection, 'connection', { signal: closing });
    return connection;
  } finally {
    closing.removeEventListener('abort', end);
  }
}
