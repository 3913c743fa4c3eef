// What one seed of the order proof varies: who writes what, how often it fails, who interferes. Everything is
// decided here or by a random that the seed begins, so that a seed names its decisions; the timing is the machine's.

import { Random } from '../crash/random.js';

export const destinations = ['plain', 'strict', 'parking', 'bulk'] as const;
export type DestinationName = (typeof destinations)[number];

/** What happens at each when a message dies. */
export const whenDead: Record<DestinationName, 'continue' | 'block' | 'park'> = {
  plain: 'continue',
  strict: 'block',
  parking: 'park',
  bulk: 'continue',
};

/** Topics that skip destinations make gaps that are none: the previous sequence must tell. */
export const routes: Record<string, readonly DestinationName[]> = {
  'order.plain': ['plain'],
  'order.strict': ['strict'],
  'order.parking': ['parking'],
  'order.bulk': ['bulk'],
  'order.pair': ['strict', 'bulk'],
  'order.all': ['plain', 'strict', 'parking', 'bulk'],
};
const topics = Object.keys(routes) as [string, ...string[]];

export type Fault = 'kill' | 'stall';
const deathMoments = ['before commit', 'in commit', 'after commit'] as const;
export type DeathMoment = (typeof deathMoments)[number];

export type Plan = {
  seed: number;
  namespace: string;
  producers: number;
  /** Transactions of each producer. */
  transactions: number;
  /** Messages of a transaction, at most. */
  batch: number;
  keys: readonly { key: string; tenantId?: string }[];
  /** The share of messages that go to the first key. */
  hotShare: number;
  unkeyedShare: number;
  topics: readonly [string, ...string[]];
  /** Several batches in one transaction may deadlock, and then one of them is repeated; a single one never may. */
  severalBatches: boolean;
  rollbackShare: number;
  savepointShare: number;
  pauseShare: number;
  strictIsolationShare: number;
  delayShare: number;
  dedupeShare: number;
  /** Of the messages, in percent: refused for good; refused until they are replayed; never taken; taken late. */
  refused: number;
  refusedOnce: number;
  neverTaken: number;
  takenLate: number;
  operator: boolean;
  faults: readonly Fault[];
  /** Producers that are killed, each over one of its transactions; another goes on behind it. */
  deaths: readonly { producer: number; transaction: number; moment: DeathMoment }[];
};

/** Every fifth seed has relays killed or stopped beyond their leases, every third a producer or two killed. */
export function planOf(seed: number): Plan {
  const random = new Random(seed);
  const share = (most: number) => (random.chance(0.3) ? 0 : random.next() * most);
  const keys = Array.from({ length: random.integer(1, 12) }, (_, n) => ({
    // the same key of another tenant is another key
    key: `key-${Math.floor(n / 2)}`,
    ...(n % 2 === 1 ? { tenantId: `tenant-${n % 3}` } : {}),
  }));
  const hostile = random.pick([0, 1, 1, 3]);
  const faults: Fault[] = [];
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
    topics: random.chance(0.5) ? topics : [random.pick(topics)],
    severalBatches: random.chance(0.3),
    rollbackShare: share(0.3),
    savepointShare: share(0.5),
    pauseShare: share(0.2),
    strictIsolationShare: share(0.5),
    delayShare: share(0.2),
    dedupeShare: share(0.3),
    refused: hostile * 1.5,
    refusedOnce: hostile * 1.5,
    neverTaken: hostile,
    takenLate: hostile * 6,
    operator: random.chance(0.6),
    faults,
    deaths: [],
  };
  const deaths = Array.from({ length: seed % 3 === 0 ? random.integer(1, 2) : 0 }, () => ({
    producer: random.integer(1, plan.producers),
    transaction: random.integer(1, plan.transactions),
    moment: random.pick(deathMoments),
  }));
  return { ...plan, deaths };
}
