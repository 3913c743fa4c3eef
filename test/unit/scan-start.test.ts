// Scan start: decides whether a claim scans from the start of the queue or from where the last one ended. In a healthy
// database it is always the start. Under a held snapshot it moves on, and returns to the start often enough.

import { describe, expect, it } from 'vitest';

import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import { ScanStart } from '../../src/relay/delivery/scan-start.js';
import { claimedMessage } from '../support/claimed-message.js';

const limit = 3;

function batch(count: number, availableAt = '2026-01-01 00:00:00+00'): ClaimedMessage[] {
  return Array.from({ length: count }, (_, n) =>
    claimedMessage({ id: `id-${n + 1}`, availableAt }),
  );
}

describe('the scan start', () => {
  it('every claim scans from the start while that is cheap', () => {
    const floor = new ScanStart();
    for (let nowMs = 0; nowMs < 1000; nowMs += 10) {
      expect(floor.next(nowMs)).toBeNull();
      floor.claimed(null, batch(limit), true, 4, nowMs);
    }
  });

  it('after an expensive scan from the start, the next claims begin where it ended', () => {
    const floor = new ScanStart();
    floor.claimed(null, batch(limit), true, 100, 1000);
    expect(floor.next(1001)).toEqual({ availableAt: '2026-01-01 00:00:00+00', id: 'id-3' });
  });

  it('the scan start moves on with each claim that begins at it', () => {
    const floor = new ScanStart();
    floor.claimed(null, batch(limit), true, 100, 1000);
    const used = floor.next(1001);
    floor.claimed(used, batch(limit, '2026-01-01 00:00:07+00'), true, 1, 1002);
    expect(floor.next(1003)).toEqual({ availableAt: '2026-01-01 00:00:07+00', id: 'id-3' });
  });

  it('scans from the start take about a twentieth of the time', () => {
    const floor = new ScanStart();
    let nowMs = 0;
    const spentMs = { start: 0, floor: 0 };
    while (nowMs < 100_000) {
      const used = floor.next(nowMs);
      const tookMs = used === null ? 100 : 2;
      spentMs[used === null ? 'start' : 'floor'] += tookMs;
      nowMs += tookMs;
      floor.claimed(used, batch(limit), true, tookMs, nowMs);
    }
    const share = spentMs.start / (spentMs.start + spentMs.floor);
    expect(share).toBeGreaterThan(0.03);
    expect(share).toBeLessThan(0.07);
  });

  it.each([0, 1, limit - 1])(
    'P7 a batch that came back short (%i) sends the next scan to the start, where late commits are',
    (count) => {
      const floor = new ScanStart();
      floor.claimed(null, batch(limit), true, 100, 1000);
      const used = floor.next(1001);
      expect(used).not.toBeNull();
      floor.claimed(used, batch(count), count === limit, 1, 1002);
      expect(floor.next(1003)).toBeNull();
    },
  );

  it('once a scan from the start is cheap again, every claim uses it', () => {
    const floor = new ScanStart();
    floor.claimed(null, batch(limit), true, 100, 1000);
    floor.claimed(floor.next(1001), batch(limit), true, 3, 1004);
    expect(floor.next(4000), 'its time is over').toBeNull();
    floor.claimed(null, batch(limit), true, 4, 4004);
    expect(floor.next(4005)).toBeNull();
  });
});
