// The contract of a bench: its options and its result.

import type { BenchResult } from './report.js';
import type { BenchServer } from './server.js';

export type BenchOptions = {
  rounds: number;
  /** Overrides the bench's own number of messages. */
  messages: number | undefined;
  /** Overrides the bench's own length of a measurement. */
  seconds: number | undefined;
  minutes: number | undefined;
  /** The only cell of hardbyte to run; undefined: all. */
  cell: string | undefined;
  /** The folder where a bench with a large load keeps its database for the next run; undefined: it is removed. */
  keep: string | undefined;
  /** Tiny numbers: proves that the bench works, measures nothing. */
  tiny: boolean;
  /** Null if the peers run, otherwise the reason why they are left out. */
  peersLeftOut: string | null;
};

export type Bench = (server: BenchServer, options: BenchOptions) => Promise<BenchResult>;

/** The name of a contender, as in tables and in the JSON. */
export type Contender =
  | 'waybill'
  | 'graphile-worker'
  | 'pg-boss'
  | 'pg-boss-notify'
  | 'bullmq'
  | 'dbos';

/** Waybill, the two peers of all benches, and those that only this bench compares with. */
export function contenders({ peersLeftOut }: BenchOptions, more: Contender[] = []): Contender[] {
  return peersLeftOut === null ? ['waybill', 'graphile-worker', 'pg-boss', ...more] : ['waybill'];
}

/** The module of each contender. */
export const contenderModule: Record<Contender, string> = {
  waybill: 'waybill/contender.mjs',
  'graphile-worker': 'peers/graphile-worker.mjs',
  'pg-boss': 'peers/pg-boss.mjs',
  'pg-boss-notify': 'peers/pg-boss-notify.mjs',
  bullmq: 'peers/bullmq.mjs',
  dbos: 'peers/dbos.mjs',
};

/** The quotient, or null if there is nothing to divide by. */
export function ratio(part: number, whole: number | undefined): number | null {
  return whole === undefined || !(whole > 0) ? null : part / whole;
}
