// A relay in the test's own process, with a proxy in front of its database and one destination whose handler records
// messages: enough for faults that kill no process.

import type pg from 'pg';

import { createRelay } from '../../../src/config.js';
import type { Relay } from '../../../src/relay/relay.js';
import type { RelayOptions } from '../../../src/relay/options.js';
import type { DatabaseOptions } from '../../../src/database/connection.js';
import { handler } from '../../../src/destinations/handler.js';
import type { ClaimedMessage } from '../../../src/core/claimed-message.js';
import type { Outcome } from '../../../src/core/outcome.js';
import { createOutbox } from '../../../src/producer/outbox.js';
import type { RelayEvent } from '../../../src/telemetry/events.js';
import { waitFor } from '../../support/wait.js';
import { isClaim } from './faults.js';
import { PostgresProxy } from './postgres-proxy.js';
import type { HeldAnswer } from './postgres-proxy.js';

export type AttemptRow = {
  claim_no: number;
  tries: number;
  state: string;
  error_code: string | null;
};

type Options = {
  databaseUrl: string;
  pool: pg.Pool;
  database?: DatabaseOptions;
  relay?: RelayOptions;
  handle?: (message: ClaimedMessage) => Promise<Outcome | undefined> | Outcome | undefined;
};

export class RelayUnderTest {
  readonly proxy: PostgresProxy;
  readonly relay: Relay;
  /** Message ids, in the order in which the handler got them. */
  readonly handled: string[] = [];
  readonly events: RelayEvent[] = [];
  readonly #pool: pg.Pool;

  private constructor(proxy: PostgresProxy, options: Options) {
    this.proxy = proxy;
    this.#pool = options.pool;
    this.relay = createRelay({
      database: {
        url: proxy.through(options.databaseUrl),
        statementTimeoutMs: 1000,
        connectTimeoutMs: 1000,
        ...options.database,
      },
      destinations: {
        notebook: handler((message) => {
          this.handled.push(message.id);
          return options.handle?.(message);
        }),
      },
      routes: [{ topic: 'note.*', to: 'notebook' }],
      // the lease is long, so that nothing comes back by its expiry
      relay: {
        leaseMs: 60_000,
        reapMs: 100,
        fallbackPollMs: 100,
        stopDeadlineMs: 2000,
        ...options.relay,
      },
      onEvent: (event) => this.events.push(event),
    });
  }

  static async start(options: Options): Promise<RelayUnderTest> {
    const made = new RelayUnderTest(await PostgresProxy.start(options.databaseUrl), options);
    await made.relay.start();
    return made;
  }

  /** Not through the proxy. */
  async enqueue(count = 1, key?: string): Promise<string[]> {
    const client = await this.#pool.connect();
    try {
      await client.query('BEGIN');
      const messages = Array.from({ length: count }, (_, n) => ({
        topic: 'note.written',
        payload: { n },
        ...(key !== undefined && { key }),
      }));
      const enqueued = await createOutbox().enqueueMany(client, messages);
      await client.query('COMMIT');
      return enqueued.map(({ id }) => id);
    } finally {
      client.release();
    }
  }

  /** Holds the response of the next claim that returns messages. */
  async holdFullClaim(): Promise<HeldAnswer> {
    for (;;) {
      const answer = await (await this.proxy.hold(isClaim)).forward();
      if (answer.rows > 0) return answer;
      answer.pass();
    }
  }

  async attempts(id: string): Promise<AttemptRow[]> {
    const { rows } = await this.#pool.query<AttemptRow>(
      'SELECT claim_no, tries, state::text AS state, error_code FROM outbox.attempts WHERE message_id = $1 ORDER BY claim_no',
      [id],
    );
    return rows;
  }

  async waitUntilDelivered(id: string, timeoutMs = 40_000): Promise<void> {
    await waitFor(
      async () => (await this.attempts(id)).some(({ state }) => state === 'dispatched'),
      {
        what: `${id} to be delivered`,
        timeoutMs,
      },
    );
  }

  count(name: RelayEvent['name']): number {
    return this.events.filter((event) => event.name === name).length;
  }

  async stop(): Promise<void> {
    await this.relay.stop();
    await this.proxy.close();
  }
}
