// Scan start: decides whether a claim scans from the start of the queue or from where the last one ended. In a healthy
// database it is always the start. Under a held snapshot it moves on, and returns to the start often enough.

import { describe, expect, it } from 'vitest';

import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import { ScanStart } from '../../src/relay/delivery/scan-start.js';
import type { Scan, ScanPosition } from '../../src/relay/delivery/scan-start.js';
import { claimedMessage } from '../support/claimed-message.js';

const limit = 3;

function batch(count: number, availableAt = '2026-01-01 00:00:00+00'): ClaimedMessage[] {
  return Array.from({ length: count }, (_, n) =>
    claimedMessage({ id: `id-${n + 1}`, availableAt }),
  );
}

function scan(
  from: ScanPosition | null,
  queued: ClaimedMessage[],
  tookMs: number,
  polling = false,
): Scan {
  return { from, queued, full: queued.length === limit, polling, tookMs };
}

describe('the scan start', () => {
  it('every claim scans from the start while that is cheap', () => {
    const start = new ScanStart();
    for (let nowMs = 0; nowMs < 1000; nowMs += 10) {
      expect(start.next(nowMs)).toBeNull();
      start.claimed(scan(null, batch(limit), 4), nowMs);
    }
  });

  it('after an expensive scan from the start, the next claims begin where it ended', () => {
    const start = new ScanStart();
    start.claimed(scan(null, batch(limit), 100), 1000);
    expect(start.next(1001)).toEqual({
      availableAt: '2026-01-01 00:00:00+00',
      id: 'id-3',
      overlapMs: 0,
    });
  });

  it('the scan start moves on with each claim that begins at it', () => {
    const start = new ScanStart();
    start.claimed(scan(null, batch(limit), 100), 1000);
    const used = start.next(1001);
    start.claimed(scan(used, batch(limit, '2026-01-01 00:00:07+00'), 1), 1002);
    expect(start.next(1003)).toEqual({
      availableAt: '2026-01-01 00:00:07+00',
      id: 'id-3',
      overlapMs: 0,
    });
  });

  it('scans from the start take about a twentieth of the time', () => {
    const start = new ScanStart();
    let nowMs = 0;
    const spentMs = { start: 0, position: 0 };
    while (nowMs < 100_000) {
      const used = start.next(nowMs);
      const tookMs = used === null ? 100 : 2;
      spentMs[used === null ? 'start' : 'position'] += tookMs;
      nowMs += tookMs;
      start.claimed(scan(used, batch(limit), tookMs), nowMs);
    }
    const share = spentMs.start / (spentMs.start + spentMs.position);
    expect(share).toBeGreaterThan(0.03);
    expect(share).toBeLessThan(0.07);
  });

  it.each([0, 1, limit - 1])(
    'P7 a batch that came back short (%i) sends the next scan to the start, where late commits are',
    (count) => {
      const start = new ScanStart();
      start.claimed(scan(null, batch(limit), 100), 1000);
      const used = start.next(1001);
      expect(used).not.toBeNull();
      start.claimed(scan(used, batch(count), 1), 1002);
      expect(start.next(1003)).toBeNull();
    },
  );

  it.each([0, 1, limit - 1])(
    'while the relay polls, a short batch (%i) is followed by a scan from a moment before the position',
    (count) => {
      const start = new ScanStart();
      start.claimed(scan(null, batch(limit), 100), 1000);
      start.claimed(scan(start.next(1001), batch(count), 1, true), 1002);
      expect(start.next(1003)).toMatchObject({ overlapMs: 250 });
      expect(start.next(4000), 'scans from the start go on').toBeNull();
    },
  );

  it('P7 when the relay stops polling, the next scan begins at the start', () => {
    const start = new ScanStart();
    start.claimed(scan(null, batch(limit), 100), 1000);
    start.claimed(scan(start.next(1001), batch(1), 1, true), 1002);
    start.claimed(scan(start.next(1003), batch(1), 1, false), 1004);
    expect(start.next(1005)).toBeNull();
  });

  it('once a scan from the start is cheap again, every claim uses it', () => {
    const start = new ScanStart();
    start.claimed(scan(null, batch(limit), 100), 1000);
    start.claimed(scan(start.next(1001), batch(limit), 3), 1004);
    expect(start.next(4000), 'its time is over').toBeNull();
    start.claimed(scan(null, batch(limit), 4), 4004);
    expect(start.next(4005)).toBeNull();
  });
});
