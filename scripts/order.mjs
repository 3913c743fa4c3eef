// Runs the order proof by itself: npm run order -- [--seed S] [--seeds N] [--together T] [--mutation NAME]
// Without --seed it begins at a random seed. Each seed is printed with its verdict, so a failed one can be repeated by
// itself. Exits with 1 if any seed failed.

import { parseArgs } from 'node:util';

import { createJiti } from 'jiti';

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    seeds: { type: 'string' },
    together: { type: 'string', default: '6' },
    mutation: { type: 'string' },
    help: { type: 'boolean', short: 'h', default: false },
  },
});
const first = Number(values.seed ?? Math.floor(Math.random() * 1_000_000));
const count = Number(values.seeds ?? (values.seed === undefined ? 100 : 1));
const together = Number(values.together);
if (values.help || ![first, count, together].every(Number.isSafeInteger)) {
  console.error('Usage: npm run order -- [--seed S] [--seeds N] [--together T] [--mutation NAME]');
  process.exit(values.help ? 0 : 2);
}

const jiti = createJiti(import.meta.url);
/** @type {typeof import('../test/fault/order/world.js')} */
const { World } = await jiti.import('../test/fault/order/world.ts');
/** @type {typeof import('../test/fault/order/run.js')} */
const { runSeeds } = await jiti.import('../test/fault/order/run.ts');

const world = await World.start({
  mutations: values.mutation === undefined ? [] : [values.mutation],
});
const startedMs = performance.now();
try {
  const verdicts = await runSeeds(
    world,
    Array.from({ length: count }, (_, n) => first + n),
    {
      together,
      onVerdict: ({ seed, wrong, ms, committed, received, dead, faults, deaths }) => {
        console.log(
          `${wrong.length === 0 ? 'ok  ' : 'FAIL'} --seed ${seed}  ${Math.round(ms)} ms, ${committed} committed, ${received} received, ${dead} dead, ${deaths} producers killed ${faults.map(({ fault, name }) => `${fault} ${name}`).join(', ')}`,
        );
        for (const line of wrong.slice(0, 8)) console.log(`       ${line}`);
      },
    },
  );
  const failed = verdicts.filter(({ wrong }) => wrong.length > 0);
  console.log(
    `${verdicts.length} seeds in ${((performance.now() - startedMs) / 1000).toFixed(1)} s, ${failed.length} failed`,
  );
  if (failed.length > 0) process.exitCode = 1;
} finally {
  await world.remove();
}
