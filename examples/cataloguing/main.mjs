// Cataloguing service: the application changes jobs and knows nothing about events, a processor reads the log with a
// cursor, a relay notifies, and one notification is rejected. Run it with `npm run example -- cataloguing`.

import { readFileSync } from 'node:fs';

import pg from 'pg';
import { createRelay, defineConfig, handler, migrateUp, reject } from 'waybill';

import { indexJobs } from './processor.mjs';

const url = process.env.DATABASE_URL;

await migrateUp({ url });
const admin = await connect(url);
await admin.query(readFileSync(new URL('schema.sql', import.meta.url), 'utf8'));

const app = await connect(as('cataloguing_app'));
const { rows: jobs } = await app.query(
  `INSERT INTO cataloging_jobs (organization_id)
   SELECT CASE WHEN n % 2 = 0 THEN 'acme' ELSE 'globex' END FROM generate_series(1, 60) n RETURNING job_id`,
);
const ids = jobs.map((job) => job.job_id);
await app.query("UPDATE cataloging_jobs SET status = 'done' WHERE job_id = ANY ($1)", [ids]);
await app.query('UPDATE cataloging_jobs SET updated_at = now() WHERE job_id = ANY ($1)', [ids]);
await app.query('DELETE FROM cataloging_jobs WHERE job_id = $1', [ids[0]]);
console.log('60 jobs created, all of them done in one statement, one deleted');

const database = { url: as('cataloguing_service') };
const { index } = await indexJobs(database);
console.log(`the processor read ${index.events} events, and knows ${index.jobs.size} jobs`);

const relay = createRelay(
  defineConfig({
    database,
    destinations: {
      notifications: handler(({ topic, payload }) => {
        if (topic === 'job.deleted')
          return reject({ code: 'no_recipient', message: `job ${payload.recordId} is gone` });
      }),
    },
    routes: [{ topic: 'job.*', to: 'notifications' }],
    retention: { messagesDays: 3, attemptsDays: 3, batchSize: 1000, pauseMs: 100 },
  }),
);
const { succeeded, failed } = await relay.drain({ maxMs: 30_000, maxMessages: 10_000 });
console.log(`notifications: ${succeeded} sent, ${failed} refused`);

const service = await connect(as('cataloguing_service'));
await show(
  'SELECT count(*)::int AS events, count(processed_at)::int AS processed FROM _private.outbox',
);
await show(
  "SELECT original_event -> 'event_type' AS event_type, failure_reason, retry_count FROM _private.outbox_dlq",
);
await show(
  'SELECT processor_name, last_processed_id IS NOT NULL AS has_read FROM _private.cursors',
);
await show('SELECT metric, value FROM _private.outbox_health_metrics');
await show(
  'CALL _private.prune_outbox_events(NULL, NULL, retention_hours => 72, batch_size => 1000)',
);
await show(
  'SELECT count(*)::int AS checks, bool_and(ok) AS ok FROM _private.run_system_health_check()',
);
await Promise.all([admin, app, service].map((each) => each.end()));

async function show(sql) {
  const { rows } = await service.query(sql);
  for (const row of rows) console.log(JSON.stringify(row));
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
