// Runs the crash proof for a given time: npm run fault -- --minutes N --seed S
// It runs in rounds, each a whole proof with its own database and a printed seed, so a failed round can be repeated by
// itself. Exits with 1 as soon as a round fails.

import { parseArgs } from 'node:util';

import { createJiti } from 'jiti';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '1' },
    seed: { type: 'string', default: String(Math.floor(Math.random() * 1_000_000)) },
    help: { type: 'boolean', short: 'h', default: false },
  },
});
const minutes = Number(values.minutes);
const firstSeed = Number(values.seed);
if (values.help || !(minutes > 0) || !Number.isSafeInteger(firstSeed)) {
  console.error('Usage: npm run fault -- [--minutes N] [--seed S]   (N > 0, S a whole number)');
  process.exit(values.help ? 0 : 2);
}

const jiti = createJiti(import.meta.url);
/** @type {typeof import('../test/fault/crash/crash-run.js')} */
const { longRound, runCrashProof } = await jiti.import('../test/fault/crash/crash-run.ts');
/** @type {typeof import('../test/fault/crash/summary.js')} */
const { summarise, violated } = await jiti.import('../test/fault/crash/summary.ts');

const startedMs = performance.now();
const totals = { rounds: 0, messages: 0, kills: 0, databaseCrashes: 0, duplicates: 0, zombies: 0 };
for (let seed = firstSeed; performance.now() - startedMs < minutes * 60_000; seed += 1) {
  console.log(`\nround with --seed ${seed}`);
  const roundMs = performance.now();
  const report = await runCrashProof({
    ...longRound,
    seed,
    log: (line) =>
      console.log(`${((performance.now() - roundMs) / 1000).toFixed(1).padStart(6)} s  ${line}`),
  });
  console.log(`\n${summarise(report)}`);
  if (violated(report).length > 0) process.exit(1);
  totals.rounds += 1;
  totals.messages += report.counts.committed;
  totals.kills += report.evidence.faults.kills.length;
  totals.databaseCrashes += report.evidence.faults.databaseCrashes.length;
  totals.duplicates += report.counts.duplicates;
  totals.zombies += report.counts.zombies;
}
console.log('\nin all', totals);
