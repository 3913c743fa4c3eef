// Removes expired partitions, after sealing them if they hold attempts. The owner of the tables detaches and drops
// them; for any other login, a function of the owner does it. No other session waits long behind it: a busy
// partition is left for the next run.

import { quoteIdentifier } from '../../core/identifier.js';
import type { Database, DirectQuery } from '../../database/connection.js';
import { sealExpiry } from '../../features/audit/database.js';

type Kept = { messagesDays: number | null; attemptsDays: number | null; pauseMs: number };

/**
 * Detaches expired partitions concurrently and drops them; returns how many rows they held. A partition that cannot
 * be locked within the lock timeout is left for the next run, which also finishes a removal that was interrupted.
 */
export async function dropExpiredPartitions(database: Database, retention: Kept): Promise<number> {
  const { schema } = database;
  return database.directly('waybill retention', async (query) => {
    await query('set lock timeout', "SET lock_timeout = '2s'");
    const remove = (await ownsTables(query, schema)) ? dropPartition : removePartition;
    let rows = 0;
    // attempts stay while the messages of their day do, and identities while the attempts do
    for (const table of ['messages_', 'attempts_', 'message_identities_'])
      for (const { partition, statement } of await expiredPartitions(query, schema, retention))
        if (statement !== null && partition.startsWith(table))
          rows += await remove(query, schema, partition, retention);
    return rows;
  });
}

async function ownsTables(query: DirectQuery, schema: string): Promise<boolean> {
  const [row] = await query<{ owns: boolean }>(
    'look for the owner',
    `SELECT pg_has_role(c.relowner, 'USAGE') AS owns FROM pg_class c WHERE c.oid = $1::text::regclass`,
    [`${schema}.messages`],
  );
  return row?.owns ?? false;
}

/** How often to try a partition that another session has locked. */
const removeAttempts = 10;

/** For the owner of the tables: runs one statement after the other, until the partition is dropped or must stay. */
async function dropPartition(
  query: DirectQuery,
  schema: string,
  partition: string,
  retention: Kept,
): Promise<number> {
  for (let before = ''; ;) {
    // asked again before each step: meanwhile a delivery may refer to a message in the partition
    const [expired] = await expiredPartitions(query, schema, retention, partition);
    const statement = expired?.statement ?? '';
    if (expired === undefined || statement === '' || statement === before) return 0;
    if (!(await sealBefore(query, schema, retention, expired))) return 0;
    const isLast = statement.startsWith('DROP');
    const rows = isLast ? await countRows(query, schema, partition) : 0;
    if (!(await runUnlessBusy(query, statement))) return 0;
    await pause(retention.pauseMs);
    if (isLast) return rows;
    before = statement;
  }
}

/**
 * For a login that does not own the tables: a function of the owner removes partitions. It needs an exclusive lock
 * and waits for it only briefly, so that no queue forms behind it; hence the repeated tries.
 */
async function removePartition(
  query: DirectQuery,
  schema: string,
  partition: string,
  retention: Kept,
): Promise<number> {
  for (let attempt = 1; attempt <= removeAttempts; attempt += 1) {
    const [expired] = await expiredPartitions(query, schema, retention, partition);
    if (!expired?.statement || !(await sealBefore(query, schema, retention, expired))) return 0;
    const removed = await removeUnlessBusy(query, schema, partition, retention);
    if (removed !== undefined) return removed;
    await pause(retention.pauseMs);
  }
  return 0;
}

/** The number of rows that were removed; undefined if the partition was busy. */
async function removeUnlessBusy(
  query: DirectQuery,
  schema: string,
  partition: string,
  { messagesDays, attemptsDays }: Kept,
): Promise<number | undefined> {
  try {
    const [row] = await query<{ rows: string | null }>(
      'remove partition',
      `SELECT ${schema}.remove_partition($1, $2::int * interval '1 day', $3::int * interval '1 day') AS rows`,
      [partition, messagesDays, attemptsDays],
    );
    return Number(row?.rows ?? 0);
  } catch (error) {
    if (isBusy(error)) return undefined;
    throw error;
  }
}

type ExpiredPartition = { partition: string; day: string; statement: string | null };

/**
 * Seals the attempts of the partition and their removal, before it happens. False: a lock is in the way, and the
 * partition must stay for now.
 */
async function sealBefore(
  query: DirectQuery,
  schema: string,
  { attemptsDays }: Kept,
  { partition, day, statement }: ExpiredPartition,
): Promise<boolean> {
  const isAttached = statement?.startsWith('ALTER') ?? false;
  if (!isAttached || attemptsDays === null || !partition.startsWith('attempts_')) return true;
  return sealExpiry(query, schema, day, attemptsDays);
}

async function expiredPartitions(
  query: DirectQuery,
  schema: string,
  { messagesDays, attemptsDays }: Kept,
  partition: string | null = null,
): Promise<ExpiredPartition[]> {
  return query<ExpiredPartition>(
    'find expired partitions',
    `SELECT partition, to_char(day, 'YYYY-MM-DD') AS day, statement
       FROM ${schema}.expired_partitions($1::int * interval '1 day', $2::int * interval '1 day', $3)`,
    [messagesDays, attemptsDays, partition],
  );
}

async function countRows(query: DirectQuery, schema: string, partition: string): Promise<number> {
  const [row] = await query<{ count: string }>(
    'count rows',
    `SELECT count(*) FROM ${schema}.${quoteIdentifier(partition)}`,
  );
  return Number(row?.count ?? 0);
}

async function runUnlessBusy(query: DirectQuery, statement: string): Promise<boolean> {
  try {
    await query('remove partition', statement);
    return true;
  } catch (error) {
    if (isBusy(error)) return false;
    throw error;
  }
}

/** Lock timeout, statement timeout, or another session removed it first. */
function isBusy(error: unknown): boolean {
  const { code } = error as { code?: string };
  return code === '55P03' || code === '57014' || code === '42P01' || code === '55000';
}

async function pause(ms: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms));
}
