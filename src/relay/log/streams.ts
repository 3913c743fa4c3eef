// Destinations of a relay in stream mode: makes a log reader for each. They also have pipelines, for dead letters
// that are retried.

import type { Database } from '../../database/connection.js';
import type { Emit } from '../../telemetry/events.js';
import { TokenBucket, rateOfShard } from '../delivery/rate-limiter.js';
import type { RelaySetup } from '../setup.js';
import { StreamReader } from './stream-reader.js';
import { StreamSender, callsTo, streamTo } from './stream-sender.js';

export type StreamsOptions = {
  work: Database;
  control: Database;
  relay: { id: string; name: string };
  emit: Emit;
  drain: { maxMessages: number } | null;
};

const pollMs = 100;

/** Their cursors exist already: they are stored with the definitions. */
export function openStreams(
  { destinations, relay, shard }: RelaySetup,
  { work, control, relay: { id, name: relayName }, emit, drain }: StreamsOptions,
): StreamReader[] {
  const readers: StreamReader[] = [];
  for (const [name, destination] of Object.entries(destinations)) {
    const { mode, timeoutMs, retry, classify, rate, whenDead } = destination.settings;
    if (mode !== 'stream') continue;
    const senderOf = ({ partition, partitions }: { partition: number; partitions: number }) =>
      new StreamSender({
        cursor: name,
        partition,
        deliver: streamTo(name, destination),
        callsOf: callsTo(destination),
        timeoutMs,
        maxAttempts: retry.maxAttempts,
        whenExhausted: whenDead === 'block' ? 'block' : 'park',
        classify,
        // one reader at a time has the whole rate limit of a partition
        rate: rate && new TokenBucket(rateOfShard(rate, (shard?.of ?? 1) * partitions)),
        emit,
      });
    readers.push(
      new StreamReader({
        cursor: name,
        database: work,
        control,
        reader: { id, name: relayName, leaseMs: relay.leaseMs },
        batchSize: Math.min(
          'batchSize' in destination ? destination.batchSize : relay.batchSize,
          rate?.burst ?? Number.POSITIVE_INFINITY,
        ),
        batchBytes: relay.batchBytes,
        pollMs,
        senderOf,
        emit,
        drain,
      }),
    );
  }
  return readers;
}
