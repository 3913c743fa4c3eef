// Runs seeds: several at once, each from its plan to its verdict.

import { setTimeout as delay } from 'node:timers/promises';

import { hurt } from './hurt.js';
import type { Hurt } from './hurt.js';
import { judge } from './judge.js';
import type { Ending, Evidence } from './judge.js';
import { Operator } from './operator.js';
import { planOf } from './plan.js';
import type { Plan } from './plan.js';
import { Reader } from './reader.js';
import { startSurely } from './relays.js';
import type { Produced } from './producer.js';
import type { ProducerLog } from './producers.js';
import type { World } from './world.js';

export type Verdict = {
  seed: number;
  wrong: string[];
  ms: number;
  committed: number;
  /** All arrivals, and distinct ones. */
  received: number;
  arrived: number;
  dead: number;
  /** Arrivals from SQL workers. */
  byWorkers: number;
  /** Faults that hit a relay or worker while it held messages of this seed. */
  faults: Hurt[];
  /** Messages that the reader of the seed sent to the sink. */
  read: number;
  /** Producers that were killed, and how many of them during a transaction that was committed. */
  deaths: number;
  commitsHeard: number;
};

type RunOptions = {
  together?: number;
  /**
   * The seed is stuck after this time without progress. Default 60,000: a half-open relay is silent for 7 s, and after
   * a correction of the clock a busy machine looks for misdated deliveries less often.
   */
  stillMs?: number;
  onVerdict?: (verdict: Verdict) => void;
};

/** Transactions of a producer that a fault adds. */
const furtherTransactions = 3;

/** One committed transaction whose messages all wait for seconds. */
const delayed: Partial<Plan> = {
  transactions: 1,
  rollbackShare: 0,
  delayShare: 1,
  delayMs: [2000, 3000],
  dedupeShare: 0,
};

/** What the judge found wrong, a line each with the seed that repeats it. */
export const failures = (verdicts: Verdict[]): string[] =>
  verdicts.flatMap(({ seed, wrong }) => wrong.map((line) => `--seed ${seed}: ${line}`));

export async function runSeeds(
  world: World,
  seeds: readonly number[],
  { together = 6, stillMs = 60_000, onVerdict }: RunOptions = {},
): Promise<Verdict[]> {
  const waiting = [...seeds];
  const verdicts: Verdict[] = [];
  const work = async () => {
    for (let seed = waiting.shift(); seed !== undefined; seed = waiting.shift()) {
      const verdict = await runSeed(world, seed, stillMs).catch((error: unknown) => {
        throw new Error(`seed ${seed} did not end; ${world.serverCrashes()}`, { cause: error });
      });
      verdicts.push(verdict);
      onVerdict?.(verdict);
    }
  };
  await Promise.all(Array.from({ length: together }, work));
  return verdicts.toSorted((a, b) => a.seed - b.seed);
}

async function runSeed(world: World, seed: number, stillMs: number): Promise<Verdict> {
  const startedMs = performance.now();
  const plan = planOf(seed, world.served);
  world.sink.expect(plan);
  const reader = plan.reader && new Reader(world, plan, plan.reader.batchSize);
  if (reader !== undefined) await startSurely(reader);
  const operator = new Operator(world, plan);
  const operating = plan.operator ? operator.work() : Promise.resolve();
  const produce = (number: number, changes: Partial<Plan> = {}) =>
    world.producers.produce(world, { ...plan, ...changes }, number);
  const further: Promise<ProducerLog>[] = [];
  const produceFurther = (changes: Partial<Plan>) => {
    const log = produce(plan.producers + further.length + 1, changes);
    void Promise.allSettled([log]);
    further.push(log);
    return log;
  };
  const produceMore = () => void produceFurther({ transactions: furtherTransactions });
  const produceDelayed = async () => void (await produceFurther(delayed));
  const hurting = hurt({ world, plan, produceMore, produceDelayed, ...(reader && { reader }) });
  // awaited below, after the producers; without this a failure until then would end the process
  void Promise.allSettled([operating, hurting]);
  const planned = await Promise.all(
    Array.from({ length: plan.producers }, (_, number) => produce(number + 1)),
  );
  const { done: faults, wrong: unhealed } = await hurting;
  const logs = [...planned, ...(await Promise.all(further))];
  operator.rest();
  await operating;
  const produced = logs.flatMap((log) => log.produced);
  const ids = produced.map(({ id }) => id);
  const stuck = await quiet(world, plan, ids, operator, stillMs);
  if (reader !== undefined) stuck.push(...(await readToTheEnd(world, plan, produced, stillMs)));
  await reader?.remove();
  const evidence: Evidence = {
    produced,
    received: world.sink.received(plan),
    read: reader === undefined ? undefined : world.sink.read(plan),
    corrections: world.clock?.corrections ?? [],
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
    wrong: [...judge(evidence), ...unhealed],
    ms: performance.now() - startedMs,
    committed: produced.filter(({ outcome }) => outcome === 'committed').length,
    received: evidence.received.length,
    arrived: new Set(evidence.received.map(({ destination, id }) => `${destination} ${id}`)).size,
    dead: evidence.deadLetters.length,
    byWorkers: evidence.received.filter(({ relay }) => relay.startsWith('worker-')).length,
    faults,
    read: evidence.read?.length ?? 0,
    deaths: logs.reduce((sum, log) => sum + log.deaths, 0),
    commitsHeard: logs.reduce((sum, log) => sum + log.commitsHeard, 0),
  };
}

/** Waits until the reader has sent every committed message to the sink. */
async function readToTheEnd(
  world: World,
  plan: Plan,
  produced: readonly Produced[],
  stillMs: number,
): Promise<string[]> {
  const wanted = produced.filter(({ outcome }) => outcome === 'committed').map(({ id }) => id);
  let before = -1;
  let movedMs = performance.now();
  for (;;) {
    const read = new Set(world.sink.read(plan).map(({ id }) => id));
    const missing = wanted.filter((id) => !read.has(id));
    if (missing.length === 0) return [];
    if (missing.length !== before) movedMs = performance.now();
    before = missing.length;
    if (performance.now() - movedMs > stillMs)
      return [`never quiet: ${missing.length} messages are not read, first ${missing[0]}`];
    await delay(50);
  }
}

type Rest = { waiting: number; blocked: number; held: number; where: string[] };

/** Waits until nothing of the seed is pending or leased, and returns what never ended. */
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
       SELECT d.destination_id, d.key_id, d.available_at, l.available_at AS lane_at, l.lease_id, l.key_id AS lane
         FROM outbox.deliveries d LEFT JOIN outbox.lanes l USING (destination_id, key_id)
        WHERE d.namespace = $1 AND l.blocked_by IS NULL)
     SELECT (SELECT count(*) FROM waiting)::int AS waiting,
            (SELECT count(*) FROM outbox.lanes WHERE namespace = $1 AND blocked_by IS NOT NULL)::int AS blocked,
            (SELECT count(*) FROM outbox.leases WHERE message_ids && $2::uuid[])::int
            + (SELECT count(*) FROM outbox.lanes WHERE namespace = $1 AND lease_id IS NOT NULL)::int AS held,
            ARRAY (SELECT format('at %s key %s is due %s, its lane %s', destination_id, key_id, available_at,
                     CASE WHEN lane IS NULL THEN 'is missing' WHEN lease_id IS NOT NULL THEN 'is leased'
                          ELSE coalesce(lane_at::text, 'is idle') END) FROM waiting LIMIT 5) AS "where"`,
    [plan.namespace, ids],
  );
  return row ?? { waiting: 0, blocked: 0, held: 0, where: [] };
}

async function endingsOf(world: World, plan: Plan): Promise<Ending[]> {
  const endings = await world.query<Ending>(
    `SELECT a.message_id AS id, d.name AS destination, a.state::text AS state,
            floor(extract(epoch FROM a.ended_at) * 1000)::float8 AS "endedMs"
       FROM outbox.attempts a JOIN outbox.messages m ON m.id = a.message_id
       JOIN outbox.destinations d ON d.id = a.destination_id
      WHERE m.namespace = $1 AND a.state IN ('failed', 'discarded')`,
    [plan.namespace],
  );
  const { clock } = world;
  return clock === undefined
    ? endings
    : endings.map((ending) => ({ ...ending, endedMs: clock.trueMs(ending.endedMs) }));
}
