// Connection watch: discards half-open connections. When the network silently drops a relay's connections, all of
// them are dead, but each looks open until a query on it misses its deadline. So one missed deadline discards the
// others too: idle connections at once, and busy ones after a grace period if they have not answered since the
// missed query was sent.
//
// The server gives up a slow statement 2 s before the client's deadline. So a missed deadline means a dead
// connection or a server that does not answer, never a slow query. A healthy idle connection is discarded too, which
// costs one reconnect. A healthy busy one has answered since, and keeps its query.

import type pg from 'pg';

import { destroy } from './direct-connection.js';

/** The grace period, for an answer that is on its way. */
const graceMs = 1000;

/** Shared by the pools of one relay, which reach the same server over the same network. */
export class ConnectionWatch {
  readonly #known = new Map<pg.ClientBase, { askedMs: number | null; answeredMs: number }>();

  opened(client: pg.ClientBase): void {
    this.#known.set(client, { askedMs: null, answeredMs: performance.now() });
    client.once('end', () => this.#known.delete(client));
  }

  /** Returns the time, for deadlineMissed(). */
  asked(client: pg.ClientBase): number {
    const askedMs = performance.now();
    const known = this.#known.get(client);
    if (known) known.askedMs = askedMs;
    return askedMs;
  }

  answered(client: pg.ClientBase): void {
    const known = this.#known.get(client);
    if (known) Object.assign(known, { askedMs: null, answeredMs: performance.now() });
  }

  discardIdle(): void {
    for (const [client, { askedMs }] of this.#known) if (askedMs === null) destroy(client);
  }

  /** A query that was sent at `sentMs` has missed its deadline. */
  deadlineMissed(sentMs: number): void {
    this.discardIdle();
    for (const [client, known] of this.#known) {
      const { askedMs, answeredMs } = known;
      if (askedMs !== null && answeredMs < sentMs)
        setTimeout(() => {
          if (known.askedMs === askedMs) destroy(client);
        }, graceMs).unref();
    }
  }
}
