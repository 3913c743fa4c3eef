// Redis connection: shared by all calls, and made again by the next call after it was lost. Redis answers in the order
// of the commands. An aborted call would leave answers that cannot be matched, so the connection is dropped; everything
// on it fails and is sent again.

import type * as Redis from 'redis';

import { errorText } from '../../core/errors.js';
import { loadOptionalDependency } from '../optional-dependency.js';

export type RedisAddress = {
  readonly host: string;
  readonly port: number;
  readonly tls: boolean;
  readonly username: string;
  readonly password: string;
  readonly database: number;
};

/** An error of Redis with its code; without a code, the connection failed before an answer came. */
export type RedisFailure = {
  readonly code?: string;
  readonly cause?: string;
  readonly message: string;
};
export type RedisAnswer = string | null | RedisFailure;

/** The used part of the library's client, whose own type depends on its options. */
type Client = {
  connect(): Promise<unknown>;
  sendCommand<T>(command: readonly string[]): Promise<T>;
  destroy(): void;
};

/**
 * `ready` may take long to fail if the server does not answer; `lost` is rejected at once when the connection is
 * dropped.
 */
type Held = {
  readonly client: Client;
  readonly ready: Promise<unknown>;
  readonly lost: Promise<never>;
  readonly lose: (reason: unknown) => void;
};

/** After a fail-over, the same address may lead to another server. */
const dropsConnection = new Set(['READONLY', 'MASTERDOWN']);

export class RedisConnection {
  readonly #address: RedisAddress;
  readonly #connectTimeoutMs: number;
  #library: typeof Redis | undefined;
  #held: Held | undefined;
  #closed = false;

  constructor(address: RedisAddress, connectTimeoutMs: number) {
    this.#address = address;
    this.#connectTimeoutMs = connectTimeoutMs;
  }

  /** Can be called again after a close: a drain opens and closes its destinations each time. */
  async load(): Promise<void> {
    this.#closed = false;
    this.#library = await loadOptionalDependency('redis', 'redis', () => import('redis'));
  }

  /** One answer per command, in order. Never throws. */
  async ask(commands: readonly string[][], signal: AbortSignal): Promise<RedisAnswer[]> {
    const failAll = (error: unknown): RedisAnswer[] => commands.map(() => this.#failure(error));
    if (signal.aborted) return failAll(signal.reason);
    if (this.#closed) return failAll(new Error('the destination is closed'));
    const held = (this.#held ??= this.#connect());
    const drop = (): void => this.#drop(held, signal.reason);
    signal.addEventListener('abort', drop);
    try {
      await Promise.race([held.ready, held.lost]);
      const answers = await Promise.all(
        commands.map((command) =>
          held.client
            .sendCommand<string | null>(command)
            .catch((error: unknown) => this.#failure(error)),
        ),
      );
      if (answers.some((answer) => isFailure(answer) && dropsConnection.has(answer.code ?? '')))
        drop();
      return answers;
    } catch (error) {
      return failAll(error);
    } finally {
      signal.removeEventListener('abort', drop);
    }
  }

  close(): void {
    this.#closed = true;
    if (this.#held !== undefined) this.#drop(this.#held, new Error('the destination was closed'));
  }

  #connect(): Held {
    if (this.#library === undefined) throw new Error('the redis destination is not open');
    const { host, port, tls, username, password, database } = this.#address;
    const client = this.#library.createClient({
      socket: {
        host,
        port,
        connectTimeout: this.#connectTimeoutMs,
        // the next call connects again: nothing runs in the background
        reconnectStrategy: false,
        ...(tls && { tls }),
      },
      ...(username !== '' && { username }),
      ...(password !== '' && { password }),
      database,
      // every server supports it, and it needs no further rights
      RESP: 2,
      maintNotifications: 'disabled',
      disableClientInfo: true,
      disableOfflineQueue: true,
      // the call's own signal ends it
      commandOptions: { timeout: 0 },
    });
    let lose: Held['lose'] = () => undefined;
    const lost = new Promise<never>((_resolve, reject) => (lose = reject));
    lost.catch(() => undefined);
    const held = { client, ready: this.#greet(client), lost, lose };
    const drop = (error: unknown): void => this.#drop(held, error);
    // calls that wait for an answer fail; without a listener, an error would end the process
    client.on('error', drop);
    held.ready.catch(drop);
    return held;
  }

  /**
   * Sends a short command first: to a client that is not logged in, Redis answers long commands with a protocol error
   * instead of a code. A user without the right to this command may still add entries.
   */
  async #greet(client: Client): Promise<void> {
    await client.connect();
    await client.sendCommand(['PING']).catch((error: unknown) => {
      if (this.#failure(error).code !== 'NOPERM') throw error;
    });
  }

  /** Every call that waits on the connection fails at once. */
  #drop(held: Held, reason: unknown): void {
    if (this.#held === held) this.#held = undefined;
    held.lose(reason);
    held.client.destroy();
  }

  #failure(error: unknown): RedisFailure {
    const message = errorText(error);
    if (this.#library !== undefined && error instanceof this.#library.ErrorReply)
      return { code: /^[A-Z]+\b/.exec(message)?.[0] ?? 'ERR', message };
    const { code } = (error ?? {}) as { code?: unknown };
    return { message, ...(typeof code === 'string' && { cause: code }) };
  }
}

function isFailure(answer: RedisAnswer): answer is RedisFailure {
  return typeof answer === 'object' && answer !== null;
}
