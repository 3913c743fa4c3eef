// Rollouts in the database: the share of the traffic that Waybill sends, and the comparisons of shadows.

import pg from 'pg';

import type { Database } from '../../database/connection.js';

export type RolloutReport = {
  name: string;
  destination: string;
  percent: number;
  shadow: boolean;
  changedAt: string;
  changedBy: string | null;
  /** Whether a route of the configuration uses the rollout. */
  routed: boolean;
};

export type Rendered = {
  reference: string;
  messageId: string;
  bodyText: string;
  refused: string | null;
};

export const verdicts = ['matched', 'different', 'missing', 'extra', 'waiting'] as const;
export type Verdict = (typeof verdicts)[number];

export type Comparison = {
  verdict: Verdict;
  reference: string;
  messageId: string | null;
  firstAt: string;
  rendered: unknown;
  refused: string | null;
  sent: unknown;
};

export type ComparisonFilter = {
  /** Only comparisons since this time. Default: everything that is kept. */
  since?: string | null;
  /** Paths that may differ, such as `timestamp` or `data.sent_at`. */
  ignore?: readonly string[];
};

const lockNotAvailable = '55P03';

export async function listRollouts(database: Database): Promise<RolloutReport[]> {
  return database.query<RolloutReport>(
    'list rollouts',
    `SELECT o.name, d.name AS destination, o.percent::float8 AS percent, o.shadow,
            to_json(o.changed_at) #>> '{}' AS "changedAt", o.changed_by AS "changedBy",
            EXISTS (SELECT FROM ${database.schema}.routes r WHERE r.split_by = o.name) AS routed
       FROM ${database.schema}.rollouts o JOIN ${database.schema}.destinations d ON d.id = o.destination_id
      ORDER BY o.name`,
  );
}

/**
 * Waits in short steps for transactions that have decided under the old share. Producers that decide meanwhile wait for
 * a quarter of a second at most.
 */
export async function setRollout(
  database: Database,
  rollout: string,
  target: { percent: number; shadow: boolean },
  actor: string,
  { maxWaitMs = 30_000, pauseMs = 500 } = {},
): Promise<void> {
  const untilMs = performance.now() + maxWaitMs;
  for (;;) {
    try {
      await database.query('set rollout', `SELECT ${database.schema}.set_rollout($1, $2, $3, $4)`, [
        rollout,
        target.percent,
        target.shadow,
        actor,
      ]);
      return;
    } catch (error) {
      const busy = error instanceof pg.DatabaseError && error.code === lockNotAvailable;
      if (!busy || performance.now() > untilMs) throw error;
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }
}

export async function recordShadow(
  database: Database,
  rollout: string,
  rendered: readonly Rendered[],
): Promise<void> {
  const items = rendered.map(
    ({ reference, messageId, bodyText, refused }) =>
      `{"reference":${JSON.stringify(reference)},"messageId":"${messageId}","refused":${JSON.stringify(refused)},"body":${bodyText}}`,
  );
  await database.query(
    'record shadow',
    `SELECT ${database.schema}.record_shadow($1, $2::text::jsonb)`,
    [rollout, `[${items.join(',')}]`],
  );
}

export async function reportSent(
  database: Database,
  rollout: string,
  reference: string,
  bodyText: string,
): Promise<void> {
  await database.query(
    'report sent',
    `SELECT ${database.schema}.report_sent($1, $2, $3::text::jsonb)`,
    [rollout, reference, bodyText],
  );
}

/** The time since which there are at most this many comparisons; null if there are no more in total. */
export async function newestComparisonsSince(
  database: Database,
  rollout: string,
  atMost: number,
): Promise<Date | null> {
  const [row] = await database.query<{ since: Date }>(
    'find comparisons',
    // one more, because comparisons of the same moment are included or left out together
    `SELECT c.first_at + interval '1 ms' AS since FROM ${database.schema}.shadow_comparisons c
      WHERE c.rollout = $1 ORDER BY c.first_at DESC OFFSET $2 LIMIT 1`,
    [rollout, atMost],
  );
  return row?.since ?? null;
}

export async function countVerdicts(
  database: Database,
  rollout: string,
  { since = null, ignore = [] }: ComparisonFilter = {},
): Promise<Record<Verdict, number>> {
  const rows = await database.query<{ verdict: Verdict; count: string }>(
    'report rollout',
    `SELECT verdict, count FROM ${database.schema}.rollout_report($1, $2, $3)`,
    [rollout, since, ignore],
  );
  return Object.fromEntries(rows.map((row) => [row.verdict, Number(row.count)])) as Record<
    Verdict,
    number
  >;
}

/** The newest comparisons that did not match: `different`, `missing` or `extra`. */
export async function listComparisons(
  database: Database,
  rollout: string,
  { since = null, ignore = [] }: ComparisonFilter = {},
  limit = 10,
): Promise<Comparison[]> {
  return database.query<Comparison>(
    'list comparisons',
    `SELECT verdict, reference, message_id AS "messageId", to_json(first_at) #>> '{}' AS "firstAt", rendered, refused, sent
       FROM ${database.schema}.compare_shadow($1, $2, $3)
      WHERE verdict IN ('different', 'missing', 'extra') ORDER BY first_at DESC, reference LIMIT $4`,
    [rollout, since, ignore, limit],
  );
}
