// The parts of the Kafka destination that need no broker: splitting a refused batch, the partition of a key, and the
// meaning of an error.

import { murmur2 } from '@platformatic/kafka';
import { describe, expect, test } from 'vitest';

import { Run, fitting } from '../../src/destinations/kafka/runs.js';
import { Topics } from '../../src/destinations/kafka/topics.js';
import {
  brokerOutcome,
  failureOutcome,
  errorCodes,
} from '../../src/destinations/kafka/error-codes.js';
import { reject } from '../../src/core/outcome.js';
import type { Outcome } from '../../src/core/outcome.js';

const leader = { host: 'a', port: 1 };
const refused = reject({ code: 'record_invalid' });

/** A run with these keys; `outcomes` receives the outcome of each, by its place. */
function runOf(
  keys: (string | null)[],
  bytes = 100,
): { run: Run; outcomes: (string | undefined)[] } {
  const run = new Run('t', 0, leader);
  const outcomes: (string | undefined)[] = keys.map(() => undefined);
  for (const [index, key] of keys.entries()) {
    const value = Buffer.from(String(index));
    const named = key === null ? {} : { key: Buffer.from(key) };
    const settle = ({ kind }: Outcome): void => void (outcomes[index] = kind);
    run.add({ topic: 't', record: { value, headers: new Map(), bytes, ...named }, settle });
  }
  return { run, outcomes };
}

const places = (run: Run): string[] =>
  (run.first?.items ?? []).map(({ record }) => record.value.toString());

describe('a run', () => {
  test('C8 larger than a broker accepts is split', () => {
    const { run } = runOf([null, null, null, null, null], 400_000);
    const parts: string[][] = [];
    while (run.first !== undefined) {
      parts.push(places(run));
      run.shift();
    }
    expect(parts).toEqual([['0', '1'], ['2', '3'], ['4']]);
  });

  test('C8 refused for named records fails only these, and stays one batch', () => {
    const { run, outcomes } = runOf(['a', null, 'b', null, 'c']);
    run.refuse(refused, new Set([1, 3]));
    expect(outcomes).toEqual([undefined, 'reject', undefined, 'reject', undefined]);
    expect(places(run)).toEqual(['0', '2', '4']);
  });

  test('C8 refused as a whole is halved until the bad record is alone', () => {
    const { run, outcomes } = runOf([null, null, null, null]);
    const seen: string[][] = [];
    while (run.first !== undefined) {
      seen.push(places(run));
      if (places(run).includes('2')) run.refuse(refused, new Set());
      else run.shift();
    }
    expect(seen).toEqual([['0', '1', '2', '3'], ['0', '1'], ['2', '3'], ['2'], ['3']]);
    expect(outcomes).toEqual([undefined, undefined, 'reject', undefined]);
  });

  test('C8 holds back records behind a refused one of the same key, also in a later part', () => {
    const { run, outcomes } = runOf(['a', 'b', 'a', 'b', 'a'], 300_000);
    run.refuse(refused, new Set([0]));
    expect(outcomes).toEqual(['reject', undefined, 'release', undefined, 'release']);
    expect(places(run)).toEqual(['1']);
  });
});

test('C8 a request holds as many runs as a broker accepts at once, and at least one', () => {
  const runs = (bytes: number): Run[] => Array.from({ length: 5 }, () => runOf([null], bytes).run);
  expect(fitting(runs(100), 'none')).toHaveLength(5);
  expect(fitting(runs(10_000_000), 'none')).toHaveLength(3);
  expect(fitting(runs(100_000_000), 'none')).toHaveLength(1);
  // compressed in one turn of the event loop
  expect(fitting(runs(100), 'gzip')).toHaveLength(5);
  expect(fitting(runs(400_000), 'gzip')).toHaveLength(2);
  expect(fitting(runs(900_000), 'lz4')).toHaveLength(1);
});

describe('the partition', () => {
  const topics = new Topics(false, (key) => murmur2(key));

  // from the tests of Kafka's own client
  test.each([
    ['21', -973932308],
    ['foobar', -790332482],
    ['a-little-bit-long-string', -985981536],
    ['a-little-bit-longer-string', -1486304829],
    ['lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8', -58897971],
    ['abc', 479470107],
  ])('of the key %s is the one that the Java client chooses', (key, hash) => {
    const topic = { leaders: Array.from({ length: 7 }, () => leader) };
    expect(topics.partitionOf(topic, Buffer.from(key), 0)).toBe((hash & 0x7fffffff) % 7);
  });

  test('of a message without a key is one that has a leader', () => {
    const topic = { leaders: [undefined, undefined, leader] };
    expect([0, 1, 2, 3].map((turn) => topics.partitionOf(topic, undefined, turn))).toEqual([
      2, 2, 2, 2,
    ]);
  });
});

describe('an error', () => {
  test('P10 with an unlisted code is retried', () => {
    expect(brokerOutcome(999)).toMatchObject({
      kind: 'retry',
      code: 'broker_error',
      remoteCode: '999',
    });
  });

  test('P10 is classified by the innermost code, never by its text', () => {
    const inner = Object.assign(new Error('MESSAGE_TOO_LARGE'), {
      apiCode: 58,
      code: 'PLT_KFK_PROTOCOL',
    });
    const outer = new AggregateError(
      [new Error('x'), new Error('y', { cause: inner })],
      'all failed',
    );
    expect(failureOutcome(outer)).toMatchObject({
      kind: 'pause',
      remoteCode: 'SASL_AUTHENTICATION_FAILED',
    });
    expect(failureOutcome(new Error('SASL_AUTHENTICATION_FAILED'))).toMatchObject({
      kind: 'retry',
    });
  });

  test('P10 has the number that Kafka gives to its name', async () => {
    const { protocolErrorsCodesById } = await import('@platformatic/kafka');
    for (const [number, { name }] of Object.entries(errorCodes))
      expect((protocolErrorsCodesById as Record<string, string>)[number]).toBe(name);
  });
});
