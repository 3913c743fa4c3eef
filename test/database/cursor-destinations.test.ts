// Destinations in stream mode: a page is split into as many calls as the destination needs. The timeout applies to each
// call, and no failure lets a later message of a key arrive before an earlier one.

import { expect, it } from 'vitest';

import { resolveSettings } from '../../src/destinations/destination.js';
import type { BatchDestination } from '../../src/destinations/destination.js';
import { handler } from '../../src/destinations/handler.js';
import { delivered, reject, retry } from '../../src/core/outcome.js';
import { streamTo } from '../../src/relay/log/stream-sender.js';
import { claimedMessage } from '../support/claimed-message.js';
import { testDatabase } from '../support/postgres.js';
import { send, startRelay } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const settings = { mode: 'stream', from: 'beginning', retry: { delaysMs: [1, 1, 1] } } as const;

it('N4 a page that takes longer than the timeout of one call is sent once', async () => {
  const seen: string[] = [];
  const ids = await send(
    db,
    Array.from({ length: 8 }, () => ({ topic: 'slow.page' })),
  );
  await startRelay(db, {
    destinations: {
      slow: handler(
        async ({ id }) => {
          await new Promise((resolve) => setTimeout(resolve, 60));
          seen.push(id);
        },
        { ...settings, timeoutMs: 250 },
      ),
    },
    routes: [{ topic: 'slow.*', to: 'slow' }],
  });
  await waitFor(() => seen.length >= 8, { what: 'all of them' });
  expect(seen).toEqual(ids);
});

it('P2 N4 with whenDead block nothing arrives behind a rejected message', async () => {
  const seen: string[] = [];
  let refuses = true;
  await send(
    db,
    ['1', '2', '3'].map(() => ({ topic: 'blocked.stream', key: 'blocked' })),
  );
  await startRelay(db, {
    destinations: {
      strict: handler(
        ({ sequence }) => {
          seen.push(sequence ?? '');
          return sequence === '1' && refuses ? reject({ code: 'no' }) : undefined;
        },
        { ...settings, whenDead: 'block' },
      ),
    },
    routes: [{ topic: 'blocked.stream', to: 'strict' }],
  });
  await waitFor(() => seen.length >= 4, { what: 'some tries' });
  expect(new Set(seen)).toEqual(new Set(['1']));
  refuses = false;
  await waitFor(() => seen.includes('3'), { what: 'the last one' });
  expect([...new Set(seen)]).toEqual(['1', '2', '3']);
});

it('N4 a slow guard sends nothing for a reader that has lost its lease', async () => {
  const stop = new AbortController();
  const seen: string[] = [];
  const deliver = streamTo(
    'late',
    handler((message) => void seen.push(message.id), {
      ...settings,
      guard: async () => {
        stop.abort(new Error('another reader took over'));
        await Promise.resolve();
        return undefined;
      },
    }),
  );
  await expect(deliver([claimedMessage({ id: 'late' })], { signal: stop.signal })).rejects.toThrow(
    'another reader took over',
  );
  expect(seen).toEqual([]);
});

it.each([true, false])(
  'P2 N4 no later message of a key arrives before one that failed, although the batch continued (keeps order: %s)',
  async (keepsOrder) => {
    const topic = `ordered.${keepsOrder}`;
    const arrived: string[] = [];
    const calls: number[] = [];
    let failures = 2;
    // each message has its own result, as at a broker; a destination that keeps order also fails the followers
    const broker: BatchDestination = {
      kind: 'broker',
      settings: resolveSettings('broker', settings),
      batchSize: 100,
      keepsOrder,
      deliverBatch(messages) {
        calls.push(messages.length);
        let failed = false;
        return Promise.resolve(
          messages.map(({ key, sequence }) => {
            if (key === `a of ${topic}` && sequence === '2' && failures > 0) {
              failures -= 1;
              failed = true;
            }
            if (key === `a of ${topic}` && failed && (keepsOrder || sequence === '2'))
              return retry({ code: 'busy' });
            arrived.push(`${key?.charAt(0)} ${sequence}`);
            return delivered();
          }),
        );
      },
    };
    await send(
      db,
      ['a', 'b', 'a', 'b', 'a', 'c', 'a'].map((key) => ({ topic, key: `${key} of ${topic}` })),
    );
    await startRelay(db, {
      destinations: { [`broker-${keepsOrder}`]: broker },
      routes: [{ topic, to: `broker-${keepsOrder}` }],
    });
    await waitFor(() => arrived.includes('a 4'), { what: 'the last one' });
    const first = [...new Set(arrived)].filter((one) => one.startsWith('a '));
    expect(first).toEqual(['a 1', 'a 2', 'a 3', 'a 4']);
    expect(failures).toBe(0);
    // a destination that keeps order gets the whole page at once
    expect(calls[0]).toBe(keepsOrder ? 7 : 2);
  },
);
