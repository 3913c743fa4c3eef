// Set-up for tests of reports: counts everything that is complete now, and writes a history of messages and attempts.

import type { TestDatabase } from './postgres.js';

/** Counts until nothing is left, as a relay does, but without the usual delay; returns the number of pieces. */
export async function fillNow(db: TestDatabase, pieceRows = 100_000): Promise<number> {
  for (let pieces = 1; ; pieces += 1) {
    const { rows } = await db.query<{ more: boolean }>(
      `SELECT ${db.quoted}.fill_reports($1, '0') AS more`,
      [pieceRows],
    );
    if (rows[0]?.more !== true) return pieces;
  }
}

/** Messages of one topic and tenant, one a second from a time on, with the partitions of these days. */
export async function writeMessages(
  db: TestDatabase,
  {
    from,
    count,
    topic,
    tenantId = null,
  }: {
    from: Date;
    count: number;
    topic: string;
    tenantId?: string | null;
  },
): Promise<void> {
  const daysAgo = Math.ceil((Date.now() - from.getTime()) / 86_400_000);
  await db.query(
    `SELECT ${db.quoted}.make_partitions(2, (now() AT TIME ZONE 'UTC')::date - $1::int)`,
    [daysAgo],
  );
  await db.query(
    `INSERT INTO ${db.quoted}.messages (id, created_at, transaction_id, bytes, namespace, topic, tenant_id, payload)
     SELECT overlay(${db.quoted}.id_at(t.at)::text PLACING substr(gen_random_uuid()::text, 20) FROM 20)::uuid, t.at,
            pg_current_xact_id(), 4, 'default', $3, $4, 'null'
       FROM (SELECT $1::timestamptz + n * interval '1 second' AS at FROM generate_series(0, $2::int - 1) n) t`,
    [from, count, topic, tenantId],
  );
}
