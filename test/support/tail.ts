// A tail under test: somebody who follows it, what happens between two of its queries, and time that passes when it is
// told to.

import type pg from 'pg';

import type { Database } from '../../src/database/connection.js';
import { Tail } from '../../src/database/tail.js';
import type { TailFilter, TailWindow } from '../../src/database/tail.js';
import type { Queue } from './outbox.js';
import type { TestDatabase } from './postgres.js';
import { openDatabase } from './relay.js';

/** Looks again and again, as the command does. */
export class Follower {
  readonly #tail: Tail;

  private constructor(tail: Tail) {
    this.#tail = tail;
  }

  static async start(
    db: TestDatabase,
    filter: TailFilter = {},
    database = openDatabase(db, 'test_auditor'),
  ): Promise<Follower> {
    return new Follower(await Tail.start(database, filter));
  }

  look(limit = 1000): Promise<TailWindow> {
    return this.#tail.look(limit);
  }

  /** Each event as: what, of which message. */
  async events(): Promise<string[]> {
    return (await this.look()).events.map(({ event, messageId }) => `${event} ${messageId}`);
  }
}

/** The database, with something done before or after each of its queries. */
export function watched(
  db: TestDatabase,
  around: {
    before?: (sql: string, values: unknown[]) => void;
    after?: (rows: pg.QueryResultRow[], what: string) => Promise<void> | void;
  },
): Database {
  return new Proxy(openDatabase(db, 'test_auditor'), {
    get(object, name) {
      if (name !== 'query') return Reflect.get(object, name) as unknown;
      return async (what: string, sql: string, values: unknown[]) => {
        around.before?.(sql, values);
        const rows = await object.query(what, sql, values);
        await around.after?.(rows, what);
        return rows;
      };
    },
  });
}

/** Some time ago, which passes when it is told to: for the tail, and for attempts that end. */
export class Past {
  readonly #queue: Queue;
  readonly database: Database;
  /** Open transactions look as if they had been prepared: servers rarely let anybody do it. */
  isPrepared = false;
  #agoMs: number;

  constructor(queue: Queue, agoMs: number) {
    this.#queue = queue;
    this.#agoMs = agoMs;
    this.database = watched(queue.db, {
      after: (rows) => {
        for (const row of rows as Partial<Record<string, unknown>>[]) {
          if (typeof row['atMs'] === 'number') row['atMs'] -= this.#agoMs;
          if (!this.isPrepared || !Array.isArray(row['writers'])) continue;
          row['prepared'] = row['writers'].map((name) => `-1/${name}`);
          row['writers'] = [];
        }
      },
    });
  }

  pass(ms: number): void {
    this.#agoMs -= ms;
    if (this.#agoMs < 0) throw new Error('this would be the future');
  }

  /** Ends attempts, as settling does; answers the first one's message. */
  async end(client: Pick<pg.ClientBase, 'query'> | pg.Pool, count = 1): Promise<string> {
    const { db, id } = this.#queue;
    const { rows } = await client.query<{ message_id: string }>(
      `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
       SELECT ${db.quoted}.new_id(), $1, 1, 1, 'dispatched', clock_timestamp() - $2 * interval '1 ms'
         FROM generate_series(1, $3) RETURNING message_id`,
      [id, this.#agoMs, count],
    );
    return rows[0]?.message_id ?? '';
  }
}
