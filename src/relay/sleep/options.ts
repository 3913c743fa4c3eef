// Options of a relay that may sleep, with their defaults and limits.

import { checkOptions, integer } from '../../core/options.js';

export type SleepOptions = {
  /** Falls asleep when it has had nothing to do for this long. Default 30,000. */
  afterMs?: number;
  /** While asleep: looks for messages this often, in case no producer woke it. Default 3,600,000. */
  lookEveryMs?: number;
};

export type ResolvedSleepOptions = ReturnType<typeof resolveSleepOptions>;

export function resolveSleepOptions(options: SleepOptions) {
  return checkOptions('relay.sleep', options, {
    afterMs: integer({ min: 100, max: 3_600_000, default: 30_000 }),
    lookEveryMs: integer({ min: 1000, max: 604_800_000, default: 3_600_000 }),
  });
}
