// changes: a service changes a thousand rows a minute of a watched table, each in its own transaction, and a handler
// receives the messages. Measures the latency from the return of COMMIT to the start of the handler, the share of
// changes that arrived, and the bytes kept per message. From these follows the size after a year: retention drops
// older messages, so it is the size of the hours that are kept.

import type { Bench } from './harness/bench.js';
import { Flow } from './harness/flow.js';
import { printSettings, printTable, progress } from './harness/report.js';
import { pause, spread } from './harness/rounds.js';
import { ask } from './harness/server.js';
import type { BenchDatabase } from './harness/server.js';
import { keptBytes } from './soak.js';

const perMinute = 1000;
const keptHours = 72;
const gigabyte = 1e9;

export const changes: Bench = async (server, options) => {
  const minutes = options.minutes ?? (options.tiny ? 0.02 : 5);
  const load = {
    rate: (options.tiny ? 60 : 1) * (perMinute / 60),
    perTransaction: 1,
    heldEvery: 50,
    heldMs: 200,
  };
  const database = await server.createDatabase('changes');
  const flow = await Flow.open('waybill', database.url, {}, 'waybill/jobs.mjs');
  try {
    const before = await kept(database);
    flow.start(load);
    for (let minute = 0; minute < minutes; minute += 1) {
      await pause(Math.min(minutes - minute, 1) * 60_000);
      progress(`${minute + 1} of ${minutes} minutes`);
    }
    await flow.stop();
    const latencies = await flow.takeAll();
    const after = await kept(database);
    const messages = after.messages - before.messages;
    const bytesPerMessage = (after.bytes - before.bytes) / messages;
    const sizeOf = (hours: number): number => bytesPerMessage * perMinute * 60 * hours;
    const size = {
      bytesPerMessage,
      keptHours,
      gigabytesAfterAYear: sizeOf(keptHours) / gigabyte,
      hoursInAGigabyte: gigabyte / sizeOf(1),
    };
    const figures = spread(latencies);
    const deliveredShare = latencies.length / messages;
    printSettings('Changes', { perMinute, minutes, messages, ...load });
    printTable(
      ['from COMMIT to the handler, ms', 'p50', 'p95', 'p99', 'max'],
      [['waybill', figures.p50, figures.p95, figures.p99, figures.max]],
    );
    printTable(
      ['what is kept', ''],
      [
        ['bytes a message, its delivery and indexes included', bytesPerMessage],
        [`GB after a year, ${keptHours} hours kept`, size.gigabytesAfterAYear],
        ['hours that fit into 1 GB', size.hoursInAGigabyte],
      ],
    );
    return {
      waybill: figures.p99,
      peers: {},
      limit: null,
      ratioToBestPeer: null,
      ratioToLimit: null,
      minutes,
      messages,
      deliveredShare,
      size,
      aims: [
        { what: 'p99 from COMMIT to the handler, ms', atMost: 100, actual: figures.p99 },
        { what: 'share delivered', atLeast: 0.999, actual: deliveredShare },
        {
          what: `GB after a year, ${keptHours} hours kept`,
          atMost: 1,
          actual: size.gigabytesAfterAYear,
        },
      ],
    };
  } finally {
    await flow.close();
    await database.drop();
  }
};

async function kept(database: BenchDatabase): Promise<{ bytes: number; messages: number }> {
  return {
    bytes: await keptBytes(database),
    messages: await ask(database.client, 'SELECT count(*)::float8 AS answer FROM outbox.messages'),
  };
}
