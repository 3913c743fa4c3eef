// The order proof: runs 14 seeds (a hundred with `npm run test:full`), each with producers, operators and failures.
// In every fifth seed relays or SQL workers are killed, or stopped for longer than their leases, or relays are cut off
// by half-open connections; a fault that finds nothing in flight adds work, so that every planned one happens. In every
// other of these the second application deploys a version. In the rest the database's clock runs hours ahead and is
// corrected, and readers of a subscription are killed, over a message and while idle. In every third a producer is killed:
// in the middle of a transaction, with COMMIT on its way, or just after its answer. All of them are processes.
//
// All seeds share one PostgreSQL with a clock that can be moved, three relays of one application, two relays of another
// one, which are of two versions with different routes, two workers that use claim, ack, nack and mark_delivered over a
// plain connection, and a pool of producers. Each seed has its own namespace, and six run at once. A seed varies the
// number of producers, messages and keys (one key, hot and cold keys, with tenants), batches of 1 to 12 with keys in
// random order, topics and so destinations (one for each whenDead policy), unkeyed messages in between, rollbacks,
// savepoints, pauses in open transactions, isolation levels, delays, duplicates, refusals by the receiver, actions of an
// operator, and the faults. `npm run order -- --seed S` repeats a seed. order-guards.test.ts removes more guards.

import { expect, inject, onTestFinished, test } from 'vitest';

import { only } from '../support/only.js';
import { planOf } from './order/plan.js';
import type { Fault } from './order/plan.js';
import { failures, runSeeds } from './order/run.js';
import type { Verdict } from './order/run.js';
import { World } from './order/world.js';
import type { WorldOptions } from './order/world.js';
import { withoutGuard } from './order/worlds.js';

/** A world that ends with its test: its relays would go on polling beside the next one. */
async function start(options?: WorldOptions): Promise<World> {
  const world = await World.start(options);
  onTestFinished(() => world.remove());
  return world;
}

const seedsFrom = (first: number, count: number) =>
  Array.from({ length: count }, (_, n) => first + n);
const sum = (verdicts: Verdict[], count: (verdict: Verdict) => number) =>
  verdicts.reduce((total, verdict) => total + count(verdict), 0);

// Every seed up to 20 that has a fault or a producer that is killed, and three that have none. 30 and 40 are two more
// corrections of the clock: not every one finds misdated deliveries.
const proofSeeds = inject('isFull')
  ? seedsFrom(1, 100)
  : [1, 2, 3, 4, 5, 6, 9, 10, 12, 15, 18, 20, 30, 40];

/** The share of this run in what a hundred seeds must have seen: at least one, so that every check can fail. */
const share = (inHundred: number) => Math.max(1, Math.floor((inHundred * proofSeeds.length) / 100));

type WrongTimes = { enqueuedAhead: number; triedAhead: number; releasedMisdated: number };

/** Deliveries enqueued and tried while the clock ran ahead, and those that relays made due after a correction. */
async function wrongTimes(world: World): Promise<WrongTimes> {
  const rows = await world.query<WrongTimes>(
    `SELECT (SELECT count(*) FROM outbox.messages WHERE created_at > now() + interval '1 hour')::int AS "enqueuedAhead",
            (SELECT count(*) FROM outbox.attempts WHERE ended_at > now() + interval '1 hour')::int AS "triedAhead",
            (SELECT coalesce(sum(count), 0) FROM outbox.operator_actions
              WHERE action = 'release_misdated')::int AS "releasedMisdated"`,
  );
  return only(rows);
}

test('P2 P12 first deliveries of a key are in order, numbered without a gap, and nothing is lost or stuck, over many seeds', async () => {
  const world = await start();
  const verdicts = await runSeeds(world, proofSeeds);
  expect(failures(verdicts)).toEqual([]);

  // a run without faults has proven nothing
  const plans = proofSeeds.map((seed) => planOf(seed, world.served));
  const planned = plans.flatMap((plan) => plan.faults);
  const plannedOf = (wanted: Fault) => planned.filter((fault) => fault === wanted).length;
  for (const fault of ['kill', 'stall', 'half-open', 'clock', 'deploy'] as const)
    expect(plannedOf(fault), fault).toBeGreaterThan(0);
  const faults = verdicts.flatMap((verdict) => verdict.faults);
  const seen = {
    committed: sum(verdicts, (verdict) => verdict.committed),
    repeated: sum(verdicts, (verdict) => verdict.received - verdict.arrived),
    dead: sum(verdicts, (verdict) => verdict.dead),
    kills: faults.filter(({ fault }) => fault === 'kill').length,
    stalls: faults.filter(({ fault }) => fault === 'stall').length,
    halfOpen: faults.filter(({ fault }) => fault === 'half-open').length,
    workersHurt: faults.filter(({ name }) => name.startsWith('worker-')).length,
    byWorkers: sum(verdicts, (verdict) => verdict.byWorkers),
    producersKilled: sum(verdicts, (verdict) => verdict.deaths),
    commitsHeard: sum(verdicts, (verdict) => verdict.commitsHeard),
    timesPassed: world.billing?.timesPassed ?? 0,
    deploys: faults.filter(({ fault }) => fault === 'deploy').length,
    readersKilled: faults.filter(({ fault }) => fault === 'reader').length,
    killedIdle: faults.filter(({ name }) => name.endsWith('idle')).length,
    read: sum(verdicts, (verdict) => verdict.read),
    clockMoved: faults.filter(({ fault }) => fault === 'clock').length,
    ...(await wrongTimes(world)),
  };
  console.log('order proof', seen);
  expect(seen.committed).toBeGreaterThan(share(2500));
  expect(seen.repeated).toBeGreaterThan(share(200));
  expect(seen.dead).toBeGreaterThan(share(50));
  // the clock's fault kills too
  expect(seen.kills).toBeGreaterThanOrEqual(plannedOf('kill'));
  expect(seen.stalls).toBe(plannedOf('stall'));
  expect(seen.workersHurt).toBeGreaterThanOrEqual(share(10));
  expect(seen.byWorkers).toBeGreaterThan(share(500));
  expect(world.workers.flatMap(({ troubles }) => troubles)).toEqual([]);
  expect(seen.halfOpen).toBe(plannedOf('half-open'));
  expect(seen.producersKilled).toBeGreaterThanOrEqual(share(30));
  expect(seen.commitsHeard).toBeGreaterThanOrEqual(share(5));
  expect(seen.producersKilled - seen.commitsHeard).toBeGreaterThanOrEqual(share(5));
  expect(seen.deploys).toBe(plannedOf('deploy'));
  expect(seen.timesPassed).toBeGreaterThanOrEqual(share(2));
  expect(seen.killedIdle).toBeGreaterThanOrEqual(share(10));
  expect(seen.readersKilled - seen.killedIdle).toBe(
    2 * plans.filter(({ reader }) => reader !== undefined).length,
  );
  expect(seen.read).toBeGreaterThan(share(500));
  if (world.clock === undefined) return;
  expect(seen.clockMoved).toBe(plannedOf('clock'));
  expect(seen.enqueuedAhead).toBeGreaterThan(share(100));
  expect(seen.triedAhead).toBeGreaterThan(share(100));
  expect(seen.releasedMisdated).toBeGreaterThan(share(20));
}, 600_000);

// seeds that meet it every time
test.each([
  ['lane stays open', [1, 2, 3, 5]],
  ['dead heads do not block', [5, 15, 26, 30, 32, 36, 39, 41]],
  ['workers get runs', [1, 2, 3, 5]],
] as const)(
  'P2 the same judge fails a run without a guard: %s',
  withoutGuard,
  async (mutation, seeds) => {
    const world = await start({ mutations: [mutation], plain: true });
    // without its guard a seed may never end; the violation has happened long before
    const found = failures(await runSeeds(world, seeds, { stillMs: 3000 }));
    expect(found.join('\n')).toMatch(/before .* of the same key was past/);
  },
);
