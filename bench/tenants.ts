// tenants: the latency and delivery rate of a tenant with one endpoint, beside another tenant with 600 endpoints
// that never answer, compared with the same tenant without the other. The calls to the 600 need six times the
// relay's slots. The healthy endpoint takes a few milliseconds, as webhooks do, so it limits the rate, not the
// processor.

import { randomBytes } from 'node:crypto';

import { createEndpoints } from '../src/features/endpoints/endpoints.js';
import { contenderModule } from './harness/bench.js';
import type { Bench, BenchOptions } from './harness/bench.js';
import { Flow } from './harness/flow.js';
import { runToEnd, startRelay, Worker } from './harness/processes.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { interleave, median, pause, spread } from './harness/rounds.js';
import type { Spread } from './harness/rounds.js';
import { ask } from './harness/server.js';
import type { BenchDatabase, BenchServer } from './harness/server.js';

const answerMs = 10;
const load = { rate: 100, perTransaction: 1, heldEvery: 1000, heldMs: 0 };
const secretKey = randomBytes(32).toString('base64');
/** The only tenant in the messages of bench/waybill/contender.mjs. */
const wellTenant = 'tenant 0';
const wellEndpoint = 'well';
const hangingTenant = 'hanging';

type Sizes = { endpoints: number; messagesEach: number; backlog: number; seconds: number };
type Figure = { latency: Spread; perSecond: number };

function sizesOf({ tiny, messages, seconds }: BenchOptions): Sizes {
  return {
    endpoints: tiny ? 10 : 600,
    messagesEach: tiny ? 5 : 20,
    backlog: messages ?? (tiny ? 100 : 5000),
    seconds: seconds ?? (tiny ? 0.5 : 10),
  };
}

export const tenants: Bench = async (server, options) => {
  const sizes = sizesOf(options);
  const names = ['alone', 'beside'] as const;
  const figures = await interleave(options.rounds, names, async (name, round) => {
    const figure = await measure(server, sizes, name === 'beside');
    const { latency, perSecond } = figure;
    progress(
      `round ${round + 1}: ${name} p50 ${shown(latency.p50)} ms, p99 ${shown(latency.p99)} ms, ${shown(perSecond)}/s`,
    );
    return figure;
  });
  const over = (name: (typeof names)[number]) => ({
    p50: median(figures[name].map(({ latency }) => latency.p50)),
    p99: median(figures[name].map(({ latency }) => latency.p99)),
    perSecond: median(figures[name].map(({ perSecond }) => perSecond)),
  });
  const [alone, beside] = [over('alone'), over('beside')];
  printSettings('Tenants', { ...sizes, answerMs, rounds: options.rounds, load });
  printTable(
    ['the healthy tenant', 'p50 ms', 'p99 ms', 'deliveries/s'],
    [
      ['alone', alone.p50, alone.p99, alone.perSecond],
      [`beside ${sizes.endpoints} that hang`, beside.p50, beside.p99, beside.perSecond],
    ],
  );
  const ratio = beside.p99 / alone.p99;
  const ratioOfRates = beside.perSecond / alone.perSecond;
  return {
    waybill: beside,
    peers: {},
    limit: alone,
    ratioToBestPeer: null,
    ratioToLimit: ratioOfRates,
    ratio,
    ratioOfP50: beside.p50 / alone.p50,
    ratioOfRates,
    ...sizes,
    aims: [
      { what: 'p99 beside endpoints that hang / alone', atMost: 2, actual: ratio },
      { what: 'rate beside endpoints that hang / alone', atLeast: 0.95, actual: ratioOfRates },
    ],
  };
};

async function measure(server: BenchServer, sizes: Sizes, hanging: boolean): Promise<Figure> {
  const database = await server.createDatabase('tenants');
  const environment = {
    DATABASE_URL: database.url,
    WAYBILL_SECRET_KEY: secretKey,
    BENCH_PROBE: 'latency',
    BENCH_TENANTS: '1',
    BENCH_ANSWER_MS: String(answerMs),
  };
  // without a route, so only endpoints get the messages
  await runToEnd('bench/processes/prepare.mjs', [contenderModule.waybill, '0', '0'], {
    ...environment,
    BENCH_MODE: 'stream',
  });
  const receiver = new Worker('bench/processes/endpoint-receiver.mjs', [], environment);
  let relay: Worker | undefined;
  try {
    const { url } = await receiver.next<{ url: string }>('ready');
    await addEndpoints(database, url, hanging ? sizes.endpoints : 0);
    relay = startRelay('tenants.config.mjs', database.url, environment);
    const flow = await Flow.between(receiver, contenderModule.waybill, environment);
    try {
      if (hanging) await hang(database, receiver, sizes);
      const latency = spread(await flow.measure(load, sizes.seconds));
      const perSecond = await deliverBacklog(database, receiver, sizes.backlog);
      const left = await ask<number>(
        database.client,
        `SELECT ((SELECT count(*) FROM outbox.deliveries)
                 + (SELECT coalesce(sum(remaining), 0) FROM outbox.leases))::int AS answer`,
      );
      if (hanging && left === 0) throw new Error('nothing is left that hangs: measure less');
      return { latency, perSecond };
    } finally {
      await flow.close();
    }
  } finally {
    await relay?.stop();
    await receiver.stop();
    await database.drop();
  }
}

async function addEndpoints(
  { client }: BenchDatabase,
  url: string,
  hanging: number,
): Promise<void> {
  const endpoints = createEndpoints({ secretKey, allowedNetworks: ['127.0.0.0/8'] });
  await client.query('UPDATE outbox.endpoint_settings SET max_per_tenant = 1000');
  await client.query('BEGIN');
  await endpoints.add(client, {
    name: wellEndpoint,
    url: `${url}/fine`,
    topics: ['*'],
    tenantId: wellTenant,
  });
  for (let n = 0; n < hanging; n += 1)
    await endpoints.add(client, {
      url: `${url}/hanging`,
      topics: ['*'],
      tenantId: hangingTenant,
    });
  await client.query('COMMIT');
}

/** Returns when the hanging endpoints hold all slots that they can get: no further call has begun for a second. */
async function hang(
  { client }: BenchDatabase,
  receiver: Worker,
  { endpoints, messagesEach }: Sizes,
): Promise<void> {
  await enqueueBacklog(client, hangingTenant, messagesEach);
  const count = async () =>
    (await receiver.ask<{ hanging: number }>({ type: 'count' }, 'counted')).hanging;
  let [before, now] = [-1, 0];
  while (now === 0 || now > before) {
    await pause(1000);
    [before, now] = [now, await count()];
  }
  progress(`${shown(now)} calls to ${shown(endpoints)} endpoints hang`);
}

/** Deliveries a second of a backlog that is complete before the first delivery. */
async function deliverBacklog(
  { client }: BenchDatabase,
  receiver: Worker,
  messages: number,
): Promise<number> {
  await client.query('SELECT outbox.set_paused($1, true)', [wellEndpoint]);
  await enqueueBacklog(client, wellTenant, messages);
  await client.query('VACUUM ANALYZE outbox.deliveries');
  receiver.send({ type: 'expect', count: messages });
  await client.query('SELECT outbox.set_paused($1, false)', [wellEndpoint]);
  const { firstMs, lastMs } = await receiver.next<{ firstMs: number; lastMs: number }>('reached');
  return (messages / (lastMs - firstMs)) * 1000;
}

async function enqueueBacklog(
  client: BenchDatabase['client'],
  tenantId: string,
  messages: number,
): Promise<void> {
  await client.query(
    `SELECT count(e)
       FROM generate_series(0, $1 - 1, 1000) first,
            LATERAL outbox.enqueue_many((
              SELECT jsonb_agg(jsonb_build_object(
                       'topic', 'bench.message',
                       'tenantId', $2::text,
                       'payload', jsonb_build_object('n', -2, 'text', repeat('x', 480))))
                FROM generate_series(first, least(first + 1000, $1) - 1) n)) e`,
    [messages, tenantId],
  );
}
