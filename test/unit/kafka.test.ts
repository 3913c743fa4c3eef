// The parts of the Kafka destination that need no broker: splitting a refused batch, the partition of a key, and the
// meaning of an error.

import { murmur2 } from '@platformatic/kafka';
import { describe, expect, test } from 'vitest';

import { PartitionBatches, fitting } from '../../src/destinations/kafka/partition-batches.js';
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

/** One partition's records with these keys; `outcomes` receives the outcome of each, by its place. */
function batchesOf(
  keys: (string | null)[],
  bytes = 100,
): { batches: PartitionBatches; outcomes: (string | undefined)[] } {
  const batches = new PartitionBatches('t', 0, leader);
  const outcomes: (string | undefined)[] = keys.map(() => undefined);
  for (const [index, key] of keys.entries()) {
    const value = Buffer.from(String(index));
    const named = key === null ? {} : { key: Buffer.from(key) };
    const settle = ({ kind }: Outcome): void => void (outcomes[index] = kind);
    batches.add({ topic: 't', record: { value, headers: new Map(), bytes, ...named }, settle });
  }
  return { batches, outcomes };
}

const places = (batches: PartitionBatches): string[] =>
  (batches.first?.items ?? []).map(({ record }) => record.value.toString());

describe('the batches of a partition', () => {
  test('C8 are as large as a broker accepts', () => {
    const { batches } = batchesOf([null, null, null, null, null], 400_000);
    const sent: string[][] = [];
    while (batches.first !== undefined) {
      sent.push(places(batches));
      batches.shift();
    }
    expect(sent).toEqual([['0', '1'], ['2', '3'], ['4']]);
  });

  test('C8 fail only for the records that the broker names, and stay together', () => {
    const { batches, outcomes } = batchesOf(['a', null, 'b', null, 'c']);
    batches.dropBadRecords(refused, new Set([1, 3]));
    expect(outcomes).toEqual([undefined, 'reject', undefined, 'reject', undefined]);
    expect(places(batches)).toEqual(['0', '2', '4']);
  });

  test('C8 are halved after a refusal without names, until the bad record is alone', () => {
    const { batches, outcomes } = batchesOf([null, null, null, null]);
    const seen: string[][] = [];
    while (batches.first !== undefined) {
      seen.push(places(batches));
      if (places(batches).includes('2')) batches.dropBadRecords(refused, new Set());
      else batches.shift();
    }
    expect(seen).toEqual([['0', '1', '2', '3'], ['0', '1'], ['2', '3'], ['2'], ['3']]);
    expect(outcomes).toEqual([undefined, undefined, 'reject', undefined]);
  });

  test('C8 hold back records behind a refused one of the same key, also in a later batch', () => {
    const { batches, outcomes } = batchesOf(['a', 'b', 'a', 'b', 'a'], 300_000);
    batches.dropBadRecords(refused, new Set([0]));
    expect(outcomes).toEqual(['reject', undefined, 'release', undefined, 'release']);
    expect(places(batches)).toEqual(['1']);
  });
});

test('C8 a request holds as many partitions as a broker accepts at once, and at least one', () => {
  const partitions = (bytes: number): PartitionBatches[] =>
    Array.from({ length: 5 }, () => batchesOf([null], bytes).batches);
  expect(fitting(partitions(100), 'none')).toHaveLength(5);
  expect(fitting(partitions(10_000_000), 'none')).toHaveLength(3);
  expect(fitting(partitions(100_000_000), 'none')).toHaveLength(1);
  // compressed in one turn of the event loop
  expect(fitting(partitions(100), 'gzip')).toHaveLength(5);
  expect(fitting(partitions(400_000), 'gzip')).toHaveLength(2);
  expect(fitting(partitions(900_000), 'lz4')).toHaveLength(1);
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
