// Answers that many ask for: one is made for all who ask meanwhile and a moment later, and none outlives a change.

import { describe, expect, it } from 'vitest';

import { Shared } from '../../src/server/shared.js';

/** An answer that comes when it is told to, and how often it was asked for. */
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

describe('shared answers', () => {
  it('W7 whoever asks while one is being made is given that one', async () => {
    const { make, answer, asked } = question();
    const shared = new Shared(0);
    const all = Array.from({ length: 5 }, () => shared.get('health', make));
    answer('well');
    expect(await Promise.all(all)).toEqual(Array.from({ length: 5 }, () => 'well'));
    expect(asked()).toBe(1);
  });

  it('W7 an answer is given again for the time that was set, and no longer', async () => {
    for (const [forMs, times] of [
      [anHour, 1],
      [0, 2],
    ] as const) {
      let asked = 0;
      const shared = new Shared(forMs);
      const make = () => Promise.resolve((asked += 1));
      await shared.get('health', make);
      await shared.get('health', make);
      expect(asked).toBe(times);
    }
  });

  it('W7 answers of other names are others', async () => {
    const shared = new Shared(anHour);
    expect(await shared.get('one', () => Promise.resolve(1))).toBe(1);
    expect(await shared.get('two', () => Promise.resolve(2))).toBe(2);
  });

  it('W7 nothing that was begun before a change is given after it', async () => {
    const { make, answer, asked } = question();
    const shared = new Shared(anHour);
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

  it('W7 a failure is told to those who asked, and not kept', async () => {
    const shared = new Shared(anHour);
    const fail = async () => Promise.reject(new Error('no database'));
    await expect(shared.get('health', fail)).rejects.toThrow('no database');
    expect(await shared.get('health', () => Promise.resolve('well'))).toBe('well');
  });
});
