// Removes expired partitions, after sealing them if they hold attempts, and thins those of which some messages are
// still needed. The owner of the tables detaches and drops partitions; for any other login, and for thinning, a function
// of the owner does it. No other session waits long behind it: a busy partition is left for the next run.

import { delay } from '../../core/delay.js';
import { quoteIdentifier } from '../../core/identifier.js';
import type { Database, DirectQuery } from '../../database/connection.js';
import { sealExpiry } from '../../features/audit/database.js';

type ExpiryOptions = { messagesDays: number | null; attemptsDays: number | null; pauseMs: number };

/** Removed rows, and how many partitions were thinned. */
export type Removed = { rows: number; thinned: number };

/**
 * Detaches expired partitions concurrently and drops them, or thins them; returns how many rows they lost. A partition
 * that cannot be locked within the lock timeout is left for the next run, which also finishes a removal that was
 * interrupted.
 */
export async function dropExpiredPartitions(
  database: Database,
  retention: ExpiryOptions,
): Promise<Removed> {
  const { schema } = database;
  return database.directly('waybill retention', async (query) => {
    await query('set lock timeout', "SET lock_timeout = '2s'");
    const remove = (await ownsTables(query, schema)) ? dropPartition : removePartition;
    const total = { rows: 0, thinned: 0 };
    // attempts stay while the messages of their day do, and identities while the attempts do
    for (const table of ['messages_', 'attempts_', 'message_identities_'])
      for (const { partition, statement } of await expiredPartitions(query, schema, retention)) {
        if (statement === null || !partition.startsWith(table)) continue;
        const removed = await remove(query, schema, partition, retention);
        total.rows += removed.rows;
        total.thinned += removed.thinned;
      }
    return total;
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

const nothing: Removed = { rows: 0, thinned: 0 };

/** How often to try a partition that another session has locked. */
const busyAttempts = 10;
/** Each step of thinning copies a thousand rows, at most a hundred thousand in all. */
const mostSteps = 200;

/** For the owner of the tables: runs one statement after the other, until the partition is dropped or must stay. */
async function dropPartition(
  query: DirectQuery,
  schema: string,
  partition: string,
  retention: ExpiryOptions,
): Promise<Removed> {
  for (let before = ''; ;) {
    // asked again before each step: meanwhile a delivery may refer to a message in the partition
    const [expired] = await expiredPartitions(query, schema, retention, partition);
    const statement = expired?.statement ?? '';
    if (expired === undefined || statement === '' || statement === before) return nothing;
    if (isThinning(expired)) return removePartition(query, schema, partition, retention);
    if (!(await sealBefore(query, schema, retention, expired))) return nothing;
    const isLast = statement.startsWith('DROP');
    const isCopy = partition.endsWith('_kept');
    const rows = isLast && !isCopy ? await countRows(query, schema, partition) : 0;
    if (!(await runUnlessBusy(query, statement))) return nothing;
    await delay(retention.pauseMs);
    if (isLast) return { rows, thinned: 0 };
    before = statement;
  }
}

/**
 * A function of the owner removes or thins a partition, step by step. It needs an exclusive lock and waits for it only
 * briefly, so that no queue forms behind it; hence the repeated tries.
 */
async function removePartition(
  query: DirectQuery,
  schema: string,
  partition: string,
  retention: ExpiryOptions,
): Promise<Removed> {
  let [rows, thinned, busy] = [0, 0, 0];
  for (let step = 0; step < mostSteps && busy < busyAttempts; step += 1) {
    const [expired] = await expiredPartitions(query, schema, retention, partition);
    if (!expired?.statement || !(await sealBefore(query, schema, retention, expired))) break;
    const removed = await removeUnlessBusy(query, schema, partition, retention);
    if (removed === undefined) busy += 1;
    rows += removed ?? 0;
    if (isThinning(expired) && (removed ?? 0) > 0) thinned += 1;
    await delay(retention.pauseMs);
  }
  return { rows, thinned };
}

function isThinning({ statement }: ExpiredPartition): boolean {
  return statement?.includes('.thin_partition(') ?? false;
}

/** The number of rows that were removed; undefined if the partition was busy. */
async function removeUnlessBusy(
  query: DirectQuery,
  schema: string,
  partition: string,
  { messagesDays, attemptsDays }: ExpiryOptions,
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
  { attemptsDays }: ExpiryOptions,
  expired: ExpiredPartition,
): Promise<boolean> {
  const { partition, day, statement } = expired;
  const isAttached = statement?.startsWith('ALTER') || isThinning(expired);
  if (!isAttached || attemptsDays === null || !partition.startsWith('attempts_')) return true;
  return sealExpiry(query, schema, day, attemptsDays);
}

async function expiredPartitions(
  query: DirectQuery,
  schema: string,
  { messagesDays, attemptsDays }: ExpiryOptions,
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
  try {
    const [row] = await query<{ count: string }>(
      'count rows',
      `SELECT count(*) FROM ${schema}.${quoteIdentifier(partition)}`,
    );
    return Number(row?.count ?? 0);
  } catch (error) {
    if (isBusy(error)) return 0;
    throw error;
  }
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

/** Lock timeout, statement timeout, deadlock, or another session removed it first. */
function isBusy(error: unknown): boolean {
  const { code } = error as { code?: string };
  return ['55P03', '57014', '40P01', '42P01', '55000'].includes(code ?? '');
}
