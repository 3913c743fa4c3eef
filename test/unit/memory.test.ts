// Long-lived structures keep nothing that has ended: no message that left the dispatch queue, no message of a closed
// lease, no finished call. Otherwise V8 needs full garbage collections again and again, where a cheap one could have
// freed the objects.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { afterEach, expect, test, vi } from 'vitest';

import { ClaimedMessage } from '../../src/core/claimed-message.js';
import { delivered } from '../../src/core/outcome.js';
import type { Settler } from '../../src/relay/delivery/settler.js';
import { DispatchQueue } from '../../src/relay/delivery/dispatch-queue.js';
import { kept } from '../support/collect.js';
import { settlerOn } from '../support/settler.js';

afterEach(() => {
  vi.useRealTimers();
});

test('the dispatch queue does not keep messages in memory that have left it, while others wait there', async () => {
  const line = new DispatchQueue<object>();
  const references = Array.from({ length: 10 }, () => {
    const item = {};
    line.push(item);
    return new WeakRef(item);
  });
  for (let count = 0; count < 4; count += 1) line.shift();
  expect(await kept(references)).toBe(6);
  expect(line.size).toBe(6);
});

test('the messages of a closed lease are not kept until its last flush was due', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  const settler = settlerOn({});
  const references = openAndForget(settler);
  expect(vi.getTimerCount()).toBe(1);
  expect(await kept(references)).toBe(0);
});

/** A lease that another holder took over while one of its outcomes waits to be reported. */
function openAndForget(settler: Settler): WeakRef<ClaimedMessage>[] {
  const first = new ClaimedMessage(['a', '1', '1', 'f']);
  const messages = [first, new ClaimedMessage(['b', '1', '1', 'f'])];
  settler.open('lease', messages);
  settler.end('lease', first, delivered(), 1);
  settler.forget('lease');
  return messages.map((message) => new WeakRef(message));
}

test('finished calls do not keep later calls', async () => {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--expose-gc', 'test/support/call-much.mjs', '100000'],
    { env: { ...process.env, NODE_OPTIONS: '' } },
  );
  // none is needed; with a Set there would be about ten
  expect(Number(stdout)).toBeLessThan(3);
});
