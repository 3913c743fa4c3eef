// Cataloguing service: the application changes jobs and knows nothing about events. A processor reads them with a
// cursor and notifies; one notification is rejected. Run it with `npm run example -- cataloguing`.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';

import pg from 'pg';
import { migrateUp } from 'waybill';

import { processEvents } from './processor.mjs';
import { pruneEvents } from './pruner.mjs';

const url = process.env.DATABASE_URL;

await migrateUp({ url });
const admin = await connect(url);
await admin.query(readFileSync(new URL('schema.sql', import.meta.url), 'utf8'));

const app = await connect(as('cataloguing_app'));
const { rows: added } = await app.query(
  `INSERT INTO cataloging_jobs (organization_id)
   SELECT ($1::uuid[])[n % 2 + 1] FROM generate_series(1, 60) n RETURNING job_id`,
  [[randomUUID(), randomUUID()]],
);
const ids = added.map((job) => job.job_id);
await app.query("UPDATE cataloging_jobs SET status = 'done' WHERE job_id = ANY ($1)", [ids]);
await app.query('UPDATE cataloging_jobs SET updated_at = now() WHERE job_id = ANY ($1)', [ids]);
await app.query('DELETE FROM cataloging_jobs WHERE job_id = $1', [ids[0]]);
console.log('60 jobs created, all of them done in one statement, one deleted');

const jobs = new Map();
const { read, sent } = await processEvents({
  database: { url: as('cataloguing_service') },
  handle(events) {
    for (const { event_type, record_id, payload } of events) {
      if (event_type === 'deleted') jobs.delete(record_id);
      else jobs.set(record_id, payload.status);
    }
  },
});
console.log(`the processor read ${read.succeeded} events, and knows ${jobs.size} jobs`);
console.log(`notifications: ${sent.succeeded} sent, ${sent.failed} refused`);

const service = await connect(as('cataloguing_service'));
await show(
  'the outbox:',
  'SELECT count(*)::int AS events, count(processed_at)::int AS processed FROM _private.outbox',
);
await show(
  'dead letter:',
  "SELECT original_event -> 'event_type' AS event_type, failure_reason, retry_count FROM _private.outbox_dlq",
);
await show(
  'cursor:',
  'SELECT processor_name, last_processed_id IS NOT NULL AS has_read FROM _private.cursors',
);
await show('metric:', 'SELECT metric, value FROM outbox_health_metrics');
console.log('the pruner:', JSON.stringify(await pruneEvents({ url: as('cataloguing_service') })));
await show(
  'the health check:',
  'SELECT count(*)::int AS checks, bool_and(ok) AS ok FROM run_system_health_check()',
);
await Promise.all([admin, app, service].map((each) => each.end()));

async function show(label, sql) {
  const { rows } = await service.query(sql);
  for (const row of rows) console.log(label, JSON.stringify(row));
}

/** The same address with the rights of a role and no others. Elsewhere each has a login of its own. */
function as(role) {
  const address = new URL(url);
  address.searchParams.set('options', `-c role=${role}`);
  return address.href;
}

async function connect(connectionString) {
  const client = new pg.Client({ connectionString });
  await client.connect();
  return client;
}
