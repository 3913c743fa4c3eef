// Scan start: decides where a claim's index scan begins. In a healthy database, always at the start of the queue.
// While a transaction holds an old snapshot (a report, a backup), the index keeps the entries of claimed rows, and
// every scan from the start walks over all of them. Then it is cheaper to continue where the last claim ended; only
// messages that committed late, or whose producer gave an earlier time, lie before that position.
//
// The position is used only while scans from the start are slow, and those are repeated often enough to take about a
// twentieth of the time. After a full batch, the next scan begins exactly at the position. A batch that comes back short
// means that the relay has caught up. While it goes on polling, the next scan begins a moment before the position, so
// that most late commits are found at once. When it is about to wait for a notification, or a drain to end, the next
// scan begins at the start.

import type { ClaimedMessage } from '../../core/claimed-message.js';

/** `overlapMs`: how long before this time the scan begins. */
export type ScanPosition = { availableAt: string; id: string; overlapMs: number };

export type Scan = {
  /** Where it began; null: at the start. */
  from: ScanPosition | null;
  /** What it found without a key. */
  queued: readonly ClaimedMessage[];
  /** The claim returned as many messages as it asked for. */
  full: boolean;
  /** The relay will claim again in any case. */
  polling: boolean;
  tookMs: number;
};

const expensiveMs = 5;
const shareOfTime = 20;
/** Most transactions commit within this time. */
const overlapMs = 250;

export class ScanStart {
  #position: ScanPosition | null = null;
  /** The time of the last scan from the position. */
  #tookFromPositionMs = 0;
  #useUntilMs = 0;

  /** Null: scan from the start. */
  next(nowMs: number): ScanPosition | null {
    return nowMs < this.#useUntilMs ? this.#position : null;
  }

  claimed({ from, queued, full, polling, tookMs }: Scan, nowMs: number): void {
    const last = queued.at(-1);
    if (last !== undefined)
      this.#position = { availableAt: last.availableAtText, id: last.id, overlapMs: 0 };
    if (this.#position !== null) this.#position.overlapMs = full ? 0 : overlapMs;
    if (!full && !polling) {
      this.#useUntilMs = 0;
      return;
    }
    if (from !== null) {
      this.#tookFromPositionMs = tookMs;
      return;
    }
    // The first time there is nothing to compare with: use the position once and learn what it saves.
    const extraMs = tookMs - this.#tookFromPositionMs;
    this.#useUntilMs = extraMs > expensiveMs ? nowMs + extraMs * shareOfTime : 0;
  }
}
