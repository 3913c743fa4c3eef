// What has passed is kept by nothing that goes on: neither a message that has left the waiting line, nor those of a
// lease that is closed, nor calls that have ended. What keeps them makes V8 clean all of memory again and again, where
// it could have cleared them away in passing.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { afterEach, expect, test, vi } from 'vitest';

import { ClaimedMessage } from '../../src/model/claimed-message.js';
import { delivered } from '../../src/model/outcome.js';
import type { Settler } from '../../src/relay/settler.js';
import { WaitingLine } from '../../src/relay/waiting-line.js';
import { kept } from '../support/collect.js';
import { settlerOn } from '../support/settler.js';

afterEach(() => {
  vi.useRealTimers();
});

test('what has left the waiting line is not kept by it, though others wait there', async () => {
  const line = new WaitingLine<object>();
  const references = Array.from({ length: 10 }, () => {
    const item = {};
    line.push(item);
    return new WeakRef(item);
  });
  for (let count = 0; count < 4; count += 1) line.shift();
  expect(await kept(references)).toBe(6);
  expect(line.size).toBe(6);
});

test('the messages of a lease that is closed are not kept until its last flush was due', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  const settler = settlerOn({});
  const references = openAndForget(settler);
  expect(vi.getTimerCount()).toBe(1);
  expect(await kept(references)).toBe(0);
});

/** A lease with an ending that waits to be told, taken over by somebody else. */
function openAndForget(settler: Settler): WeakRef<ClaimedMessage>[] {
  const first = new ClaimedMessage(['a', '1', '1', 'f']);
  const messages = [first, new ClaimedMessage(['b', '1', '1', 'f'])];
  settler.open('lease', messages);
  settler.end('lease', first, delivered(), 1);
  settler.forget('lease');
  return messages.map((message) => new WeakRef(message));
}

test('calls that have ended do not keep those that came after them', async () => {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    ['--expose-gc', 'test/support/call-much.mjs', '100000'],
    { env: { ...process.env, NODE_OPTIONS: '' } },
  );
  // none is needed; with a Set it were about ten
  expect(Number(stdout)).toBeLessThan(3);
});
