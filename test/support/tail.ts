// A tail under test: a reader that follows it, actions between two of its queries, and a clock that the test moves.

import type pg from 'pg';

import type { Database } from '../../src/database/connection.js';
import { Tail } from '../../src/listing/tail.js';
import type { TailWindow } from '../../src/listing/tail-events.js';
import type { TailFilter } from '../../src/listing/tail.js';
import type { Queue } from './outbox.js';
import type { TestDatabase } from './postgres.js';
import { openDatabase } from './relay.js';

/** Polls, as the command does. */
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

  /** Each event as its kind and the number of its message. */
  async events(): Promise<string[]> {
    return (await this.look()).events.map(({ event, messageId }) => `${event} ${messageId}`);
  }
}

/** The database, with an action before or after each of its queries. */
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

/** A clock in the past that moves only when the test says so, for the tail and for attempts that end. */
export class Past {
  readonly #queue: Queue;
  readonly database: Database;
  /** Makes open transactions look prepared, because servers rarely allow prepared transactions. */
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

  /** Ends attempts, as settling does; returns the first one's message. */
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
