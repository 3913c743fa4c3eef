// Judges a cell by the rules of the harness. Chaos: it ran to its end, no replica ended by itself, and messages were
// completed in the recovery phase. Pressure: it ran to its end, and the replicas ended in time when asked. The other
// figures are reported, as there. Lost messages are our own rule.

import { median } from '../harness/rounds.js';
import { ask } from '../harness/server.js';
import type { BenchDatabase } from '../harness/server.js';
import type { Cell } from './cells.js';
import type { Sample } from './replicas.js';

export type Verdict = {
  cell: string;
  suite: Cell['suite'];
  passed: boolean;
  why: string[];
  /** Completed messages a second, the median of the samples of all replicas together. */
  baseline: number;
  judged: number;
  ratio: number;
  /** Chaos: seconds from the last sample of the fault until 90 % of the baseline; null: not reached. */
  recoverySeconds: number | null;
  /** As the harness estimates it, from the rates: enqueued less completed, from the fault to the end. */
  unfinished: number;
  p99Ms: number;
};

/** A rate over all replicas. Their samples are aligned to the clock. */
function totals(
  samples: readonly Sample[],
  metric: string,
  labels: readonly string[],
  sampleMs: number,
): { atMs: number; value: number }[] {
  const byTime = new Map<number, number>();
  for (const { phase, metric: own, atMs, value } of samples) {
    if (own !== metric || !labels.includes(phase)) continue;
    const at = Math.round(atMs / sampleMs) * sampleMs;
    byTime.set(at, (byTime.get(at) ?? 0) + value);
  }
  return [...byTime].toSorted(([a], [b]) => a - b).map(([atMs, value]) => ({ atMs, value }));
}

export function judge(
  cell: Cell,
  samples: readonly Sample[],
  failures: readonly string[],
  sampleMs: number,
): Verdict {
  const rates = (...labels: string[]) => totals(samples, 'completion_rate', labels, sampleMs);
  const middle = (label: string): number => median(rates(label).map(({ value }) => value));
  const labels = cell.phases.map(({ label }) => label);
  const faults = labels.slice(labels.indexOf(cell.baseline) + 1, -1);
  const baseline = middle(cell.baseline);
  const judged = middle(cell.judged);
  const endMs = rates(...faults).at(-1)?.atMs;
  const recovered = rates('recovery').find(({ value }) => value >= 0.9 * baseline);
  const sum = (metric: string): number =>
    samples
      .filter((own) => own.metric === metric && [...faults, 'recovery'].includes(own.phase))
      .reduce((total, { value, seconds }) => total + value * seconds, 0);
  const why = [...failures];
  if (cell.suite === 'chaos' && !(judged > 0)) why.push('nothing was completed after the fault');
  if (!(baseline > 0)) why.push('nothing was completed before the fault');
  return {
    cell: cell.name,
    suite: cell.suite,
    passed: why.length === 0,
    why,
    baseline,
    judged,
    ratio: judged / baseline,
    recoverySeconds:
      endMs === undefined || recovered === undefined ? null : (recovered.atMs - endMs) / 1000,
    unfinished: Math.max(sum('enqueue_rate') - sum('completion_rate'), 0),
    p99Ms: median(
      samples
        .filter(({ metric, phase }) => metric === 'claim_p99_ms' && phase === cell.judged)
        .map(({ value }) => value),
    ),
  };
}

/** Committed messages that are neither delivered nor pending, in flight or dead. */
export async function countLost(client: BenchDatabase['client']): Promise<number> {
  await client.query('SET jit = off');
  return ask<number>(
    client,
    `SELECT count(*)::int AS answer
       FROM outbox.messages m
      WHERE NOT EXISTS (SELECT FROM outbox.attempts a WHERE a.message_id = m.id AND a.state = 'dispatched')
        AND NOT EXISTS (SELECT FROM outbox.deliveries d WHERE d.message_id = m.id)
        AND NOT EXISTS (SELECT FROM outbox.dead_letters d WHERE d.message_id = m.id)
        AND m.id NOT IN (SELECT unnest(message_ids) FROM outbox.leases)`,
  );
}
