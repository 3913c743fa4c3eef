// endpoints: deliveries a second to thousands of endpoints, each of another tenant, compared with a single webhook of the
// configuration. The messages are spread evenly, or half of them belong to one endpoint. Then the rate of the healthy
// endpoints beside a tenth that hang and a tenth that answer 500, compared with the same endpoints alone. Also measured:
// the time from the start of the relay's process to its first request, the most memory of the relay, and the warnings in
// its log, without those of failed deliveries.

import { readFileSync } from 'node:fs';

import { parseSecretKeys } from '../src/core/sealed-secret.js';
import { sealSecret } from '../src/features/endpoints/secrets.js';
import { contenderModule } from './harness/bench.js';
import type { Bench, BenchOptions } from './harness/bench.js';
import { runToEnd, startRelay, Worker } from './harness/processes.js';
import { countProcessorTime } from './harness/processor-time.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { clockMs, interleave, median, until } from './harness/rounds.js';
import { ask, serverProcesses } from './harness/server.js';
import type { BenchDatabase, BenchServer } from './harness/server.js';

const payloadBytes = 500;
const connections = 64;
const addresses = 20;
const secretKey = Buffer.alloc(32, 7).toString('base64');
const secret = Buffer.alloc(32, 7).toString('base64');
const perStatement = 1000;

type Reached = { firstMs: number; lastMs: number };

type Scenario = {
  title: string;
  /** 0: a webhook of the configuration instead. */
  endpoints: number;
  spread: 'even' | 'half to one';
  /** What a tenth of the endpoints each do: hang and fail, or get no messages. */
  troubled: 'as the others' | 'hang and fail' | 'without messages';
};

type Figure = {
  perSecond: number;
  /** Processor time for each message, in microseconds. */
  relayMicroseconds: number;
  serverMicroseconds: number;
  startMs: number;
  megabytes: number;
  warnings: number;
};

function scenariosOf({ tiny }: BenchOptions): Record<string, Scenario> {
  const [few, many, most] = tiny ? [2, 20, 40] : [100, 10_000, 100_000];
  const even = { spread: 'even', troubled: 'as the others' } as const;
  const count = (endpoints: number): string => `${shown(endpoints)} endpoints`;
  return {
    webhook: { title: 'a single webhook', endpoints: 0, ...even },
    one: { title: 'one endpoint', endpoints: 1, ...even },
    few: { title: count(few), endpoints: few, ...even },
    many: { title: count(many), endpoints: many, ...even },
    half: { ...even, title: `${count(many)}, half to one`, endpoints: many, spread: 'half to one' },
    alone: {
      title: `healthy ones of ${shown(many)}, alone`,
      endpoints: many,
      spread: 'even',
      troubled: 'without messages',
    },
    beside: {
      title: `beside a tenth that hang and a tenth that fail`,
      endpoints: many,
      spread: 'even',
      troubled: 'hang and fail',
    },
    most: { title: count(most), endpoints: most, ...even },
  };
}

export const endpoints: Bench = async (server, options) => {
  const all = scenariosOf(options);
  const only = process.env['BENCH_ONLY']?.split(',');
  const scenarios = Object.fromEntries(
    Object.entries(all).filter(([name]) => only === undefined || only.includes(name)),
  );
  const messages = options.messages ?? (options.tiny ? 80 : 100_000);
  const receiver = new Worker('bench/processes/troubled-receiver.mjs', [], {
    BENCH_ANSWER_MS: '0',
    BENCH_ADDRESSES: String(addresses),
  });
  try {
    const { urls } = await receiver.next<{ urls: string[] }>('ready');
    const figures = await interleave(
      options.rounds,
      Object.keys(scenarios),
      async (name, round) => {
        const scenario = scenarios[name] as Scenario;
        const figure = await measure(server, receiver, urls, scenario, messages);
        const { perSecond, startMs, megabytes, warnings } = figure;
        progress(
          `round ${round + 1}: ${scenario.title} ${shown(perSecond)}/s, start ${shown(startMs)} ms, ${shown(megabytes)} MB, ${warnings} warnings`,
        );
        return figure;
      },
    );
    const of = (name: string, field: keyof Figure): number =>
      median((figures[name] ?? []).map((figure) => figure[field]));
    const rate = (name: string): number => of(name, 'perSecond');
    printSettings('Endpoints', { messages, payloadBytes, connections, rounds: options.rounds });
    printTable(
      [
        '',
        'deliveries/s',
        'ratio',
        'µs of the relay',
        'PostgreSQL',
        'start ms',
        'relay MB',
        'warnings',
      ],
      Object.entries(scenarios).map(([name, { title }]) => [
        title,
        rate(name),
        rate(name) / rate('webhook'),
        of(name, 'relayMicroseconds'),
        of(name, 'serverMicroseconds'),
        of(name, 'startMs'),
        of(name, 'megabytes'),
        of(name, 'warnings'),
      ]),
    );
    const warnings = Math.max(
      ...Object.values(figures).map((each) => Math.max(...each.map((figure) => figure.warnings))),
    );
    const ratio = rate('many') / rate('webhook');
    const ratioBeside = rate('beside') / rate('alone');
    return {
      waybill: rate('many'),
      peers: {},
      limit: rate('webhook'),
      ratioToBestPeer: null,
      ratioToLimit: ratio,
      ratioBeside,
      ratioHalfToOne: rate('half') / rate('webhook'),
      ratioOfMost: rate('most') / rate('webhook'),
      megabytes: of('most', 'megabytes'),
      startMs: of('most', 'startMs'),
      warnings,
      messages,
      aims: [
        { what: 'rate of thousands of endpoints / of a webhook', atLeast: 0.6, actual: ratio },
        { what: 'healthy ones beside failing ones / alone', atLeast: 0.95, actual: ratioBeside },
        { what: 'MB of the relay, most endpoints', atMost: 400, actual: of('most', 'megabytes') },
        { what: 'ms to start, most endpoints', atMost: 10_000, actual: of('most', 'startMs') },
        { what: 'warnings in the log', atMost: 0, actual: warnings },
      ],
    };
  } finally {
    await receiver.stop();
  }
};

/** Two of ten endpoints may be in trouble; these are the first two of each ten. */
function pathOf(n: number, { troubled }: Scenario): string {
  if (troubled !== 'hang and fail' || n % 10 > 1) return `/fine/${n}`;
  return n % 10 === 0 ? `/hanging/${n}` : `/failing/${n}`;
}

async function measure(
  server: BenchServer,
  receiver: Worker,
  urls: readonly string[],
  scenario: Scenario,
  messages: number,
): Promise<Figure> {
  const database = await server.createDatabase('endpoints');
  try {
    await runToEnd('bench/processes/prepare.mjs', [contenderModule.waybill, '0', '0'], {
      DATABASE_URL: database.url,
      // without a route, so only endpoints get the messages
      ...(scenario.endpoints > 0 && { BENCH_MODE: 'stream' }),
    });
    const healthy = await load(database, urls, scenario, messages);
    receiver.send({ type: 'expect', count: healthy });
    const startedMs = clockMs();
    const relay =
      scenario.endpoints === 0
        ? startRelay('webhook.config.mjs', database.url, {
            BENCH_URL: `${urls[0]}/fine`,
            BENCH_CONNECTIONS: String(connections),
            BENCH_SECRET: secret,
          })
        : startRelay('endpoints.config.mjs', database.url, { WAYBILL_SECRET_KEY: secretKey });
    try {
      await receiver.next('begun');
      const spent = await countProcessorTime(async () => ({
        relay: [relay.pid],
        server: await serverProcesses(database),
      }));
      const { firstMs, lastMs } = await receiver.next<Reached>('reached');
      const spentMs = await spent();
      if (scenario.troubled !== 'hang and fail') await drained(database);
      return {
        perSecond: (healthy / (lastMs - firstMs)) * 1000,
        relayMicroseconds: ((spentMs.relay ?? Number.NaN) * 1000) / healthy,
        serverMicroseconds: ((spentMs.server ?? Number.NaN) * 1000) / healthy,
        startMs: firstMs - startedMs,
        megabytes: peakMegabytes(relay.pid),
        warnings: relay.warnings,
      };
    } finally {
      await relay.stop();
    }
  } finally {
    await database.drop();
  }
}

/** Adds the endpoints and their messages; returns how many messages belong to healthy ones. */
async function load(
  { client }: BenchDatabase,
  urls: readonly string[],
  scenario: Scenario,
  messages: number,
): Promise<number> {
  const keys = parseSecretKeys(secretKey) ?? [];
  const { endpoints: count, spread, troubled } = scenario;
  for (let first = 0; first < count; first += perStatement) {
    const added = Array.from({ length: Math.min(perStatement, count - first) }, (_, index) => {
      const n = first + index;
      const name = `endpoint-${n}`;
      const url = `${urls[n % urls.length]}${pathOf(n, scenario)}`;
      const sealed = sealSecret(keys, name, `whsec_${secret}`);
      return { name, endpoint: { url, topics: [`to.${n}`], tenantId: `tenant ${n}`, ...sealed } };
    });
    await client.query(
      `SELECT count(outbox.add_endpoint(x.name, x.endpoint))
         FROM jsonb_to_recordset($1::jsonb) AS x(name text, endpoint jsonb)`,
      [JSON.stringify(added)],
    );
  }
  await client.query('VACUUM ANALYZE');
  const receiverOf = (m: number): number =>
    spread === 'half to one' && m % 2 === 0 ? 0 : m % Math.max(count, 1);
  let healthy = 0;
  for (let first = 0; first < messages; first += perStatement) {
    const numbers = Array.from(
      { length: Math.min(perStatement, messages - first) },
      (_, index) => first + index,
    );
    const batch = numbers
      .filter((m) => troubled !== 'without messages' || receiverOf(m) % 10 > 1)
      .map((m) => {
        const n = receiverOf(m);
        if (pathOf(n, scenario).startsWith('/fine')) healthy += 1;
        return {
          topic: `to.${n}`,
          tenantId: `tenant ${n}`,
          payload: { n: m, text: 'x'.repeat(payloadBytes - 20) },
        };
      });
    await client.query('SELECT count(e) FROM outbox.enqueue_many($1) e', [JSON.stringify(batch)]);
  }
  await client.query('VACUUM ANALYZE');
  await client.query('CHECKPOINT');
  return healthy;
}

async function drained({ client }: BenchDatabase): Promise<void> {
  await until(
    async () =>
      !(await ask<boolean>(
        client,
        'SELECT EXISTS (SELECT FROM outbox.deliveries) OR EXISTS (SELECT FROM outbox.leases) AS answer',
      )),
  );
}

/** The most physical memory that the process has had; NaN where the system does not say. */
function peakMegabytes(pid: number): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1] ?? Number.NaN) / 1024;
  } catch {
    return Number.NaN;
  }
}
