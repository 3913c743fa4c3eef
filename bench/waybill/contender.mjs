// Waybill as a contender: how messages are enqueued. `waybill start` delivers them.

import pg from 'pg';

import { createOutbox, migrateUp } from '../../dist/index.js';

const outbox = createOutbox();
const topic = 'bench.message';

/** The definitions of a relay with handler.config.mjs, applied earlier because preloaded messages need their routes. */
const definitions = {
  destinations: [
    { name: 'sink', kind: 'handler', maxAttempts: 10, retryBaseMs: 1000, retryMaxMs: 300_000 },
  ],
  // a reader of the log has no deliveries
  routes: process.env.BENCH_MODE === 'stream' ? [] : [{ topic: '*', to: 'sink' }],
};

/** Logins with only the role that they need, as in production: relay and producers own nothing. */
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
  await client.query('SELECT outbox.apply_definitions($1)', [JSON.stringify(definitions)]);
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
export function openProducer(_url, wakeUps) {
  if (wakeUps !== undefined) return wakeUpProducer(wakeUps);
  return {
    enqueue: (client, payloads) => outbox.enqueueMany(client, payloads.map(asMessage)),
    close() {},
  };
}

/** All three modes send the same statement except for the NOTIFY, so nothing else differs. */
function wakeUpProducer(mode) {
  const notify = mode === 'notify' ? ", pg_notify('bench_plain', '')" : '';
  const text = `SELECT e.id${notify} FROM outbox.enqueue_many($1::text::jsonb) e`;
  return {
    async prepare(client) {
      if (mode !== 'on') await client.query("SET waybill.notify = 'off'");
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
