// The crash proof of every test run: short, with a fixed seed. `npm run fault` runs longer ones. The second test
// removes the fence from the database and expects the same judge to fail it.

import { expect, test } from 'vitest';

import { runCrashProof, shortRun } from './crash/crash-run.js';
import { phases } from './crash/faults.js';
import { summarise, violated } from './crash/summary.js';

const seed = 20_261;

test('no message is lost, invented or settled twice while relays are killed in every phase and PostgreSQL crashes (P12)', async () => {
  const report = await runCrashProof({ ...shortRun, seed });
  console.log(summarise(report));

  expect(violated(report), summarise(report)).toEqual([]);
  const { kills, databaseCrashes } = report.evidence.faults;
  expect(report.counts.committed).toBeGreaterThanOrEqual(50_000);
  expect(kills.length).toBeGreaterThanOrEqual(20);
  for (const phase of phases)
    expect(kills.filter((kill) => kill.phase === phase).length, phase).toBeGreaterThanOrEqual(3);
  expect(databaseCrashes.length).toBeGreaterThanOrEqual(2);
  expect(report.counts.duplicates).toBeGreaterThan(0);
  expect(report.counts.zombies).toBeGreaterThan(0);
}, 240_000);

test('without the fence the same judge finds that late settles changed the record', async () => {
  const report = await runCrashProof({
    ...shortRun,
    seed,
    messages: 500,
    relays: 2,
    producers: 1,
    kills: 0,
    killsAtAnyMoment: 0,
    databaseCrashes: 0,
    silences: 0,
    cuts: 0,
    lateSettles: 2,
    fence: false,
    quietBoundMs: 10_000,
  });

  const found = violated(report).map((invariant) => invariant.split(' ')[0]);
  expect(found, summarise(report)).toEqual(expect.arrayContaining(['I1', 'I6', 'I7']));
}, 120_000);
