// Measures what a query reads, by its plan: a query that is served by an index reads about what it returns.

import type pg from 'pg';

import { only } from './only.js';

type Step = {
  'Relation Name'?: string;
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  'Rows Removed by Index Recheck'?: number;
  'Rows Removed by Join Filter'?: number;
  Plans?: Step[];
};

/** The most rows that a step of the plan has read of a table of Waybill, whether it returned or dropped them. */
export async function rowsRead(client: Pick<pg.Client, 'query'>, sql: string): Promise<number> {
  const { rows } = await client.query<{ 'QUERY PLAN': [{ Plan: Step }] }>(
    `EXPLAIN (ANALYZE, TIMING off, FORMAT JSON) ${sql}`,
  );
  return mostRows(only(rows)['QUERY PLAN'][0].Plan);
}

function mostRows(step: Step): number {
  const removed =
    (step['Rows Removed by Filter'] ?? 0) +
    (step['Rows Removed by Index Recheck'] ?? 0) +
    (step['Rows Removed by Join Filter'] ?? 0);
  const ofTable = /^(messages|deliveries|dead_letters|attempts)/.test(step['Relation Name'] ?? '');
  const own = ofTable ? (step['Actual Rows'] + removed) * step['Actual Loops'] : 0;
  return Math.max(own, ...(step.Plans ?? []).map(mostRows));
}

/**
 * Adds delivered messages, so many that the planner uses the indexes that serve a large table. Each has a tenant, a
 * dedupe key and an aggregate of its own.
 */
export async function addHistory(
  client: Pick<pg.Client, 'query'>,
  destination: string,
  { namespace = 'default', topic }: { namespace?: string; topic: string },
): Promise<number> {
  const count = 20_000;
  await client.query(
    `WITH added AS (
       INSERT INTO outbox.messages (id, created_at, transaction_id, bytes, namespace, topic, tenant_id, dedupe_key,
                                    aggregate_type, aggregate_id, payload)
       SELECT outbox.new_id(), clock_timestamp(), pg_current_xact_id(), 2, $2, $3, gen_random_uuid(),
              'history/' || n, 'user', gen_random_uuid(), '{}'
         FROM generate_series(1, $4::int) n
       RETURNING id)
     INSERT INTO outbox.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
     SELECT a.id, d.id, 1, 1, 'dispatched', now() FROM added a, outbox.destinations d WHERE d.name = $1`,
    [destination, namespace, topic, count],
  );
  await client.query('VACUUM ANALYZE outbox.messages, outbox.deliveries, outbox.attempts');
  return count;
}
