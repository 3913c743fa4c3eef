// Scan start: decides where a claim's index scan begins. In a healthy database, always at the start of the queue.
// While a transaction holds an old snapshot (a report, a backup), the index keeps the entries of claimed rows, and
// every scan from the start walks over all of them. Then it is cheaper to continue where the last claim ended; only
// messages that committed late lie before that position. It is used only while scans from the start are slow. A
// batch that comes back short ends it, and scans from the start are repeated often enough to take about a twentieth
// of the time.

import type { ClaimedMessage } from '../../core/claimed-message.js';

export type ScanPosition = { availableAt: string; id: string };

const expensiveMs = 5;
const shareOfTime = 20;

export class ScanStart {
  #position: ScanPosition | null = null;
  /** The extra cost of the last scan from the start, compared with a scan from the position. */
  #extraMs = 0;
  #lastFromFloorMs = 0;
  #useUntilMs = 0;

  /** Null: scan from the start. */
  next(nowMs: number): ScanPosition | null {
    return nowMs < this.#useUntilMs ? this.#position : null;
  }

  /** `queued`: the messages without a key; `full`: the claim returned as many messages as it asked for. */
  claimed(
    used: ScanPosition | null,
    queued: readonly ClaimedMessage[],
    full: boolean,
    tookMs: number,
    nowMs: number,
  ): void {
    const last = queued.at(-1);
    if (last === undefined || !full) {
      this.#useUntilMs = 0;
      return;
    }
    this.#position = { availableAt: last.availableAtText, id: last.id };
    if (used !== null) {
      this.#lastFromFloorMs = tookMs;
      return;
    }
    // The first time there is nothing to compare with: use the position once and learn what it saves.
    this.#extraMs = tookMs - this.#lastFromFloorMs;
    this.#useUntilMs = this.#extraMs > expensiveMs ? nowMs + this.#extraMs * shareOfTime : 0;
  }
}
