// Delivered leases: what is sent in one statement, when, and what happens to the others if one lease cannot be recorded.

import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import pg from 'pg';

import type { Database } from '../../src/database/connection.js';
import { DeliveredLeases } from '../../src/relay/delivery/delivered-leases.js';

type Statement = { leases: string[]; latencies: number[] };

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function leasesOn(answer: (leases: string[]) => string[]): {
  leases: DeliveredLeases;
  statements: Statement[];
} {
  const statements: Statement[] = [];
  const query = (_what: string, _sql: string, values: unknown[]): Promise<object[]> => {
    const [, leases, , latencies] = values as [string, string[], number[], number[]];
    statements.push({ leases, latencies });
    return Promise.resolve().then(() => [{ ended: answer(leases) }]);
  };
  const database = { schema: 'outbox', query } as unknown as Database;
  return { leases: new DeliveredLeases(database, 'relay'), statements };
}

const of = (latencyMs: number) => [{ latencyMs, receipt: undefined }];

it('the first lease is sent at once, those of the next moment together', async () => {
  const { leases, statements } = leasesOn((ids) => ids);
  const all = [leases.end('d', of(1)), leases.end('c', of(2)), leases.end('b', of(3))];
  expect(statements).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(20);
  expect(await Promise.all(all)).toEqual([true, true, true]);
  expect(statements).toEqual([
    { leases: ['d'], latencies: [1] },
    { leases: ['c', 'b'], latencies: [2, 3] },
  ]);
  await leases.end('a', of(4));
  expect(statements).toHaveLength(3);
});

it('a large lease does not wait, and takes the waiting ones along', async () => {
  const { leases, statements } = leasesOn((ids) => ids);
  const many = Array.from({ length: 100 }, () => of(1)).flat();
  const all = [leases.end('a', of(1)), leases.end('b', of(2)), leases.end('c', many)];
  await Promise.all(all);
  expect(statements.map((statement) => statement.leases)).toEqual([['a'], ['b', 'c']]);
});

it('P2 a lease with lanes does not wait, and takes the waiting ones along', async () => {
  const { leases, statements } = leasesOn((ids) => ids);
  const all = [leases.end('a', of(1)), leases.end('b', of(2)), leases.end('c', of(3), true)];
  await Promise.all(all);
  expect(statements.map((statement) => statement.leases)).toEqual([['a'], ['b', 'c']]);
});

it('C3 a lease that the database did not end is reported as such', async () => {
  const { leases } = leasesOn((ids) => ids.filter((id) => id !== 'b'));
  const all = [leases.end('a', of(1)), leases.end('b', of(1)), leases.end('c', of(1))];
  await vi.advanceTimersByTimeAsync(20);
  expect(await Promise.all(all)).toEqual([true, false, true]);
});

it('M9 a lease that cannot be recorded does not fail the others', async () => {
  const { leases } = leasesOn((ids) => {
    if (ids.includes('bad')) throw new pg.DatabaseError('invalid byte sequence', 1, 'error');
    return ids;
  });
  const first = leases.end('first', of(1));
  const all = Promise.allSettled([leases.end('bad', of(1)), leases.end('good', of(1))]);
  await vi.advanceTimersByTimeAsync(20);
  expect(await first).toBe(true);
  expect(await all).toMatchObject([{ status: 'rejected' }, { status: 'fulfilled', value: true }]);
});

it('small leases wait while two statements run, and go with the next one', async () => {
  const statements: string[][] = [];
  const answers: (() => void)[] = [];
  const query = (_what: string, _sql: string, values: unknown[]): Promise<object[]> => {
    const ids = values[1] as string[];
    statements.push(ids);
    return new Promise((resolve) => {
      answers.push(() => resolve([{ ended: ids }]));
    });
  };
  const leases = new DeliveredLeases({ schema: 'outbox', query } as unknown as Database, 'relay');
  const hundred = Array.from({ length: 100 }, () => of(1)).flat();
  const all = ['a', 'b', 'c', 'd'].map((id) => leases.end(id, hundred));
  await vi.advanceTimersByTimeAsync(50);
  expect(statements).toEqual([['a'], ['b']]);
  answers[0]?.();
  await vi.advanceTimersByTimeAsync(0);
  expect(statements).toEqual([['a'], ['b'], ['c', 'd']]);
  // both hang
  all.push(leases.end('e', of(1)), leases.end('f', of(1)));
  await vi.advanceTimersByTimeAsync(100);
  expect(statements.at(-1)).toEqual(['e', 'f']);
  for (const answer of answers) answer();
  expect(await Promise.all(all)).toEqual(all.map(() => true));
});
