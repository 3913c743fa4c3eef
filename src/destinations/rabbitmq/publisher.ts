// RabbitMQ publisher: publishes on one connection, with a confirm for each message. An AMQP error closes the channel
// and does not say which message caused it. So each exchange has its own channel: a missing or forbidden exchange
// concerns all of its messages. If one message closes a channel, the messages in flight are sent again one by one, to
// find it. A message that no queue takes is returned before it is confirmed.

import { once } from 'node:events';

import type { Channel, Connection, Envelope } from 'rabbitmq-client';

/** The message was confirmed and returned: no queue took it. */
export class ReturnedError extends Error {
  override readonly name = 'ReturnedError';
}

/** The broker accepts no messages now, because it lacks memory or disk. */
export class BlockedError extends Error {
  override readonly name = 'BlockedError';
}

type Published = Envelope & { messageId: string };

/** A channel and the messages in flight on it. */
type Line = {
  readonly channel: Channel;
  readonly inFlight: Map<string, { returned: string | null }>;
  count: number;
  /** Why the server closed it, and how many messages were in flight. */
  closedBy: { readonly error: Error; readonly count: number } | undefined;
};

/** The channel of an exchange, which may not be open yet, and its number of users. */
type Slot = {
  readonly opening: Promise<Line>;
  line: Line | undefined;
  failed: boolean;
  users: number;
};

const mostSlots = 64;
/** Codes of errors that a single message causes, independent of the others. */
const ownFault = new Set(['PRECONDITION_FAILED', 'CONTENT_TOO_LARGE']);

export class Publisher {
  readonly connection: Connection;
  /** The broker's reason for blocking the connection. */
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

  /**
   * Resolves when the broker has confirmed the message; throws the broker's error, a `ReturnedError` or a
   * `BlockedError`.
   */
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
      // without an await if it is open: meanwhile another message could close it
      const line = slot.line ?? (await slot.opening);
      const isUncertain = await send(line, envelope, body);
      if (isUncertain) await this.#publishAlone(envelope, body, signal);
    } finally {
      slot.users -= 1;
    }
  }

  /** Publishes one message at a time, each on its own channel. */
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

  /** If names contain fields, there may be more exchanges than channels. */
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
  const line: Line = { channel, inFlight: new Map(), count: 0, closedBy: undefined };
  channel.on('error', (error: Error) => note(line, error));
  channel.on('basic.return', ({ messageId, replyText }) => {
    const entry = line.inFlight.get(messageId ?? '');
    if (entry !== undefined) entry.returned = replyText;
  });
  await channel.confirmSelect();
  return line;
}

/** Returns true if the channel was closed because of a single message, which may be this one. */
async function send(line: Line, envelope: Published, body: Buffer): Promise<boolean> {
  const entry: { returned: string | null } = { returned: null };
  line.inFlight.set(envelope.messageId, entry);
  line.count += 1;
  try {
    await line.channel.basicPublish(envelope, body);
    // the library reports a returned message just after its confirm
    await new Promise(setImmediate);
  } catch (error) {
    note(line, error as Error);
    const { closedBy } = line;
    if (closedBy !== undefined && closedBy.count > 1 && isOwnFault(closedBy.error)) return true;
    throw closedBy?.error ?? error;
  } finally {
    line.count -= 1;
    if (line.inFlight.get(envelope.messageId) === entry) line.inFlight.delete(envelope.messageId);
  }
  if (entry.returned !== null) throw new ReturnedError(entry.returned);
  return false;
}

/** The library gives the reason for closing to one of the messages in flight, and only the fact to the others. */
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

/** Opens a connection; throws the reason if that fails, and calls `lost` when it is lost. */
export async function openConnection(
  connection: Connection,
  closing: AbortSignal,
  lost: () => void,
): Promise<Connection> {
  connection.on('error', () => {
    // the shared connection reconnects; the library would reconnect by itself and hide the reasons
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
