// What a bench is given and what it must return.

import type { BenchResult } from './report.js';
import type { BenchServer } from './server.js';

export type BenchOptions = {
  rounds: number;
  /** Overrides the bench's own number of messages. */
  messages: number | undefined;
  /** Overrides the bench's own length of a measurement. */
  seconds: number | undefined;
  minutes: number | undefined;
  /** Where a bench that loads much keeps it for the next run; undefined: nowhere. */
  keep: string | undefined;
  /** Everything on tiny numbers: proves that the bench works, measures nothing. */
  tiny: boolean;
  /** Null: run them. Otherwise why they are left out. */
  peersLeftOut: string | null;
};

export type Bench = (server: BenchServer, options: BenchOptions) => Promise<BenchResult>;

/** The name of a contender, as in tables and in the JSON. */
export type Contender = 'waybill' | 'graphile-worker' | 'pg-boss';

export function contenders({ peersLeftOut }: BenchOptions): Contender[] {
  return peersLeftOut === null ? ['waybill', 'graphile-worker', 'pg-boss'] : ['waybill'];
}

/** Where each contender's own code lies. */
export const contenderModule: Record<Contender, string> = {
  waybill: 'waybill/contender.mjs',
  'graphile-worker': 'peers/graphile-worker.mjs',
  'pg-boss': 'peers/pg-boss.mjs',
};

/** Divides, or gives null where there is nothing to divide by. */
export function ratio(part: number, whole: number | undefined): number | null {
  return whole === undefined || !(whole > 0) ? null : part / whole;
}
