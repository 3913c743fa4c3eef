// The cataloguing service's names, types, channel and alerts, used as its present code uses them: unqualified calls,
// uuids, LISTEN outbox_events. Everything runs as the service, or as the application.

import { randomUUID } from 'node:crypto';
import path from 'node:path';

import type pg from 'pg';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';

import {
  addJobs,
  claimNotifications,
  connectService,
  installCatalogue,
  jobEvents,
  notifyAll,
  organizationId,
  serviceUrl,
  setStatus,
} from '../support/cataloguing.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
let app: pg.Client;
let service: pg.Client;

type Event = { event_id: string; record_id: string; event_type: string; organization_id: string };
type Report = { finished: boolean; succeeded: number; heldBy: string | null };
type Process = (options: {
  database: { url: string };
  maxMs?: number;
  handle: (events: Event[]) => unknown;
}) => Promise<{ read: Report; sent: Report }>;

const example = (file: string): Promise<unknown> =>
  import(path.resolve('examples/cataloguing', file));
const { processEvents } = (await example('processor.mjs')) as { processEvents: Process };
const database = () => ({ url: serviceUrl(db) });

beforeAll(async () => {
  await installCatalogue(db);
  app = await db.connect();
  await app.query('SET ROLE cataloguing_app');
  service = await connectService(db);
});
afterAll(() => service.end());

test('N16 N3 every name has the columns and types of the service', async () => {
  const { rows } = await db.query<{ name: string; columns: string }>(
    `SELECT c.oid::regclass::text AS name, string_agg(format('%s %s', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum) AS columns
       FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
      WHERE c.relname IN ('cataloging_jobs', 'outbox_health_metrics') OR c.relnamespace = '_private'::regnamespace
      GROUP BY c.oid HAVING max(c.relkind) IN ('r', 'v') ORDER BY 1`,
  );
  expect(Object.fromEntries(rows.map(({ name, columns }) => [name, columns]))).toEqual({
    cataloging_jobs:
      'job_id uuid, organization_id uuid, status text, updated_at timestamp with time zone',
    '_private.outbox':
      'event_id uuid, table_name text, record_id uuid, event_type text, organization_id uuid, payload jsonb, ' +
      'created_at timestamp with time zone, processed_at timestamp with time zone, retry_count integer, last_error text',
    '_private.cursors':
      'processor_name text, last_processed_id uuid, last_processed_at timestamp with time zone, ' +
      'updated_at timestamp with time zone',
    '_private.outbox_dlq':
      'event_id uuid, original_event jsonb, failure_reason text, failed_at timestamp with time zone, retry_count integer',
    outbox_health_metrics: 'metric text, value numeric, description text',
  });
  const { rows: functions } = await db.query<{ signature: string }>(
    `SELECT format('%s(%s) %s', p.oid::regproc, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)) AS signature
       FROM pg_proc p WHERE p.proname IN ('prune_outbox_events', 'run_system_health_check') ORDER BY 1`,
  );
  expect(functions.map(({ signature }) => signature)).toEqual([
    'prune_outbox_events(retention_hours integer DEFAULT 72, batch_size integer DEFAULT 1000) ' +
      'TABLE(deleted_count integer, execution_time_ms integer)',
    'run_system_health_check() TABLE(check_name text, ok boolean, detail text)',
  ]);
  // called without a schema, and with names, as over rpc
  for (const call of [
    'SELECT * FROM prune_outbox_events()',
    'SELECT deleted_count, execution_time_ms FROM prune_outbox_events(retention_hours => 72, batch_size => 1000)',
    'SELECT metric, value, description FROM outbox_health_metrics',
    'SELECT * FROM run_system_health_check()',
  ])
    expect((await service.query(call)).rowCount, call).toBeGreaterThan(0);
});

test('N16 N4 a processor that lives for seconds reads on from its cursor, and marks events as processed', async () => {
  const seen: Event[] = [];
  const run = (handle: (events: Event[]) => unknown = (events) => seen.push(...events)) =>
    processEvents({ database: database(), maxMs: 20_000, handle });
  const jobs = await addJobs(app, 'short', 250);
  // its work fails from the third batch on
  let batches = 0;
  const { read } = await run((events) => {
    batches += 1;
    if (batches >= 3) throw new Error('the index is down');
    seen.push(...events);
  });
  expect(read).toMatchObject({ succeeded: 200 });
  await db.query("SELECT outbox.retry_now('job-index')");
  await setStatus(app, 'short', 'done');
  const second = await run();
  expect(second).toMatchObject({
    read: { succeeded: 300, finished: true, heldBy: null },
    sent: { finished: true },
  });
  const created = seen.filter(({ event_type }) => event_type === 'created');
  expect(created.map(({ record_id }) => record_id).toSorted()).toEqual(jobs.toSorted());
  const rows = await jobEvents(service, 'short');
  expect(seen.map(({ event_id }) => event_id).toSorted()).toEqual(
    rows.map(({ event_id }) => event_id).toSorted(),
  );
  expect(rows.every(({ processed_at }) => processed_at !== null)).toBe(true);
  const { rows: cursors } = await service.query('SELECT * FROM _private.cursors');
  expect(only(cursors)).toMatchObject({
    processor_name: 'job-index',
    last_processed_id: seen.at(-1)?.event_id,
  });
});

test('N6 N3 the events of an organisation are found by an index, also among tenants that are no uuids', async () => {
  await addJobs(app, 'indexed', 2);
  await db.query("SELECT outbox.enqueue('invoice.paid', '{}', tenant_id => 'acme')");
  expect(await jobEvents(service, 'indexed')).toHaveLength(2);
  await service.query('BEGIN; SET LOCAL enable_seqscan = off');
  const { rows } = await service.query<{ 'QUERY PLAN': string }>(
    `EXPLAIN SELECT * FROM _private.outbox WHERE organization_id = '${organizationId('indexed')}'::uuid`,
  );
  await service.query('ROLLBACK');
  expect(rows.map((row) => row['QUERY PLAN']).join('\n')).toMatch(
    /Index Cond: \(CASE WHEN \(topic \^@ 'job.'::text\) THEN \(tenant_id\)::uuid/,
  );
  await db.query("SELECT outbox.discard_unrouted('invoice.paid')");
});

test('N2 LISTEN outbox_events gets one notification with the commit of a bulk change, and none without an event', async () => {
  const heard: (string | undefined)[] = [];
  const listener = await connectService(db);
  onTestFinished(() => listener.end());
  listener.on('notification', ({ channel, payload }) => heard.push(`${channel} ${payload}`));
  await listener.query('LISTEN outbox_events');
  /** Notifications arrive in the order of the commits, so an own one shows that all before it have arrived. */
  const heardSoFar = async () => {
    const mark = randomUUID();
    await app.query("SELECT pg_notify('outbox_events', $1)", [mark]);
    await waitFor(() => heard.at(-1) === `outbox_events ${mark}`, { what: 'the mark' });
    return heard.splice(0).slice(0, -1);
  };
  await addJobs(app, 'heard', 60);
  expect(await heardSoFar()).toEqual(['outbox_events cataloging_jobs']);
  await app.query('BEGIN');
  await setStatus(app, 'heard', 'done');
  expect(await jobEvents(service, 'heard'), 'before the commit').toHaveLength(60);
  await app.query('COMMIT');
  expect(await heardSoFar()).toEqual(['outbox_events cataloging_jobs']);
  expect(await jobEvents(service, 'heard')).toHaveLength(120);
  await app.query('UPDATE cataloging_jobs SET updated_at = now()');
  await app.query('BEGIN');
  await addJobs(app, 'heard', 1);
  await app.query('ROLLBACK');
  expect(await heardSoFar()).toEqual([]);
  await app.query('DELETE FROM cataloging_jobs WHERE organization_id = $1', [
    organizationId('heard'),
  ]);
  expect(await heardSoFar()).toEqual(['outbox_events cataloging_jobs']);
});

test('N14 N13 the alerts fire above 1,000 unprocessed events, 5 seconds on average and 100 failed ones', async () => {
  const firing = async () => {
    const { rows } = await service.query<{ alert: string; threshold: string }>(
      `SELECT alert, threshold FROM outbox.alerts() WHERE firing
          AND alert IN ('waiting', 'average_delivery_seconds', 'retrying') ORDER BY alert`,
    );
    return rows.map(({ alert, threshold }) => `${alert} ${Number(threshold)}`);
  };
  const token = randomUUID();
  const fail = async (count: number) => {
    const ids = (await claimNotifications(service, token)).map(({ message_id }) => message_id);
    await service.query(
      "SELECT outbox.nack($1, id, 'busy', retry_after => '1 hour') FROM unnest($2::uuid[]) id",
      [token, ids.slice(0, count)],
    );
    await service.query('SELECT outbox.mark_delivered($1, $2)', [token, ids.slice(count)]);
  };
  await notifyAll(service);
  expect(await firing()).toEqual([]);
  await addJobs(app, 'alert', 1000);
  expect(await firing(), 'at 1,000').toEqual([]);
  await addJobs(app, 'alert', 1);
  expect(await firing()).toEqual(['waiting 1000']);

  await fail(100);
  await notifyAll(service);
  expect(await firing(), 'at 100').toEqual([]);
  await addJobs(app, 'alert', 1);
  await fail(1);
  expect(await firing()).toEqual(['retrying 100']);

  // as if 3,000 events had been processed a minute after they were created
  await db.query(
    `WITH made AS (
       INSERT INTO outbox.messages (bytes, id, created_at, transaction_id, namespace, topic, tenant_id, payload)
       SELECT 2, outbox.id_at(t), t, pg_current_xact_id(), 'default', 'job.created', $1, '{}'
         FROM generate_series(1, 3000) n, LATERAL (SELECT now() - interval '1 minute' + n * interval '1 ms' AS t) x
       RETURNING id)
     INSERT INTO outbox.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
     SELECT m.id, d.id, 1, 1, 'dispatched', now() FROM made m, outbox.destinations d WHERE d.name = 'notifications'`,
    [organizationId('slow')],
  );
  expect(await firing()).toEqual(['average_delivery_seconds 5', 'retrying 100']);
  const { rows } = await service.query<{ metric: string; value: string }>(
    'SELECT * FROM outbox_health_metrics',
  );
  const metrics = Object.fromEntries(rows.map(({ metric, value }) => [metric, Number(value)]));
  expect(metrics).toMatchObject({ unprocessed_events: 101, failed_events: 101 });
  expect(metrics['avg_processing_time_ms']).toBeGreaterThan(5000);

  // the thresholds are those of the service's configuration, whatever others had set before
  await db.query(`SELECT outbox.sync_alert_thresholds('{"retrying": 5000}')`);
  expect(await firing()).toEqual(['average_delivery_seconds 5']);
  await processEvents({ database: database(), maxMs: 20_000, handle: () => undefined });
  expect(await firing()).toContain('retrying 100');
});
