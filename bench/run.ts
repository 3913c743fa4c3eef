// npm run bench -- NAME: starts a PostgreSQL, runs one bench on it, and prints the results.

import { parseArgs } from 'node:util';

import type { Bench, BenchOptions } from './harness/bench.js';
import { nodeVersion, preparePeers } from './harness/processes.js';
import { describeMachine, printAims, printSettings, progress } from './harness/report.js';
import { startServer } from './harness/server.js';

/** Loaded on demand: loading the imports of all benches takes seconds. */
const benches: Record<string, () => Promise<Bench>> = {
  drain: async () => (await import('./drain.js')).drain,
  stream: async () => (await import('./stream.js')).stream,
  keyed: async () => (await import('./keyed.js')).keyed,
  fairness: async () => (await import('./fairness.js')).fairness,
  isolation: async () => (await import('./isolation.js')).isolation,
  tenants: async () => (await import('./tenants.js')).tenants,
  endpoints: async () => (await import('./endpoints.js')).endpoints,
  webhook: async () => (await import('./webhook.js')).webhook,
  kafka: async () => (await import('./kafka.js')).kafka,
  enqueue: async () => (await import('./enqueue.js')).enqueue,
  latency: async () => (await import('./latency.js')).latency,
  xmin: async () => (await import('./xmin.js')).xmin,
  growth: async () => (await import('./growth.js')).growth,
  soak: async () => (await import('./soak.js')).soak,
  watch: async () => (await import('./watch.js')).watch,
  changes: async () => (await import('./changes.js')).changes,
  relays: async () => (await import('./relays.js')).relays,
  page: async () => (await import('./page.js')).page,
  seal: async () => (await import('./seal.js')).seal,
  storage: async () => (await import('./storage.js')).storage,
  held: async () => (await import('./held.js')).held,
  hardbyte: async () => (await import('./hardbyte.js')).hardbyte,
};

const usage = `Usage: npm run bench -- NAME [options]

Benches: ${Object.keys(benches).join(', ')}

Options:
  --json          one JSON object as the last line
  --rounds N      rounds of every measurement (default 5)
  --messages N    instead of the bench's own number
  --seconds N     instead of the bench's own length of a measurement
  --minutes N     length of soak (default 10) and changes (default 5)
  --keep DIR      page: keep the database there, and use it again while its size is the same
  --cell NAME     hardbyte: this cell only
  --no-peers      Waybill and the limit only
  --tiny          tiny numbers: proves that the bench works, measures nothing
`;

function positive(name: string, value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  const number = Number(value);
  if (!(number > 0)) throw new Error(`--${name} is ${value}: give a number above 0`);
  return number;
}

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      json: { type: 'boolean', default: false },
      rounds: { type: 'string' },
      messages: { type: 'string' },
      seconds: { type: 'string' },
      minutes: { type: 'string' },
      keep: { type: 'string' },
      cell: { type: 'string' },
      'no-peers': { type: 'boolean', default: false },
      tiny: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const [name = ''] = positionals;
  const load = benches[name];
  if (values.help || load === undefined || positionals.length > 1) {
    process.stderr.write(usage);
    return values.help ? 0 : 2;
  }
  const bench = await load();
  const { tiny } = values;
  const options: BenchOptions = {
    tiny,
    rounds: positive('rounds', values.rounds) ?? (tiny ? 1 : 5),
    messages: positive('messages', values.messages),
    seconds: positive('seconds', values.seconds),
    minutes: positive('minutes', values.minutes),
    keep: values.keep,
    cell: values.cell,
    peersLeftOut: values['no-peers'] ? 'of --no-peers' : preparePeers(!tiny),
  };
  if (options.peersLeftOut !== null) progress(`The peers are left out: ${options.peersLeftOut}.`);

  const [url, template] = [process.env['BENCH_TINY_SERVER'], process.env['BENCH_TINY_TEMPLATE']];
  const lent = tiny && url && template ? { url, template } : undefined;
  const server = await startServer({
    durable: !tiny,
    dataDirectory: options.keep,
    ...(lent && { lent }),
  });
  try {
    const machine = describeMachine(server, nodeVersion());
    printSettings('Machine', machine);
    printSettings('PostgreSQL', server.settings);
    const { aims, ...figures } = await bench(server, options);
    printAims(tiny ? [] : aims);
    if (values.json) {
      const settings = { ...server.settings, rounds: options.rounds, tiny };
      process.stdout.write(
        `${JSON.stringify({ bench: name, ...figures, aims, peersLeftOut: options.peersLeftOut, machine, settings })}\n`,
      );
    }
    return 0;
  } finally {
    await server.remove();
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  process.stderr.write(
    `${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`,
  );
  process.exitCode = 1;
}
