// stream, with partitions: what several readers gain, and what partitions cost. A handler that takes a millisecond for
// each message is called by one reader, by two, by four, and by one with four partitions. A handler that only counts
// shows the cost: each partition scans the whole log.

import { relayUrl, Worker } from './harness/processes.js';
import { clockMs, until } from './harness/rounds.js';
import { ask } from './harness/server.js';
import type { BenchDatabase } from './harness/server.js';

type Counted = { handled: number; firstMs: number };

export type Readers = { readers: number; partitions: number; msPerMessage: number };

/** The first of each group is what the others are compared with. */
export const slowReaders: readonly Readers[] = [
  { readers: 1, partitions: 1, msPerMessage: 1 },
  { readers: 2, partitions: 2, msPerMessage: 1 },
  { readers: 4, partitions: 4, msPerMessage: 1 },
  { readers: 1, partitions: 4, msPerMessage: 1 },
];

export const fastReaders: readonly Readers[] = [
  { readers: 1, partitions: 1, msPerMessage: 0 },
  { readers: 1, partitions: 2, msPerMessage: 0 },
  { readers: 1, partitions: 4, msPerMessage: 0 },
  { readers: 1, partitions: 16, msPerMessage: 0 },
];

let cursors = 0;

/** Messages a second, from the first call until all partitions are behind the last message. */
export async function readTogether(
  { url, client }: BenchDatabase,
  messages: number,
  { readers, partitions, msPerMessage }: Readers,
): Promise<number> {
  cursors += 1;
  const cursor = `readers-${cursors}`;
  // they share the partitions first, and then begin together
  const workers = Array.from(
    { length: readers },
    () =>
      new Worker('bench/waybill/stream.mjs', [], {
        DATABASE_URL: relayUrl(url),
        BENCH_PROBE: 'count',
        BENCH_CURSOR: cursor,
        BENCH_FROM: 'now',
        BENCH_PARTITIONS: String(partitions),
        BENCH_SHARE: String(partitions / readers),
        BENCH_MS_PER_MESSAGE: String(msPerMessage),
        ...(msPerMessage > 0 && { BENCH_BATCH: '100' }),
      }),
  );
  try {
    for (const worker of workers) await worker.next('shared');
    await client.query(`SELECT outbox.reset_cursor('${cursor}', 'beginning')`);
    await until(async () =>
      ask<boolean>(
        client,
        `SELECT bool_and(target IS NULL AND seen::text <> '3:3:') AS answer FROM outbox.cursors WHERE name = '${cursor}'`,
      ),
    );
    const endMs = clockMs();
    const counts: Counted[] = [];
    for (const worker of workers)
      counts.push(await worker.ask<Counted>({ type: 'collect' }, 'counted'));
    const handled = counts.reduce((sum, count) => sum + count.handled, 0);
    if (handled !== messages)
      throw new Error(`${readers} readers: handled is ${handled} and not ${messages}`);
    const firstMs = Math.min(...counts.map((count) => count.firstMs || Infinity));
    return (messages / (endMs - firstMs)) * 1000;
  } finally {
    await Promise.all(workers.map((worker) => worker.stop()));
    await client.query(`SELECT outbox.delete_cursor('${cursor}', force => true)`);
  }
}
