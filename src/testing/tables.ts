// What the test kit reads and changes beside claims and outcomes: plain SQL on the tables, on the client of the test.

import type { Definitions } from '../relay/setup.js';
import { TestKitError } from './errors.js';
import type { EnqueuedMessage } from './messages.js';
import type { Row, TestSession } from './session.js';

export type DeadLetter = Omit<
  EnqueuedMessage,
  'namespace' | 'aggregateType' | 'aggregateId' | 'headers'
> & {
  destination: string;
  /** Why: `rejected` by the destination, `exhausted` after its last try, or `parked` behind another one of its key. */
  reason: string;
  tries: number;
  code: string | null;
  message: string | null;
};

export const deadLetterFields = [
  'id',
  'destination',
  'topic',
  'tenantId',
  'key',
  'sequence',
  'dedupeKey',
  'payload',
  'reason',
  'tries',
  'code',
  'message',
] as const satisfies (keyof DeadLetter)[];

export type Waiting = { count: number; nextDueMs: number | null };

/** Stores the definitions, and removes those of the application that are no longer there; nothing if all are stored. */
export async function declare(
  session: TestSession,
  definitions: Definitions,
  application: string,
): Promise<void> {
  const apply = (dryRun: boolean) =>
    session.query(
      `SELECT jsonb_array_length(${session.schema}.apply_definitions($1::text::jsonb, $2::text, NULL, true, $3::text::boolean))
              AS changes`,
      [JSON.stringify(definitions), application, String(dryRun)],
    );
  // a dry run holds no locks, so that tests with the same definitions do not wait for each other
  const [planned] = await apply(true);
  if (Number(planned?.['changes']) === 0) return;
  await apply(false).catch((error: unknown) => {
    if ((error as { code?: unknown } | null)?.code !== '55P03') throw error;
    throw new TestKitError(
      'the destinations and routes could not be stored in this transaction, because another one has unrouted messages: store them once before the tests, with createTestKit(pool, config, { ownDatabase: true })',
      { cause: error },
    );
  });
}

/** Only relays write samples, and keep them for days: one that sleeps or has stopped leaves no other trace. */
export async function refuseRelays(session: TestSession): Promise<void> {
  const [row] = await session.query(
    `SELECT (SELECT string_agg(r.name, ', ')
               FROM ${session.schema}.relays r
              WHERE ${session.schema}.is_living(r.id)) AS names,
            EXISTS (SELECT FROM ${session.schema}.samples)::text AS worked`,
  );
  const names = row?.['names'];
  if (typeof names !== 'string' && row?.['worked'] !== 'true') return;
  const who =
    typeof names === 'string'
      ? `relays run on this database (${names})`
      : 'a relay has worked on this database';
  throw new TestKitError(
    `${who}, and outside a transaction the test kit delivers and removes messages of all: use a database of its own, or run each test in a transaction that is rolled back`,
  );
}

export async function findDestinations(
  session: TestSession,
  names: readonly string[],
): Promise<Map<string, number>> {
  const rows = await session.query(
    `SELECT d.name, d.id::text AS id
       FROM ${session.schema}.destinations d
      WHERE d.name IN (SELECT jsonb_array_elements_text($1::text::jsonb))`,
    [JSON.stringify(names)],
  );
  return new Map(rows.map((row) => [String(row['name']), Number(row['id'])]));
}

/** The endpoints of customers that messages of the test wait for. */
export async function awaitedEndpoints(
  session: TestSession,
): Promise<{ name: string; id: number }[]> {
  const rows = await session.query(
    `SELECT t.name, t.id::text AS id
       FROM ${session.schema}.destinations t
      WHERE t.kind = 'endpoint'
        AND t.configured
        AND EXISTS (
              SELECT FROM ${session.schema}.deliveries d
                JOIN ${session.schema}.messages m ON m.id = d.message_id
               WHERE d.destination_id = t.id
                 AND ${session.own})
      ORDER BY t.id`,
  );
  return rows.map((row) => ({ name: String(row['name']), id: Number(row['id']) }));
}

export async function readMessages(session: TestSession): Promise<EnqueuedMessage[]> {
  const rows = await session.query(
    `SELECT m.id::text AS "id", m.topic AS "topic", m.namespace AS "namespace", m.tenant_id AS "tenantId",
            m.key AS "key", m.sequence::text AS "sequence", m.dedupe_key AS "dedupeKey",
            m.aggregate_type AS "aggregateType", m.aggregate_id AS "aggregateId", m.headers::text AS "headers",
            m.payload::text AS "payload"
       FROM ${session.schema}.messages m
      WHERE ${session.own}
      ORDER BY m.id`,
  );
  return rows.map((row) => withJson(row) as EnqueuedMessage);
}

export async function readDeadLetters(session: TestSession): Promise<DeadLetter[]> {
  const rows = await session.query(
    `SELECT d.message_id::text AS "id", t.name AS "destination", d.topic AS "topic", d.tenant_id AS "tenantId",
            d.key AS "key", d.sequence::text AS "sequence", d.dedupe_key AS "dedupeKey",
            d.payload::text AS "payload", d.reason AS "reason", d.tries::text AS "tries",
            d.error_code AS "code", d.error_message AS "message"
       FROM ${session.schema}.dead_letters d
       JOIN ${session.schema}.destinations t ON t.id = d.destination_id
       LEFT JOIN ${session.schema}.messages m ON m.id = d.message_id
      WHERE ${session.own}
      ORDER BY d.dead_at, d.message_id, t.name`,
  );
  return rows.map((row) => ({ ...(withJson(row) as DeadLetter), tries: Number(row['tries']) }));
}

/** How many deliveries at these destinations belong to no message of this test. */
export async function countForeign(
  session: TestSession,
  destinationIds: readonly number[],
): Promise<number> {
  if (!session.isInside) return 0;
  const [row] = await session.query(
    `SELECT count(*)::text AS count
       FROM ${session.schema}.deliveries d
       LEFT JOIN ${session.schema}.messages m ON m.id = d.message_id
      WHERE d.destination_id IN (SELECT jsonb_array_elements_text($1::text::jsonb)::int)
        AND (${session.own}) IS NOT TRUE`,
    [JSON.stringify(destinationIds)],
  );
  return Number(row?.['count']);
}

/** What is pending at these destinations, and when the first of it is due. */
export async function waiting(
  session: TestSession,
  destinationIds: readonly number[],
): Promise<Waiting> {
  const [row] = await session.query(
    `SELECT count(*)::text AS count,
            (ceil(extract(epoch FROM min(d.available_at) FILTER (WHERE
               t.paused_at IS NULL
               AND (d.key_id IS NULL
                    OR NOT EXISTS (
                         SELECT FROM ${session.schema}.deliveries e
                          WHERE e.destination_id = d.destination_id
                            AND e.key_id = d.key_id
                            AND e.sequence < d.sequence)
                       AND NOT EXISTS (
                         SELECT FROM ${session.schema}.lanes l
                          WHERE l.destination_id = d.destination_id
                            AND l.key_id = d.key_id
                            AND l.blocked_by IS NOT NULL))) - clock_timestamp()) * 1000))::text AS ms
       FROM ${session.schema}.deliveries d
       JOIN ${session.schema}.destinations t ON t.id = d.destination_id
       JOIN ${session.schema}.messages m ON m.id = d.message_id
      WHERE d.destination_id IN (SELECT jsonb_array_elements_text($1::text::jsonb)::int)
        AND ${session.own}`,
    [JSON.stringify(destinationIds)],
  );
  const ms = row?.['ms'];
  return {
    count: Number(row?.['count']),
    nextDueMs: typeof ms === 'string' ? Math.max(Number(ms), 0) : null,
  };
}

/** Makes all pending deliveries of the test due earlier, as if so much time had passed. */
export async function advance(session: TestSession, ms: number): Promise<void> {
  await session.query(
    `WITH moved AS (
       UPDATE ${session.schema}.deliveries d
          SET available_at = d.available_at - $1::text::bigint * interval '1 ms'
         FROM ${session.schema}.messages m
        WHERE m.id = d.message_id
          AND ${session.own}
       RETURNING d.destination_id, d.key_id)
     -- a ticket makes the next claim look at the lane again
     INSERT INTO ${session.schema}.lane_tickets (destination_id, key_id, recheck)
     SELECT DISTINCT x.destination_id, x.key_id, true
       FROM moved x
      WHERE x.key_id IS NOT NULL`,
    [String(ms)],
  );
}

/** Removes the messages of the test with everything that depends on them; attempts stay, because they are a record. */
export async function removeMessages(
  session: TestSession,
  destinationIds: readonly number[],
): Promise<void> {
  const own = `SELECT m.id FROM ${session.schema}.messages m WHERE ${session.own}`;
  const keys = `SELECT m.key_id FROM ${session.schema}.messages m WHERE ${session.own} AND m.key_id IS NOT NULL`;
  const deleteFrom = (table: string, condition: string) =>
    session.query(`DELETE FROM ${session.schema}.${table} WHERE ${condition}`);
  await deleteFrom('leases', session.isInside ? `relay_id = '${session.relayId}'` : 'true');
  for (const table of ['lanes', 'lane_tickets']) await deleteFrom(table, `key_id IN (${keys})`);
  for (const table of ['deliveries', 'dead_letters', 'dedupe_keys', 'unrouted_messages'])
    await deleteFrom(table, session.isInside ? `message_id IN (${own})` : 'true');
  if (!session.isInside)
    for (const table of ['keys', 'inbox', 'inbox_positions']) await deleteFrom(table, 'true');
  await deleteFrom('messages', `id IN (${own})`);
  await session.query(
    `UPDATE ${session.schema}.destinations
        SET paused_at = NULL, paused_by = NULL, paused_reason = NULL, paused_code = NULL
      WHERE paused_at IS NOT NULL
        AND id IN (SELECT jsonb_array_elements_text($1::text::jsonb)::int)`,
    [JSON.stringify(destinationIds)],
  );
}

function withJson(row: Row): Row {
  const { headers, payload } = row;
  return {
    ...row,
    ...('headers' in row && {
      headers: typeof headers === 'string' ? (JSON.parse(headers) as unknown) : {},
    }),
    payload: typeof payload === 'string' ? (JSON.parse(payload) as unknown) : null,
  };
}
