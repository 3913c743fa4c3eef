// The faults of a seed: kills relays, workers and readers, stops them beyond their leases, silences the connections of
// relays, moves the database's clock ahead and corrects it, and deploys the second application, all while messages of
// the seed are in flight.

import { setTimeout as delay } from 'node:timers/promises';

import { waitFor } from '../../support/wait.js';
import { Random } from '../crash/random.js';
import type { Fault, Plan } from './plan.js';
import type { Reader } from './reader.js';
import { leaseMs, resumeBoundMs, startSurely } from './relays.js';
import type { RelayProcess } from './relays.js';
import type { Held, Item } from './sink.js';
import type { World } from './world.js';

/** A fault, and the process that it hit while it held messages of the seed. */
export type Hurt = { fault: Fault; name: string };

/**
 * A seed that is being hurt. `produceMore` starts one more producer, for a fault that finds nothing in flight;
 * `produceDelayed` commits messages that are due a few seconds later.
 */
export type Victim = {
  world: World;
  plan: Plan;
  reader?: Reader;
  produceMore: () => void;
  produceDelayed: () => Promise<void>;
};

const hourSeconds = 3600;

export async function hurt(victim: Victim): Promise<{ done: Hurt[]; wrong: string[] }> {
  const { world, plan, reader } = victim;
  const random = new Random(plan.seed * 53);
  const wrong: string[] = [];
  const readersKilled = killReaders(world, plan, reader);
  const done: Hurt[] = [];
  if (plan.faults.length > 0)
    await waitFor(() => world.sink.received(plan).length > 0, {
      what: `the first message of seed ${plan.seed}`,
      timeoutMs: 60_000,
    });
  for (const fault of plan.faults) {
    if (fault === 'clock') done.push(...(await moveClock(victim)));
    else if (fault === 'deploy')
      done.push(...((await world.billing?.deploy(victim, random)) ?? []));
    else if (fault !== 'reader') await hurtOne(victim, random, fault, done, wrong);
  }
  return { done: [...(await readersKilled), ...done], wrong };
}

/** Waits, by default up to a second, for a request of the process with a message of the seed, and holds it. */
export function holding(
  world: World,
  plan: Plan,
  one: { name: string },
  timeoutMs = 1000,
): Promise<Held | undefined> {
  return world.sink.trap((name, items) => name === one.name && areOf(plan, items), timeoutMs);
}

function areOf(plan: Plan, items: readonly Item[]): boolean {
  return items.some(({ namespace }) => namespace === plan.namespace);
}

/** The first attempt waits for one process, later ones for any, with new work. */
const mostAttempts = 6;

/** A process that fits, taken from the unharmed ones while it holds a message of the seed. */
async function takeOne(
  { world, plan, produceMore }: Victim,
  random: Random,
  fits: (one: RelayProcess) => boolean,
): Promise<{ one: RelayProcess; held: Held } | undefined> {
  const { unharmed, sink } = world;
  for (let attempt = 1; attempt <= mostAttempts; attempt += 1) {
    await waitFor(() => unharmed.some(fits), { what: 'an unharmed process', timeoutMs: 60_000 });
    const fit = unharmed.filter(fits);
    const chosen = attempt === 1 ? fit[random.integer(0, fit.length - 1)] : undefined;
    // other processes got all messages, or the work of the seed has ended
    if (attempt > 1) produceMore();
    const named = (name: string) =>
      unharmed.find((one) => one.name === name && fits(one) && (chosen ?? one) === one);
    const held = await sink.trap(
      (name, items) => named(name) !== undefined && areOf(plan, items),
      attempt === 1 ? 1000 : 5000,
    );
    const one = held && named(held.relay);
    // another seed may have taken it at the same moment
    if (held === undefined || one === undefined) held?.answer();
    else {
      unharmed.splice(unharmed.indexOf(one), 1);
      return { one, held };
    }
  }
  return undefined;
}

async function hurtOne(
  victim: Victim,
  random: Random,
  fault: 'kill' | 'stall' | 'half-open',
  done: Hurt[],
  wrong: string[],
): Promise<void> {
  const { world, plan } = victim;
  const taken = await takeOne(victim, random, (one) => {
    const isWorker = world.workers.includes(one);
    // a worker's plain connection has no deadline
    return fault === 'half-open' ? !isWorker : isWorker || !plan.hurtsWorkers;
  });
  if (taken === undefined) return;
  const { one: relay, held } = taken;
  done.push({ fault, name: relay.name });
  if (fault === 'kill') {
    await relay.kill();
    held.answer();
    await startSurely(relay);
  } else if (fault === 'half-open') {
    const resumed = relay.silence();
    held.answer();
    const ms = (await resumed) ?? Number.POSITIVE_INFINITY;
    if (ms > resumeBoundMs) wrong.push(`${relay.name}, half-open, claimed again after ${ms} ms`);
  } else {
    relay.signal('SIGSTOP');
    await delay(leaseMs + random.integer(200, 500));
    held.answer();
    relay.signal('SIGCONT');
  }
  world.unharmed.push(relay);
}

/**
 * Moves the clock hours ahead while the seed runs, and corrects it. In half of the cases a relay or worker dies just
 * before: its lease then ends hours after the correction. The reader is busy during the correction, so messages from
 * before and after it wait for it.
 */
async function moveClock(victim: Victim): Promise<Hurt[]> {
  const { world, plan, reader, produceMore, produceDelayed } = victim;
  const { clock } = world;
  // its own generator: how much the other faults draw depends on the timing
  const random = new Random(plan.seed * 59);
  const ahead = random.pick([2, 6, 20]) * hourSeconds;
  const [pauseMs, kills] = [random.integer(2000, 2500), random.chance(0.5)];
  if (clock === undefined) return [];
  // another seed may be moving it
  await waitFor(() => clock.aheadMs === 0, { what: 'the clock', timeoutMs: 60_000 });
  const done: Hurt[] = [{ fault: 'clock', name: `${ahead} s` }];
  clock.setAhead(ahead);
  produceMore();
  const held = reader && (await holding(world, plan, reader));
  await delay(pauseMs);
  const killed = kills ? await takeOne(victim, random, () => true) : undefined;
  // whatever else was enqueued ahead may have arrived by now; these still wait at the correction
  await produceDelayed();
  const ended = killed?.one.kill();
  // at once: the lease must not expire before the correction
  clock.setAhead(0);
  produceMore();
  if (killed !== undefined) {
    done.push({ fault: 'kill', name: killed.one.name });
    await ended;
    killed.held.answer();
    await startSurely(killed.one);
    world.unharmed.push(killed.one);
  }
  await delay(pauseMs);
  held?.answer();
  return done;
}

/**
 * Kills a reader during a batch, then the next one, which reads one message at a time, during its first message, and
 * then one or two that hold the cursor without a batch. The idle deaths must not count against the message: it has two
 * tries.
 */
async function killReaders(world: World, plan: Plan, reader: Reader | undefined): Promise<Hurt[]> {
  const done: Hurt[] = [];
  if (reader === undefined) return done;
  for (let death = 0; death < 2; death += 1) {
    const held = await holding(world, plan, reader, 60_000);
    if (held === undefined) throw new Error(`${reader.name} read nothing`);
    done.push({ fault: 'reader', name: reader.name });
    await reader.kill();
    held.answer();
    if (death === 0) await startSurely(reader);
  }
  for (let death = 0; death < (plan.reader?.idleDeaths ?? 0); death += 1) {
    await reader.startAndDieIdle();
    done.push({ fault: 'reader', name: `${reader.name}, idle` });
  }
  await startSurely(reader);
  return done;
}
