// Runs seeds: several at once, each from its plan to its verdict.

import { setTimeout as delay } from 'node:timers/promises';

import { Random } from '../crash/random.js';
import { judge } from './judge.js';
import type { Ending, Evidence } from './judge.js';
import { Operator } from './operator.js';
import { planOf } from './plan.js';
import type { Fault, Plan } from './plan.js';
import { leaseMs } from './relays.js';
import type { World } from './world.js';

export type Verdict = {
  seed: number;
  wrong: string[];
  ms: number;
  committed: number;
  /** Arrivals, and different ones. */
  received: number;
  arrived: number;
  dead: number;
  /** Those that really happened to a relay that held messages of this seed. */
  faults: Fault[];
  /** Producers that were killed, and how many of them over a transaction that was committed. */
  deaths: number;
  commitsHeard: number;
};

type RunOptions = {
  together?: number;
  /** Nothing moves for so long: it never will. Default 10,000. */
  stillMs?: number;
  onVerdict?: (verdict: Verdict) => void;
};

export async function runSeeds(
  world: World,
  seeds: readonly number[],
  { together = 6, stillMs = 10_000, onVerdict }: RunOptions = {},
): Promise<Verdict[]> {
  const waiting = [...seeds];
  const verdicts: Verdict[] = [];
  const work = async () => {
    for (let seed = waiting.shift(); seed !== undefined; seed = waiting.shift()) {
      const verdict = await runSeed(world, seed, stillMs);
      verdicts.push(verdict);
      onVerdict?.(verdict);
    }
  };
  await Promise.all(Array.from({ length: together }, work));
  return verdicts.toSorted((a, b) => a.seed - b.seed);
}

async function runSeed(world: World, seed: number, stillMs: number): Promise<Verdict> {
  const startedMs = performance.now();
  const plan = planOf(seed);
  world.sink.expect(plan);
  const operator = new Operator(world, plan);
  const operating = plan.operator ? operator.work() : Promise.resolve();
  const hurting = hurt(world, plan);
  const logs = await Promise.all(
    Array.from({ length: plan.producers }, (_, number) =>
      world.producers.produce(world, plan, number + 1),
    ),
  );
  const faults = await hurting;
  operator.rest();
  await operating;
  const produced = logs.flatMap((log) => log.produced);
  const ids = produced.map(({ id }) => id);
  const stuck = await quiet(world, plan, ids, operator, stillMs);
  const evidence: Evidence = {
    produced,
    received: world.sink.received(plan),
    endings: await endingsOf(world, plan),
    deadLetters: await world.query(
      `SELECT x.message_id AS id, d.name AS destination, x.reason
         FROM outbox.dead_letters x JOIN outbox.destinations d ON d.id = x.destination_id WHERE x.namespace = $1`,
      [plan.namespace],
    ),
    skips: operator.skips,
    retried: operator.retried,
    refusals: [...logs.flatMap(({ refusals }) => refusals), ...operator.refusals],
    stuck,
  };
  return {
    seed,
    wrong: judge(evidence),
    ms: performance.now() - startedMs,
    committed: produced.filter(({ outcome }) => outcome === 'committed').length,
    received: evidence.received.length,
    arrived: new Set(evidence.received.map(({ destination, id }) => `${destination} ${id}`)).size,
    dead: evidence.deadLetters.length,
    faults,
    deaths: logs.reduce((sum, log) => sum + log.deaths, 0),
    commitsHeard: logs.reduce((sum, log) => sum + log.commitsHeard, 0),
  };
}

/** Kills relays, or stops them beyond their leases, while they hold messages of this seed. */
async function hurt(world: World, plan: Plan): Promise<Fault[]> {
  const random = new Random(plan.seed * 53);
  const done: Fault[] = [];
  for (const fault of plan.faults) {
    const relay = world.unharmed.splice(random.integer(0, world.unharmed.length - 1), 1)[0];
    if (relay === undefined) continue;
    const held = await world.sink.trap(
      (name, items) =>
        name === relay.name && items.some(({ namespace }) => namespace === plan.namespace),
      1000,
    );
    if (held !== undefined) {
      done.push(fault);
      if (fault === 'kill') {
        await relay.kill();
        held.answer();
        await relay.start();
      } else {
        relay.signal('SIGSTOP');
        await delay(leaseMs + random.integer(200, 500));
        held.answer();
        relay.signal('SIGCONT');
      }
    }
    world.unharmed.push(relay);
  }
  return done;
}

type Rest = { waiting: number; blocked: number; held: number; where: string[] };

/** Waits until nothing of the seed waits or is held, and gives what never came to an end. */
async function quiet(
  world: World,
  plan: Plan,
  ids: readonly string[],
  operator: Operator,
  stillMs: number,
): Promise<string[]> {
  let before = '';
  let movedMs = performance.now();
  for (;;) {
    const rest = await restOf(world, plan, ids);
    const now = `${rest.waiting} ${rest.blocked} ${rest.held} ${world.sink.received(plan).length}`;
    if (now !== before) movedMs = performance.now();
    before = now;
    if (rest.waiting + rest.held === 0 && !(await operator.openLanes()) && rest.blocked === 0)
      return [];
    if (performance.now() - movedMs > stillMs)
      return [
        `never quiet: ${rest.waiting} wait, ${rest.blocked} lanes are blocked, ${rest.held} leases are held: ${rest.where.join('; ')}`,
      ];
    await delay(100);
  }
}

async function restOf(world: World, plan: Plan, ids: readonly string[]): Promise<Rest> {
  const [row] = await world.query<Rest>(
    `WITH waiting AS MATERIALIZED (
       SELECT d.destination_id, d.stream_id, d.available_at, l.available_at AS lane_at, l.lease_id, l.stream_id AS lane
         FROM outbox.deliveries d LEFT JOIN outbox.lanes l USING (destination_id, stream_id)
        WHERE d.namespace = $1 AND l.blocked_by IS NULL)
     SELECT (SELECT count(*) FROM waiting)::int AS waiting,
            (SELECT count(*) FROM outbox.lanes WHERE namespace = $1 AND blocked_by IS NOT NULL)::int AS blocked,
            (SELECT count(*) FROM outbox.leases WHERE message_ids && $2::uuid[])::int
            + (SELECT count(*) FROM outbox.lanes WHERE namespace = $1 AND lease_id IS NOT NULL)::int AS held,
            ARRAY (SELECT format('at %s key %s is due %s, its lane %s', destination_id, stream_id, available_at,
                     CASE WHEN lane IS NULL THEN 'is missing' WHEN lease_id IS NOT NULL THEN 'is leased'
                          ELSE coalesce(lane_at::text, 'is idle') END) FROM waiting LIMIT 5) AS "where"`,
    [plan.namespace, ids],
  );
  return row ?? { waiting: 0, blocked: 0, held: 0, where: [] };
}

async function endingsOf(world: World, plan: Plan): Promise<Ending[]> {
  return world.query<Ending>(
    `SELECT a.message_id AS id, d.name AS destination, a.state::text AS state,
            floor(extract(epoch FROM a.ended_at) * 1000)::float8 AS "endedMs"
       FROM outbox.attempts a JOIN outbox.messages m ON m.id = a.message_id
       JOIN outbox.destinations d ON d.id = a.destination_id
      WHERE m.namespace = $1 AND a.state IN ('failed', 'discarded')`,
    [plan.namespace],
  );
}
