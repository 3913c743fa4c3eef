// Retention: its options, and `prune`, which drops expired partitions and deletes rows that have outlived their
// retention. It works in short transactions with pauses between them, so other sessions do not wait behind it.
// daily-maintenance.ts says when it runs.

import { delay } from '../../core/delay.js';
import { checkOptions, integer, nullable, refuse, text } from '../../core/options.js';
import type { Database } from '../../database/connection.js';
import { dropExpiredPartitions } from './expired-partitions.js';
import type { Removed } from './expired-partitions.js';
import { featureRetention } from '../../features/in-relay.js';
import { forgetKeys, forgetLanes, forgetPositions } from '../../features/keys/forget-keys.js';

export type Retention = {
  /** Days for which delivered messages are kept; null: for ever. Default 7. */
  messagesDays?: number | null;
  /** Days for which the record of attempts is kept; never fewer than messages are. Default 30. */
  attemptsDays?: number | null;
  /** Days after which dead letters are discarded. Default null: they wait for an operator. */
  deadLettersDays?: number | null;
  /** Days for which dedupe keys are remembered, at least 30; longer while a delivery of their message is still open. Default 30. */
  dedupeKeysDays?: number | null;
  /** Days for which the inbox remembers what was processed, at least 30. Default 30. */
  inboxDays?: number | null;
  /** Days without a message after which a key is forgotten, if no message or delivery of it is left. At least 30, and never fewer than messages are kept. A forgotten key begins again at 1. Default null: for ever. */
  keysDays?: number | null;
  /** The time of day (UTC) at which retention runs. Default 02:00. */
  at?: string;
  /** Rows in one transaction. Default 1,000. */
  batchSize?: number;
  /** The pause between two transactions. Default 100. */
  pauseMs?: number;
};

export type ResolvedRetention = ReturnType<typeof resolveRetention>;

export function resolveRetention(retention: Retention = {}) {
  const days = (min: number, fallback: number) =>
    nullable(integer({ min, max: 36_500, default: fallback }));
  const checked = checkOptions('retention', retention, {
    messagesDays: days(1, 7),
    // at least as long as messages: every attempt of a message must be on record
    attemptsDays: (name: string, value: unknown) =>
      value === undefined ? undefined : days(1, 30)(name, value),
    deadLettersDays: (name: string, value: unknown) =>
      value === undefined ? null : days(1, 1)(name, value),
    dedupeKeysDays: days(30, 30),
    inboxDays: days(30, 30),
    // as for dedupe keys: a late producer must continue the same numbering
    keysDays: (name: string, value: unknown) =>
      value === undefined ? null : days(30, 30)(name, value),
    at: text({
      default: '02:00',
      pattern: /^([01]\d|2[0-3]):[0-5]\d$/,
      meaning: 'a time of day such as 02:00',
    }),
    batchSize: integer({ min: 1, max: 100_000, default: 1000 }),
    pauseMs: integer({ min: 0, max: 60_000, default: 100 }),
  });
  const { messagesDays } = checked;
  const attemptsDays =
    checked.attemptsDays === undefined
      ? messagesDays === null
        ? null
        : Math.max(30, messagesDays)
      : checked.attemptsDays;
  if (attemptsDays !== null && (messagesDays === null || attemptsDays < messagesDays)) {
    refuse(
      'retention.attemptsDays',
      attemptsDays,
      `give at least retention.messagesDays (${messagesDays ?? 'for ever'}), or null for ever`,
    );
  }
  const { keysDays } = checked;
  if (keysDays !== null && (messagesDays === null || keysDays < messagesDays)) {
    refuse(
      'retention.keysDays',
      keysDays,
      `give at least retention.messagesDays (${messagesDays ?? 'for ever'}), or null for ever`,
    );
  }
  return { ...checked, attemptsDays };
}

/** `thinned`: the number of partitions of which only the rows stay that are still needed; absent if there are none. */
export type Pruned = { what: string; rows: number; ms: number; thinned?: number };

/** Removes rows and partitions that have outlived their retention; reports how many and how long it took. */
export async function prune(
  database: Database,
  retention: ResolvedRetention,
  onPruned: (pruned: Pruned) => void = () => {},
): Promise<Pruned[]> {
  const report: Pruned[] = [];
  const run = async (what: string, work: () => Promise<number | Removed>) => {
    const startedMs = performance.now();
    const done = await work();
    const { rows, thinned } = typeof done === 'number' ? { rows: done, thinned: 0 } : done;
    const ms = Math.round(performance.now() - startedMs);
    const pruned = { what, rows, ms, ...(thinned > 0 && { thinned }) };
    report.push(pruned);
    onPruned(pruned);
  };
  const { deadLettersDays, dedupeKeysDays, inboxDays, keysDays } = retention;
  if (deadLettersDays !== null)
    await run('dead letters', () =>
      pruneRows(database, retention, 'prune_dead_letters', deadLettersDays),
    );
  if (dedupeKeysDays !== null)
    await run('dedupe keys', () => pruneDedupeKeys(database, retention, dedupeKeysDays));
  if (inboxDays !== null)
    await run('inbox', () => pruneRows(database, retention, 'prune_inbox', inboxDays));
  for (const { what, prune: pruneFunction, days } of featureRetention)
    await run(what, () => pruneRows(database, retention, pruneFunction, days));
  await run('partitions', () => dropExpiredPartitions(database, retention));
  // after the partitions: a key is kept while the log holds a message of it
  if (keysDays !== null) {
    await run('keys', () => forgetKeys(database, retention, keysDays));
    await run('lanes', () => forgetLanes(database, retention));
    await run('inbox positions', () => forgetPositions(database, retention, keysDays));
  }
  await run('statistics', () => pruneStatistics(database));
  return report;
}

async function pruneRows(
  database: Database,
  retention: ResolvedRetention,
  pruneFunction: string,
  days: number,
): Promise<number> {
  return inBatches(retention, async () => {
    const [row] = await database.query<{ pruned: number }>(
      pruneFunction,
      `SELECT ${database.schema}.${pruneFunction}($1::int * interval '1 day', $2) AS pruned`,
      [days, retention.batchSize],
    );
    return row?.pruned ?? 0;
  });
}

async function pruneDedupeKeys(
  database: Database,
  retention: ResolvedRetention,
  days: number,
): Promise<number> {
  let after: string[] | null = null;
  return inBatches(retention, async () => {
    const rows: { pruned: number; last: string[] | null }[] = await database.query(
      'prune dedupe keys',
      `SELECT pruned, last FROM ${database.schema}.prune_dedupe_keys($1::int * interval '1 day', $2, $3)`,
      [days, retention.batchSize, after],
    );
    after = rows[0]?.last ?? null;
    return rows[0]?.pruned ?? 0;
  });
}

/** In one statement: there are only a few thousand rows a day. */
async function pruneStatistics(database: Database): Promise<number> {
  const [row] = await database.query<{ pruned: string }>(
    'prune statistics',
    `SELECT ${database.schema}.prune_statistics() AS pruned`,
  );
  return Number(row?.pruned ?? 0);
}

async function inBatches(
  { pauseMs, batchSize }: ResolvedRetention,
  pruneBatch: () => Promise<number>,
): Promise<number> {
  for (let total = 0; ;) {
    const rows = await pruneBatch();
    total += rows;
    if (rows < batchSize) return total;
    await delay(pauseMs);
  }
}
