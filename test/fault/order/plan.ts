// What one seed of the order proof varies: producers, failures and faults. All decisions are made here or by a random
// generator of the seed, so a seed repeats its decisions; the timing depends on the machine.

import { Random } from '../crash/random.js';

const relayDestinations = ['plain', 'strict', 'parking', 'bulk'] as const;
/** Destinations served by workers that use only the SQL functions. */
export const workerDestinations = ['worker', 'strict-worker'] as const;
/** Destinations of the second application. */
const billingDestinations = ['billing'] as const;
export type DestinationName =
  | (typeof relayDestinations)[number]
  | (typeof workerDestinations)[number]
  | (typeof billingDestinations)[number];

/** The whenDead policy of each destination. */
export const whenDead: Record<DestinationName, 'continue' | 'block' | 'park'> = {
  plain: 'continue',
  strict: 'block',
  parking: 'park',
  bulk: 'continue',
  worker: 'continue',
  'strict-worker': 'block',
  billing: 'block',
};

/** Topics that skip a destination leave numbers out: the previous sequence must account for them. */
export const routes: Record<string, readonly DestinationName[]> = {
  'order.plain': ['plain'],
  'order.strict': ['strict'],
  'order.parking': ['parking'],
  'order.bulk': ['bulk'],
  'order.pair': ['strict', 'bulk'],
  'order.all': relayDestinations,
  'order.worker': ['worker'],
  'order.every': [...relayDestinations, ...workerDestinations],
  'order.billing': ['billing'],
  'order.odd': ['billing'],
  'order.even': ['billing'],
  'order.shared': ['strict', 'billing', 'strict-worker'],
};

/** The routes to these destinations. */
export function routesTo(
  wanted: readonly DestinationName[],
): { topic: string; to: DestinationName }[] {
  return Object.entries(routes).flatMap(([topic, to]) =>
    to.filter((name) => wanted.includes(name)).map((name) => ({ topic, to: name })),
  );
}
export const relayRoutes = routesTo(relayDestinations);

/** The routes of one version of the second application. Each version drops a route of the one before. */
export function billingRoutes(version: number): { topic: string; to: DestinationName }[] {
  const dropped = version % 2 === 1 ? 'order.even' : 'order.odd';
  return routesTo(billingDestinations).filter(({ topic }) => topic !== dropped);
}

/** The processes that serve the destinations, in addition to the relays of the first application. */
export type Served = { workers: boolean; billing: boolean };

function topicsOf({ workers, billing }: Served): [string, ...string[]] {
  const served: readonly DestinationName[] = [
    ...relayDestinations,
    ...(workers ? workerDestinations : []),
    ...(billing ? billingDestinations : []),
  ];
  return Object.keys(routes).filter((topic) =>
    routes[topic]?.every((name) => served.includes(name)),
  ) as [string, ...string[]];
}

/** Clock: the database's clock runs ahead and is corrected. Deploy: the second application replaces its older relay. */
export type Fault = 'kill' | 'stall' | 'half-open' | 'clock' | 'deploy' | 'reader';
const deathMoments = ['before commit', 'in commit', 'after commit'] as const;
export type DeathMoment = (typeof deathMoments)[number];

export type Plan = {
  seed: number;
  namespace: string;
  producers: number;
  /** Transactions of each producer. */
  transactions: number;
  /** The most messages in a transaction. */
  batch: number;
  keys: readonly { key: string; tenantId?: string }[];
  /** The share of messages that go to the first key. */
  hotShare: number;
  unkeyedShare: number;
  topics: readonly [string, ...string[]];
  /** Several batches in one transaction may deadlock, and then one of them is repeated; a single batch never may. */
  severalBatches: boolean;
  rollbackShare: number;
  savepointShare: number;
  pauseShare: number;
  strictIsolationShare: number;
  delayShare: number;
  /** The shortest and the longest delay. */
  delayMs: readonly [number, number];
  dedupeShare: number;
  /** Percentages of the messages: rejected; refused until they are replayed; never accepted; accepted late. */
  refused: number;
  refusedOnce: number;
  neverTaken: number;
  takenLate: number;
  operator: boolean;
  faults: readonly Fault[];
  /** Whether a SQL worker is killed or stopped; if not, a relay or a worker. */
  hurtsWorkers: boolean;
  /** Producers that are killed, each during one of its transactions; another one continues. */
  deaths: readonly { producer: number; transaction: number; moment: DeathMoment }[];
  /** A subscription reads the seed's messages, and some of its readers are killed, the last of them while idle. */
  reader?: { batchSize: number; idleDeaths: number };
};

/**
 * Every fifth seed has faults: relays or workers are killed or stopped beyond their leases, or relays are cut off from
 * the database; the clock is corrected and readers are killed, or the second application deploys. Every third has a
 * producer or two killed. Nothing is sent to destinations that are not served.
 */
export function planOf(seed: number, served: Served): Plan {
  const known = topicsOf(served);
  const random = new Random(seed);
  const share = (most: number) => (random.chance(0.3) ? 0 : random.next() * most);
  const keys = Array.from({ length: random.integer(1, 12) }, (_, n) => ({
    // the same key of another tenant is another key
    key: `key-${Math.floor(n / 2)}`,
    ...(n % 2 === 1 ? { tenantId: `tenant-${n % 3}` } : {}),
  }));
  const hostile = random.pick([0, 1, 1, 3]);
  const faults: Fault[] = seed % 20 === 10 ? ['half-open'] : [];
  if (seed % 5 === 0) faults.push(random.pick(['kill', 'stall']));
  if (seed % 10 === 0) faults.push(random.pick(['kill', 'stall']));
  const plan: Plan = {
    seed,
    namespace: `seed-${seed}`,
    producers: random.integer(2, 5),
    transactions: random.integer(3, 9),
    batch: random.pick([1, 3, 6, 12]),
    keys,
    hotShare: random.pick([0, 0.3, 0.9]),
    unkeyedShare: share(0.4),
    topics: random.chance(0.5) ? known : [random.pick(known)],
    severalBatches: random.chance(0.3),
    rollbackShare: share(0.3),
    savepointShare: share(0.5),
    pauseShare: share(0.2),
    strictIsolationShare: share(0.5),
    delayShare: share(0.2),
    delayMs: [1, 400],
    dedupeShare: share(0.3),
    refused: hostile * 1.5,
    refusedOnce: hostile * 1.5,
    neverTaken: hostile,
    takenLate: hostile * 6,
    operator: random.chance(0.6),
    faults,
    hurtsWorkers: served.workers && seed % 10 === 5,
    deaths: [],
  };
  const deaths = Array.from({ length: seed % 3 === 0 ? random.integer(1, 2) : 0 }, () => ({
    producer: random.integer(1, plan.producers),
    transaction: random.integer(1, plan.transactions),
    moment: random.pick(deathMoments),
  }));
  if (seed % 5 !== 0) return { ...plan, deaths };
  const reader = { batchSize: random.pick([2, 7, 100]), idleDeaths: random.integer(1, 2) };
  return {
    ...plan,
    deaths,
    // enough messages of every kind for the faults to hit
    transactions: random.integer(10, 15),
    topics: known,
    faults: random.shuffled([...faults, seed % 10 === 0 ? 'clock' : 'deploy']),
    ...(seed % 10 === 0 ? { reader } : {}),
  };
}
