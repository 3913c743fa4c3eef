// The destinations of a relay that read the log: each with a reader of its own. They have their pipelines too, for
// dead letters that are sent again.

import { defineCursor } from '../database/cursors.js';
import type { Database } from '../database/connection.js';
import type { Emit } from '../telemetry/events.js';
import { TokenBucket, rateOfShard } from './rate.js';
import type { RelaySetup } from './setup.js';
import { StreamReader } from './stream-reader.js';
import { StreamSender, callsTo, streamTo } from './stream-sender.js';

export type StreamsOptions = {
  work: Database;
  control: Database;
  relay: { id: string; name: string };
  emit: Emit;
};

const pollMs = 100;

/** Defines their cursors. */
export async function openStreams(
  { destinations, routes, relay, shard }: RelaySetup,
  { work, control, relay: { id, name: relayName }, emit }: StreamsOptions,
): Promise<StreamReader[]> {
  const readers: StreamReader[] = [];
  for (const [name, destination] of Object.entries(destinations)) {
    const { mode, from, timeoutMs, retry, classify, rate, whenDead } = destination.settings;
    if (mode !== 'stream') continue;
    const filters = routes.filter(({ to }) => to === name);
    await defineCursor(control, name, from, filters);
    const sender = new StreamSender({
      cursor: name,
      deliver: streamTo(name, destination),
      callsOf: callsTo(destination),
      timeoutMs,
      maxAttempts: retry.maxAttempts,
      whenExhausted: whenDead === 'block' ? 'block' : 'park',
      classify,
      // one reader at a time: it has the whole of it
      rate: rate && new TokenBucket(rateOfShard(rate, shard?.of ?? 1)),
      emit,
    });
    readers.push(
      new StreamReader({
        cursor: name,
        filters,
        database: work,
        control,
        reader: { id, name: relayName, leaseMs: relay.leaseMs },
        batchSize: Math.min(
          'batchSize' in destination ? destination.batchSize : relay.batchSize,
          rate?.burst ?? Number.POSITIVE_INFINITY,
        ),
        batchBytes: relay.batchBytes,
        pollMs,
        sender,
        emit,
      }),
    );
  }
  return readers;
}
