// stream: how fast the log is read with a cursor, from the first handler call until the cursor has passed the last
// message. Compared with the same backlog drained as deliveries, and with a bare cursor read. The run fails unless
// every message was handed over exactly once. Then the same with partitions (stream-readers.ts).

import type { Bench, BenchOptions } from './harness/bench.js';
import { ratio } from './harness/bench.js';
import { drainOnce, messageCount, readLog } from './drain.js';
import { relayUrl, Worker } from './harness/processes.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { clockMs, median, until } from './harness/rounds.js';
import { ask, watchWal } from './harness/server.js';
import { fastReaders, readTogether, slowReaders } from './stream-readers.js';
import type { Readers } from './stream-readers.js';
import type { BenchDatabase, BenchServer } from './harness/server.js';

type Counted = { handled: number; distinct: number; firstMs: number };
type StreamFigure = { perSecond: number; walBytesPerMessage: number };

/**
 * Has a row once all partitions of the cursor have read their only window and stored that. Until then `seen` is '3:3:',
 * nothing_seen() in cursors.sql.
 */
export const streamEnd =
  "SELECT FROM outbox.cursors HAVING bool_and(target IS NULL AND seen::text <> '3:3:')";

export const stream: Bench = async (server, options) => {
  const messages = messageCount(options);
  const streams: StreamFigure[] = [];
  const drains: number[] = [];
  const limits: number[] = [];
  for (let round = 0; round < options.rounds; round += 1) {
    const database = await server.createDatabase('stream');
    try {
      // the stream and the bare read use the log that the drain left; their order changes from round to round
      drains.push((await drainOnce('waybill', database, { messages })).perSecond);
      const readers = [
        async () => void streams.push(await streamOnce(database, messages)),
        async () => void limits.push(await readLog(database, messages)),
      ];
      for (const read of round % 2 === 0 ? readers : readers.toReversed()) await read();
      progress(
        `round ${round + 1}: stream ${shown(streams.at(-1)?.perSecond ?? 0)}/s, limit ${shown(limits.at(-1) ?? 0)}/s, deliveries ${shown(drains.at(-1) ?? 0)}/s`,
      );
    } finally {
      await database.drop();
    }
  }

  const rates = streams.map(({ perSecond }) => perSecond);
  const wal = median(streams.map(({ walBytesPerMessage }) => walBytesPerMessage));
  const limit = median(limits);
  const drained = median(drains);
  const row = (name: string, values: readonly number[], bytes: number | string) => [
    name,
    median(values),
    Math.min(...values),
    Math.max(...values),
    bytes,
  ];
  printSettings('Stream', { messages, payloadBytes: 500, rounds: options.rounds });
  printTable(
    ['reader', 'messages/s', 'lowest', 'highest', 'WAL bytes/message'],
    [
      row('waybill stream', rates, wal),
      row('waybill deliveries', drains, ''),
      row('limit: bare cursor read', limits, ''),
    ],
  );
  const partitions = {
    slow: await withPartitions(server, options, slowReaders),
    fast: await withPartitions(server, options, fastReaders),
  };
  const ratioToLimit = ratio(median(rates), limit);
  const ratioToDeliveries = ratio(median(rates), drained);
  return {
    waybill: median(rates),
    peers: {},
    limit,
    deliveries: drained,
    ratioToBestPeer: null,
    ratioToLimit,
    ratioToDeliveries,
    messages,
    partitions,
    walBytesPerMessage: wal,
    aims: [
      { what: 'share of the limit', atLeast: 0.6, actual: ratioToLimit ?? 0 },
      { what: 'times the deliveries', atLeast: 2, actual: ratioToDeliveries ?? 0 },
    ],
  };
};

/** Reads one log with each number of readers and partitions, and compares them with the first. */
async function withPartitions(
  server: BenchServer,
  options: BenchOptions,
  contenders: readonly Readers[],
): Promise<Record<string, number>> {
  const isSlow = contenders.some(({ msPerMessage }) => msPerMessage > 0);
  const messages = options.tiny ? 200 : isSlow ? 8000 : messageCount(options);
  const names = contenders.map(({ readers, partitions }) => `${readers} of ${partitions}`);
  const figures = Object.fromEntries(names.map((name) => [name, [] as number[]]));
  const database = await server.createDatabase('stream');
  try {
    await drainOnce('waybill', database, { messages });
    for (let round = 0; round < options.rounds; round += 1)
      for (const [index, contender] of contenders.entries())
        figures[names[index] ?? '']?.push(await readTogether(database, messages, contender));
  } finally {
    await database.drop();
  }
  const rates = Object.values(figures).map((values) => median(values));
  printSettings(isSlow ? 'A handler that takes 1 ms for each message' : 'A handler that counts', {
    messages,
    rounds: options.rounds,
  });
  printTable(
    ['readers', 'partitions', 'messages/s', 'times the first'],
    contenders.map(({ readers, partitions }, index) => [
      readers,
      partitions,
      rates[index] ?? 0,
      ratio(rates[index] ?? 0, rates[0])?.toFixed(2) ?? '',
    ]),
  );
  return Object.fromEntries(names.map((name, index) => [name, rates[index] ?? 0]));
}

async function streamOnce({ url, client }: BenchDatabase, messages: number): Promise<StreamFigure> {
  const walBytes = await watchWal(client);
  const worker = new Worker('bench/waybill/stream.mjs', [], {
    DATABASE_URL: relayUrl(url),
    BENCH_PROBE: 'count',
    BENCH_EXPECTED: String(messages),
  });
  try {
    await worker.next('reached');
    await until(async () => ask<boolean>(client, `SELECT EXISTS (${streamEnd}) AS answer`));
    const endMs = clockMs();
    const wal = await walBytes();
    const { handled, distinct, firstMs } = await worker.ask<Counted>(
      { type: 'collect' },
      'counted',
    );
    for (const [what, count] of Object.entries({ handled, distinct }))
      if (count !== messages) throw new Error(`stream: ${what} is ${count} and not ${messages}`);
    return {
      perSecond: (messages / (endMs - firstMs)) * 1000,
      walBytesPerMessage: wal / messages,
    };
  } finally {
    await worker.stop();
  }
}
