// The settler's count of unsettled deliveries decides how much is claimed and whether a quarantined delivery may be
// sent. It must be right whatever happens to a lease.

import { afterEach, expect, it, vi } from 'vitest';

import { ClaimedMessage } from '../../src/core/claimed-message.js';
import { delivered } from '../../src/core/outcome.js';
import { settlerOn } from '../support/settler.js';

afterEach(() => {
  vi.useRealTimers();
});

it('M9 a lease that is lost while one of its outcomes waits to be reported is subtracted from the held deliveries once', async () => {
  vi.useFakeTimers();
  const settler = settlerOn({
    schema: 'outbox',
    query: () => Promise.resolve([{ settled: 0, lost: [] }]),
  });
  const messages = ['a', 'b'].map((id) => new ClaimedMessage([id, '1', '1', 'f']));
  const [first] = messages;
  settler.open('lease', messages);
  settler.end('lease', first as ClaimedMessage, delivered(), 1);
  expect(settler.held).toBe(2);
  settler.forget('lease');
  await vi.advanceTimersByTimeAsync(1000);
  expect(settler.held).toBe(0);
});
