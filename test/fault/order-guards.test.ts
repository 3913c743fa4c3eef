// The judge of the order proof fails runs without the guards against other owners, other versions, wrong clocks and idle
// deaths. Only `npm run test:full` runs this file: these worlds wait for minutes. order-proof.test.ts removes the guards
// of the order itself in every run.

import { describe, expect, test } from 'vitest';

import { failures, runSeeds } from './order/run.js';
import { testWorlds, withoutGuard } from './order/worlds.js';

const start = testWorlds();

// One world for several guards: the judge reports each with another sentence. A guard whose removal leaves messages
// unrouted has its own world, or its seed comes first: nothing else can happen to those messages. The worlds wait more
// than they work, so they run at the same time.
describe.concurrent('the same judge fails a run without the guards', () => {
  test('P2 P12 against other owners', withoutGuard, async () => {
    const world = await start({ mutations: ['owners remove routes of others'] });
    const wrong = failures(await runSeeds(world, [5, 15], { stillMs: 3000 })).join('\n');
    expect(wrong).toMatch(/is lost: neither taken/);
  });

  test('P2 P12 against a wrong clock and idle deaths', withoutGuard, async () => {
    const world = await start({ mutations: ['misdated deliveries stay', 'idle deaths count'] });
    const wrong = failures(await runSeeds(world, [10, 20, 30], { stillMs: 3000 })).join('\n');
    expect(wrong).toMatch(/was parked, and its reader never failed/);
    if (world.clock === undefined) return;
    expect(wrong).toMatch(/never quiet: \d+ wait/);
  });

  test(
    'P2 P12 against other versions, and against leases of a wrong clock',
    withoutGuard,
    async () => {
      const world = await start({
        mutations: ['versions remove routes of others', 'leases of a wrong clock stay'],
      });
      // the deploy first: time passes only for relays that have not met a wrong clock
      const deployed = failures(await runSeeds(world, [5], { stillMs: 3000 })).join('\n');
      expect(deployed).toMatch(/is lost: neither taken at billing/);
      if (world.clock === undefined) return;
      // one after the other: the next move of the clock would end the lease
      const verdicts = await runSeeds(world, [40, 10], { together: 1, stillMs: 3000 });
      const wrong = failures(verdicts).join('\n');
      expect(wrong).toMatch(/never quiet: .* [1-9]\d* leases are held/);
    },
  );
});
