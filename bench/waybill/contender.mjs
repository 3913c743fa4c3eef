// Waybill's own side of the benches: how messages get in. They get out through `waybill start`.

import pg from 'pg';

import { createOutbox, migrateUp } from '../../dist/index.js';

const outbox = createOutbox();
const topic = 'bench.message';

/** As a relay with handler.config.mjs would define them at its start; the preload must be routed before. */
const definitions = {
  destinations: [
    { name: 'sink', kind: 'handler', maxAttempts: 10, retryBaseMs: 1000, retryMaxMs: 300_000 },
  ],
  // who reads the log gets no deliveries
  routes: process.env.BENCH_MODE === 'stream' ? [] : [{ topic: '*', to: 'sink' }],
};

/** Everybody works with the role that it needs, as in production: a relay here and its producers own nothing. */
const logins = { bench_producer: 'waybill_producer', bench_relay: 'waybill_relay' };

export function producerUrl(url) {
  return Object.assign(new URL(url), { username: 'bench_producer' }).href;
}

export async function install(url) {
  await migrateUp({ url });
  const client = await connect(url);
  await client.query('SELECT outbox.install_roles()');
  for (const [login, role] of Object.entries(logins)) {
    const { rowCount } = await client.query('SELECT FROM pg_roles WHERE rolname = $1', [login]);
    if (rowCount === 0) await client.query(`CREATE ROLE ${login} LOGIN IN ROLE ${role}`);
  }
  await client.query('SELECT outbox.sync_definitions($1)', [JSON.stringify(definitions)]);
  await client.end();
}

export async function openLoader(url) {
  const client = await connect(producerUrl(url));
  return {
    load: (payloads, keyOf) =>
      outbox.enqueueMany(
        client,
        payloads.map((payload) => ({ ...asMessage(payload), key: keyOf?.(payload) })),
        { autonomous: true },
      ),
    close: () => client.end(),
  };
}

/** Enqueues inside the transaction that is open on the client. */
export function openProducer(_url, doorbell) {
  if (doorbell !== undefined) return doorbellProducer(doorbell);
  return {
    enqueue: (client, payloads) => outbox.enqueueMany(client, payloads.map(asMessage)),
    close() {},
  };
}

/** All three modes send the same statement but for the NOTIFY, so that nothing else differs. */
function doorbellProducer(mode) {
  const notify = mode === 'notify' ? ", pg_notify('bench_plain', '')" : '';
  const text = `SELECT e.id${notify} FROM outbox.enqueue_many($1::text::jsonb) e`;
  return {
    async prepare(client) {
      if (mode !== 'on') await client.query("SET waybill.doorbell = 'off'");
    },
    enqueue: (client, payloads) => client.query(text, [JSON.stringify(payloads.map(asMessage))]),
    close() {},
  };
}

const tenants = Number(process.env.BENCH_TENANTS ?? 0);

function asMessage(payload) {
  return tenants > 0
    ? { topic, payload, tenantId: `tenant ${payload.n % tenants}` }
    : { topic, payload };
}

async function connect(url) {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  return client;
}
