// Response cache: concurrent identical requests share one response, which is reused for a moment and never after a
// change.

import { describe, expect, it } from 'vitest';

import { SharedAnswers } from '../../src/server/response-cache.js';

/** A response that the test resolves, and the number of requests for it. */
function question() {
  let asked = 0;
  const waiting: ((answer: string) => void)[] = [];
  return {
    make: async () => {
      asked += 1;
      return new Promise<string>((resolve) => waiting.push(resolve));
    },
    answer: (text: string) => waiting.splice(0).forEach((resolve) => resolve(text)),
    asked: () => asked,
  };
}

const anHour = 3_600_000;

describe('shared responses', () => {
  it('W7 a request during another identical one gets the same response', async () => {
    const { make, answer, asked } = question();
    const shared = new SharedAnswers(0);
    const all = Array.from({ length: 5 }, () => shared.get('health', make));
    answer('well');
    expect(await Promise.all(all)).toEqual(Array.from({ length: 5 }, () => 'well'));
    expect(asked()).toBe(1);
  });

  it('W7 a response is reused for the configured time, and no longer', async () => {
    for (const [forMs, times] of [
      [anHour, 1],
      [0, 2],
    ] as const) {
      let asked = 0;
      const shared = new SharedAnswers(forMs);
      const make = () => Promise.resolve((asked += 1));
      await shared.get('health', make);
      await shared.get('health', make);
      expect(asked).toBe(times);
    }
  });

  it('W7 responses are cached by name', async () => {
    const shared = new SharedAnswers(anHour);
    expect(await shared.get('one', () => Promise.resolve(1))).toBe(1);
    expect(await shared.get('two', () => Promise.resolve(2))).toBe(2);
  });

  it('W7 no response that was started before a change is used after it', async () => {
    const { make, answer, asked } = question();
    const shared = new SharedAnswers(anHour);
    const before = shared.get('health', make);
    shared.forget();
    const after = shared.get('health', make);
    expect(asked()).toBe(2);
    answer('either');
    await Promise.all([before, after]);
    shared.forget();
    void shared.get('health', make);
    expect(asked()).toBe(3);
    answer('again');
  });

  it('W7 a failure is returned to all waiting requests, and not cached', async () => {
    const shared = new SharedAnswers(anHour);
    const fail = async () => Promise.reject(new Error('no database'));
    await expect(shared.get('health', fail)).rejects.toThrow('no database');
    expect(await shared.get('health', () => Promise.resolve('well'))).toBe('well');
  });
});
