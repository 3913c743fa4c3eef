// The registrations site changes over to Waybill: shadow, then 10, 50 and 100 percent, then the old trigger is retired.
// Events of every kind arrive, and one that n8n rejects waits for its retries. Run it with `npm run example --
// registrations`.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';

import pg from 'pg';
import { migrateUp } from 'waybill';

import { startReceiver } from './receiver.mjs';

const refused = new Set();
let logged = 0;
const n8n = await startReceiver(({ data }) => (refused.has(data.email) ? 500 : 200));
process.env.N8N_URL = n8n.url;
process.env.DRAIN_TOKEN = randomUUID();
const { POST } = await import('./processor.mjs');

await migrateUp();
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
const script = (name) => client.query(readFileSync(new URL(name, import.meta.url), 'utf8'));
await script('site.sql');
await script('schema.sql');
await drain();
await script('old-system.sql');

await client.query("SELECT outbox.set_rollout('registrations', shadow => true)");
await register(40);
await drain();
const { rows: verdicts } = await client.query(
  "SELECT verdict, count FROM outbox.rollout_report('registrations', ignore => '{timestamp}') WHERE count > 0",
);
console.log('in the shadow:', JSON.stringify(await senders()), JSON.stringify(verdicts));

for (const percent of [10, 50, 100]) {
  await client.query("SELECT outbox.set_rollout('registrations', $1)", [percent]);
  await register(100);
  await drain();
  console.log(
    `at about ${percent} %, by a hash of the id, 100 registrations:`,
    JSON.stringify(await senders()),
  );
}
await script('retire.sql');
console.log('the old trigger is gone, its log is archive.webhook_logs');

await client.query(`
  INSERT INTO page_pairs (registration_url, thankyou_page_url, created_by) VALUES ('/join', '/thanks', gen_random_uuid());
  INSERT INTO subscriptions (user_id, plan, amount, currency, billing_cycle)
    VALUES (gen_random_uuid(), 'pro', 19.90, 'EUR', 'monthly');
  INSERT INTO payments (user_id, subscription_id, amount, currency, payment_method, transaction_id, paid_at)
    SELECT user_id, id, amount, currency, 'card', 'tx-1', now() FROM subscriptions;
  UPDATE subscriptions SET cancelled_at = now();`);
refused.add('refused@example.com');
await register(1, 'refused@example.com');
console.log('the processor:', JSON.stringify(await drain()));
const { rows: waiting } = await client.query(
  "SELECT event_type, status, retry_count, max_retries, next_retry_at - now() AS wait, error_message FROM webhook_outbox WHERE status = 'failed'",
);
for (const { wait, ...row } of waiting)
  console.log(
    `n8n refused: ${JSON.stringify(row)}, next in ${Math.round(Number(wait.seconds ?? 0) + 60 * Number(wait.minutes ?? 0))} s`,
  );

refused.clear();
await client.query("SELECT outbox.retry_now('n8n')");
console.log('retried by hand:', JSON.stringify(await drain()));
const { rows: statuses } = await client.query(
  'SELECT status, count(*)::int FROM webhook_outbox GROUP BY status ORDER BY status',
);
console.log('webhook_outbox:', JSON.stringify(statuses));
await client.end();
await n8n.stop();

async function register(count, email) {
  await client.query(
    `INSERT INTO wp_user_registrations (user_id, user_email, registration_url, thankyou_page_url)
     SELECT gen_random_uuid(), coalesce($2, n || '@example.com'), '/join', '/thanks'
       FROM generate_series(1, $1::int) n`,
    [count, email],
  );
}

async function drain() {
  const response = await POST(
    new Request('http://localhost/process', {
      method: 'POST',
      headers: { authorization: `Bearer ${process.env.DRAIN_TOKEN}` },
    }),
  );
  return response.json();
}

/** Who sent how many since the last question. */
async function senders() {
  const { rows } = await client.query('SELECT count(*)::int AS logged FROM webhook_logs');
  const old = rows[0].logged - logged;
  logged = rows[0].logged;
  return { old, new: n8n.received.splice(0).length };
}
