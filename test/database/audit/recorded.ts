// Actions of operators in SQL, and the records that they leave.

import type pg from 'pg';

import { only } from '../../support/only.js';
import type { Connection } from '../../support/outbox.js';
import type { TestDatabase } from '../../support/postgres.js';

/** By the function that records it: runs the action and checks its record. */
export type Actions = Record<string, () => Promise<void>>;

export class Records {
  readonly db: TestDatabase;

  constructor(db: TestDatabase) {
    this.db = db;
  }

  readonly call = async (
    sql: string,
    values: unknown[] = [],
    on: Connection = this.db.pool,
  ): Promise<void> => {
    await on.query(`SELECT ${this.db.quoted}.${sql}`, values);
  };

  /** The records of the work. */
  readonly recorded = async (work: () => Promise<unknown>): Promise<pg.QueryResultRow[]> => {
    const { db } = this;
    const { rows } = await db.query<{ id: string }>(
      `SELECT coalesce(max(id), 0) AS id FROM ${db.quoted}.operator_actions`,
    );
    await work();
    const records = await db.query(
      `SELECT actor, action, subject, count::int, database_user = session_user AS "asMyself"
         FROM ${db.quoted}.operator_actions WHERE id > $1 ORDER BY id`,
      [only(rows).id],
    );
    return records.rows;
  };
}

export const record = (action: string, count: number, subject: object) => ({
  actor: 'ann',
  asMyself: true,
  action,
  count,
  subject,
});
