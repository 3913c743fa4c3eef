// The bench hardbyte judges its cells by the rules of the harness it comes from, here on samples made by hand.

import path from 'node:path';

import { describe, expect, it } from 'vitest';

import { cells } from '../../bench/hardbyte/cells.js';
import type { Cell } from '../../bench/hardbyte/cells.js';
import { judge } from '../../bench/hardbyte/judge.js';
import type { Sample } from '../../bench/hardbyte/replicas.js';

const { openLatencies } = (await import(path.resolve('bench/hardbyte/latencies.mjs'))) as {
  openLatencies: (windowMs: number) => {
    add(ms: number): void;
    percentile(percent: number): number;
  };
};

function cellOf(wanted: string): Cell {
  const cell = cells.find(({ name }) => name === wanted);
  if (cell === undefined) throw new Error(`there is no cell ${wanted}`);
  return cell;
}

/** Two samples of each phase and replica, five seconds apart. */
function samplesOf(cell: Cell, rates: Record<string, number>): Sample[] {
  return cell.phases.flatMap(({ label }, index) =>
    [0, 5].flatMap((seconds) =>
      Array.from({ length: cell.replicas }, (_, instance) => ({
        phase: label,
        // a replica prints a little after the boundary
        atMs: 1_000_000_000_000 + index * 10_000 + seconds * 1000 + instance * 7,
        instance,
        metric: 'completion_rate',
        value: rates[label] ?? 300,
        seconds: 5,
      })),
    ),
  );
}

describe('a cell of chaos', () => {
  const cell = cellOf('repeated_kills');

  it('passes when messages are completed after the fault, with the rates of all replicas together', () => {
    const verdict = judge(cell, samplesOf(cell, { fault: 100 }), [], 5000);
    expect(verdict).toMatchObject({ passed: true, baseline: 600, judged: 600, ratio: 1 });
    expect(verdict.recoverySeconds).toBe(5);
  });

  it('fails when nothing is completed after the fault', () => {
    const verdict = judge(cell, samplesOf(cell, { recovery: 0 }), [], 5000);
    expect(verdict).toMatchObject({ passed: false, recoverySeconds: null });
  });

  it('fails when a replica ended by itself', () => {
    expect(judge(cell, samplesOf(cell, {}), ['replica 1 ended with 1'], 5000).passed).toBe(false);
  });
});

describe('a cell of pressure', () => {
  const cell = cellOf('idle_in_tx');

  it('passes however slow it was, and compares the stress with the time before', () => {
    const verdict = judge(cell, samplesOf(cell, { stress: 30 }), [], 5000);
    expect(verdict).toMatchObject({ passed: true, ratio: 0.1 });
  });

  it('fails when a replica did not end in time', () => {
    expect(judge(cell, samplesOf(cell, {}), ['replica 0 did not end'], 5000).passed).toBe(false);
  });
});

it('the adapter knows percentiles within one percent, and 0 without samples', () => {
  const latencies = openLatencies(30_000);
  expect(latencies.percentile(99)).toBe(0);
  for (let ms = 1; ms <= 1000; ms += 1) latencies.add(ms);
  expect(latencies.percentile(50)).toBeCloseTo(500, -1);
  expect(latencies.percentile(99) / 990).toBeCloseTo(1, 1);
});
