// The relay's part of reports: how long it pauses between its runs.

import { expect, it, vi } from 'vitest';

import type { Database } from '../../src/database/connection.js';
import { reportsPart } from '../../src/features/reports/relay-part.js';

it('W5 a relay that is behind goes on after a short pause, and one that has caught up waits', async () => {
  let more = true;
  let nowMs = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => (nowMs += 1500));
  try {
    const query = () => Promise.resolve([{ more }]);
    const { task } = reportsPart({ database: { schema: 'waybill', query } as unknown as Database });
    const pauseMs = () => (typeof task?.everyMs === 'function' ? task.everyMs() : task?.everyMs);
    expect(pauseMs()).toBe(30_000);
    await task?.run();
    expect(pauseMs()).toBe(2000);
    more = false;
    await task?.run();
    expect(pauseMs()).toBe(30_000);
  } finally {
    vi.restoreAllMocks();
  }
});
