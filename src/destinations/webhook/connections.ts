// The connections of a webhook, each for one request at a time. The one that was used last is used first, so that
// those that are not needed close by themselves. undici has a pool of its own; that one looks through all of its
// connections for every request and lets each wait for another turn of the event loop.

import type { Client } from 'undici';

export type Connection = {
  readonly client: Client;
  /** For whoever has it: another may have it now. */
  readonly free: () => void;
};

type Taker = (connection: Connection) => void;

export class Connections {
  readonly #most: number;
  readonly #connect: () => Client;
  readonly #clients: Client[] = [];
  readonly #unused: Connection[] = [];
  /** Calls that have ignored their abort may hold what others wait for. */
  readonly #waiting: Taker[] = [];

  constructor(most: number, connect: () => Client) {
    this.#most = most;
    this.#connect = connect;
  }

  /** At once, or as soon as one is free: in the order in which they came. */
  take(taker: Taker): void {
    const connection = this.#unused.pop() ?? this.#another();
    if (connection === undefined) this.#waiting.push(taker);
    else taker(connection);
  }

  /** Requests that wait or are under way fail. */
  async destroy(): Promise<void> {
    await Promise.all(this.#clients.map((client) => client.destroy()));
  }

  #another(): Connection | undefined {
    if (this.#clients.length >= this.#most) return undefined;
    const client = this.#connect();
    this.#clients.push(client);
    const connection: Connection = { client, free: () => this.#freed(connection) };
    return connection;
  }

  #freed(connection: Connection): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#unused.push(connection);
    else next(connection);
  }
}
