// Upkeep task: ends expired leases, removes listeners of dead relays, takes the sample of the statistics and corrects
// misdated deliveries. It runs when the next lease expires, and every few seconds, so an idle relay asks rarely and
// finds a dead relay's messages at once.

import type { Database } from '../../database/connection.js';
import { runUpkeep } from '../../database/upkeep.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';
import type { ResolvedRelayOptions } from '../options.js';
import type { WakeUp } from '../wakeup/wake-up.js';

export type UpkeepOptions = {
  database: Database;
  relay: Pick<ResolvedRelayOptions, 'leaseMs' | 'reapMs'>;
  wakeUp: Pick<WakeUp, 'look' | 'wake'>;
  /** Corrects deliveries whose due time a wrong clock has set. */
  releaseMisdated: () => Promise<void>;
  emit: Emit;
};

/** Less than the ten seconds of a sample, so that none is missed. */
const longestMs = 9000;
/** An expired lease that could not be ended, because another session has locked it, is tried again after this. */
const lockedMs = 1000;
/** Tasks that are due within this time share a statement. */
const togetherMs = 4000;
/** Timers fire up to a millisecond early, and the clocks differ a little. */
const lateMs = 5;

export class Upkeep {
  readonly #options: UpkeepOptions;
  readonly #longestReapMs: number;
  /** The options say how often to reap. */
  readonly #isFixed: boolean;
  #reapAtMs: number;
  #sampleAtMs: number;

  constructor(options: UpkeepOptions) {
    this.#options = options;
    const { leaseMs, reapMs } = options.relay;
    this.#isFixed = reapMs !== undefined;
    this.#longestReapMs = reapMs ?? Math.min(longestMs, Math.floor(leaseMs / 3));
    const nowMs = performance.now();
    // soon after the start: another relay may have died before
    this.#reapAtMs = nowMs + Math.min(this.#longestReapMs, lockedMs);
    this.#sampleAtMs = nowMs + longestMs;
  }

  /** How long to wait for the next run. */
  get waitMs(): number {
    return Math.max(Math.min(this.#reapAtMs, this.#sampleAtMs) - performance.now(), 0);
  }

  async run(): Promise<void> {
    const nowMs = performance.now();
    const isSoon = (atMs: number, ms: number) => nowMs + ms >= atMs;
    // together, if both are due within a few seconds; explicit times of the options are kept
    const reap = isSoon(this.#reapAtMs, this.#isFixed ? lateMs : togetherMs);
    const sample = isSoon(this.#sampleAtMs, reap ? togetherMs : lateMs);
    // set before the statement, so that a failing one is not repeated at once
    if (reap) this.#reapAtMs = nowMs + this.#longestReapMs;
    if (sample) this.#sampleAtMs = nowMs + longestMs;
    const { pending } = await this.#run(reap, sample);
    if (pending) await this.#options.releaseMisdated();
  }

  /** Ends expired leases at once. */
  async reap(): Promise<void> {
    await this.#run(true, false);
  }

  async #run(reap: boolean, sample: boolean): Promise<{ pending: boolean }> {
    const { database, wakeUp, emit } = this.#options;
    const report = await runUpkeep(database, { reap, sample });
    for (const problem of report.problems) emit(troubleOf('upkeep', new Error(problem)));
    if (report.requeued > 0) {
      emit({ name: 'zombies_requeued', count: report.requeued });
      wakeUp.look();
    }
    wakeUp.wake(report.unattended);
    const { nextExpiryMs, pending } = report;
    if (nextExpiryMs !== null && !this.#isFixed) {
      const againMs = nextExpiryMs > 0 ? nextExpiryMs + lateMs : lockedMs;
      this.#reapAtMs = Math.min(this.#reapAtMs, performance.now() + againMs);
    }
    return { pending };
  }
}
