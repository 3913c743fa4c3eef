// The cataloguing service of examples/cataloguing: the application's own statements, the service's own calls, and its
// unchanged program. Each of the two works with its own role and no other rights.

import { randomUUID } from 'node:crypto';
import path from 'node:path';

import type pg from 'pg';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';

import type { StreamHandler } from '../../src/consumer/subscribe.js';
import { subscribe } from '../../src/consumer/subscribe.js';
import {
  addJobs,
  claimNotifications,
  connectService,
  installCatalogue,
  jobEvents,
  notifyAll,
  organizationId,
  pastEvents,
  serviceUrl,
  setStatus,
} from '../support/cataloguing.js';
import { runNode } from '../support/cli.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const folder = path.resolve('examples/cataloguing');

let app: pg.Client;
let service: pg.Client;
let operator: pg.Client;

beforeAll(async () => {
  await installCatalogue(db);
  app = await db.connect();
  await app.query('SET ROLE cataloguing_app');
  operator = await db.connect();
  await operator.query('SET ROLE waybill_operator');
  service = await connectService(db);
});
afterAll(() => service.end());

test('N1 N3 writes of the application, which has no rights in the outbox, make events with chosen columns', async () => {
  const acme = organizationId('acme');
  const [jobId] = await addJobs(app, 'acme', 1);
  await setStatus(app, 'acme', 'done');
  await setStatus(app, 'acme', 'done');
  await app.query('UPDATE cataloging_jobs SET updated_at = now() WHERE organization_id = $1', [
    acme,
  ]);
  await app.query('DELETE FROM cataloging_jobs WHERE organization_id = $1', [acme]);
  await app.query('BEGIN');
  await addJobs(app, 'acme', 1);
  await app.query('ROLLBACK');

  const found = await jobEvents(service, 'acme');
  expect(found.map(({ event_type }) => event_type)).toEqual([
    'created',
    'status_changed',
    'deleted',
  ]);
  expect(found[1]).toMatchObject({
    table_name: 'cataloging_jobs',
    record_id: jobId,
    organization_id: acme,
    processed_at: null,
    retry_count: 0,
    last_error: null,
  });
  expect(found[1]?.payload).toEqual({
    job_id: jobId,
    organization_id: acme,
    status: 'done',
  });
});

test('N2 one statement over 60 jobs makes 60 durable events, in its own transaction', async () => {
  const jobs = await addJobs(app, 'bulk', 60);
  await app.query('BEGIN');
  await setStatus(app, 'bulk', 'lost');
  await app.query('ROLLBACK');
  await setStatus(app, 'bulk', 'processing');
  const changed = (await jobEvents(service, 'bulk')).filter(
    ({ event_type }) => event_type !== 'created',
  );
  expect(changed.map(({ record_id }) => record_id).toSorted()).toEqual(jobs.toSorted());
  const { rows } = await db.query<{ transactions: number; statuses: string[] }>(
    `SELECT count(DISTINCT transaction_id)::int AS transactions, array_agg(DISTINCT payload -> 'record' ->> 'status') AS statuses
       FROM outbox.messages WHERE id = ANY ($1)`,
    [changed.map(({ event_id }) => event_id)],
  );
  expect(only(rows)).toEqual({ transactions: 1, statuses: ['processing'] });
});

test('N4 a processor continues where it failed, and reads late commits', async () => {
  const read: string[] = [];
  const late = await addJobs(app, 'late', 1);
  await addJobs(app, 'early', 1);
  const reader = async (handle: StreamHandler) => {
    const subscription = await subscribe(
      {
        name: 'job-index',
        database: { url: serviceUrl(db) },
        topics: ['job.status_changed'],
        from: 'beginning',
        pollMs: 20,
      },
      handle,
    );
    onTestFinished(() => subscription.stop());
    return subscription;
  };
  const writer = await db.connect();
  await writer.query('BEGIN');
  await setStatus(writer, 'late', 'done');
  await setStatus(app, 'early', 'done');

  let failures = 0;
  const broken = await reader(() => {
    failures += 1;
    throw new Error('it is broken');
  });
  await waitFor(() => failures > 0, { what: 'a failed call' });
  await broken.stop();
  const { rows: cursor } = await service.query<{ last_processed_id: string | null }>(
    'SELECT last_processed_id FROM _private.cursors',
  );
  expect(cursor).toEqual([{ last_processed_id: null }]);
  await reader((messages) => void read.push(...messages.map(({ tenantId }) => tenantId ?? '')));
  await waitFor(() => read.includes(organizationId('early')), { what: 'what was committed' });
  expect(read).not.toContain(organizationId('late'));
  const early = (await jobEvents(service, 'early')).find(
    ({ event_type }) => event_type === 'status_changed',
  );
  await waitFor(
    async () => {
      const { rows } = await service.query<{ last_processed_id: string; processor_name: string }>(
        'SELECT * FROM _private.cursors WHERE last_processed_at <= updated_at',
      );
      return (
        rows[0]?.processor_name === 'job-index' && rows[0].last_processed_id === early?.event_id
      );
    },
    { what: 'the cursor to show what it has read' },
  );

  await writer.query('COMMIT');
  await waitFor(() => read.includes(organizationId('late')), { what: 'what was committed late' });
  const [first] = (await jobEvents(service, 'late')).filter(
    ({ event_type }) => event_type !== 'created',
  );
  expect(first?.record_id).toBe(late[0]);
  expect(String(first?.event_id) < String(early?.event_id)).toBe(true);
  const both = ['early', 'late'].map(organizationId);
  expect(read.filter((tenant) => both.includes(tenant))).toEqual(both);
});

test('N5 N13 a permanent failure is a dead letter, and the metrics count every state', async () => {
  await notifyAll(service);
  const [retried, refused, sent] = await addJobs(app, 'health', 4);
  const token = randomUUID();
  const claimed = await claimNotifications(service, token);
  await addJobs(app, 'health', 1);
  const idOf = (job = '') =>
    claimed.find(({ aggregate_id }) => aggregate_id === job)?.message_id ?? '';
  await service.query("SELECT outbox.nack($1, $2, 'busy')", [token, idOf(retried)]);
  await service.query(
    "SELECT outbox.nack($1, $2, 'no recipient exists', 'no_recipient', terminal => true)",
    [token, idOf(refused)],
  );
  await service.query('SELECT outbox.ack($1, $2)', [token, idOf(sent)]);

  const found = await jobEvents(service, 'health');
  const byJob = (job = '') => found.find(({ record_id }) => record_id === job);
  expect(byJob(retried)).toMatchObject({ processed_at: null, retry_count: 1, last_error: 'busy' });
  expect(byJob(sent)).toMatchObject({ retry_count: 0, last_error: null });
  expect(byJob(sent)?.processed_at).toBeInstanceOf(Date);
  const { rows: dead } = await service.query<{
    original_event: { payload: object };
    failed_at: Date;
  }>('SELECT * FROM _private.outbox_dlq');
  const { event_id, event_type, organization_id, payload } = byJob(refused) ?? {};
  expect(only(dead)).toMatchObject({
    event_id,
    original_event: { event_id, event_type, organization_id, record_id: refused, payload },
    failure_reason: 'no_recipient: no recipient exists',
    retry_count: 1,
  });
  expect(only(dead).failed_at).toBeInstanceOf(Date);

  const { rows } = await service.query<{ metric: string; value: string; description: string }>(
    'SELECT * FROM outbox_health_metrics',
  );
  expect(rows.map(({ metric }) => metric)).toEqual([
    'unprocessed_events',
    'avg_processing_time_ms',
    'failed_events',
    'dlq_events',
  ]);
  // one is pending, one waits for its retry, one is leased
  expect(rows.map(({ value }) => Number(value))).toEqual([3, expect.any(Number), 1, 1]);
  expect(Number(rows[1]?.value)).toBeGreaterThan(0);
  expect(rows[1]?.description).toContain('over the last 5 minutes');

  const ids = claimed.map(({ message_id }) => message_id);
  await service.query('SELECT outbox.mark_delivered($1, $2)', [token, ids]);
  await operator.query("SELECT outbox.retry_now('notifications')");
  await notifyAll(service);
});

type Prune = { deleted_count: number; execution_time_ms: number };

/** As the service calls it. */
async function prune(on: pg.Client = service): Promise<Prune> {
  const { rows } = await on.query<Prune>('SELECT * FROM prune_outbox_events(72, 1000)');
  return only(rows);
}

test('N7 N5 pruning removes what was processed 72 hours ago, a day in each call, and reports it', async () => {
  await pastEvents(db, 10, 30);
  await pastEvents(db, 5, 20);
  const dead = await pastEvents(db, 8, 1, 'failed');
  await db.query(
    `INSERT INTO outbox.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, topic, tenant_id)
     SELECT m.id, d.id, now(), 1, 10, 'exhausted', m.topic, m.tenant_id
       FROM outbox.messages m, outbox.destinations d WHERE m.id = $1 AND d.name = 'notifications'`,
    [dead[0]],
  );
  const recent = await pastEvents(db, 2, 1);
  expect((await prune()).deleted_count, 'the processor has not read them').toBe(0);
  await operator.query("SELECT outbox.delete_cursor('job-index', force => true)");
  // a relay does this every minute: messages that only the deleted cursor wanted become unrouted
  await waitFor(
    async () => {
      await db.query('SELECT outbox.hand_over_cursors()');
      const { rows } = await db.query('SELECT FROM outbox.cursors');
      return rows.length === 0;
    },
    { what: 'the end of the deleted cursor' },
  );

  const reader = await db.connect();
  await reader.query('BEGIN; SELECT count(*) FROM outbox.messages');
  expect((await prune()).deleted_count, 'no message waits behind it').toBe(0);
  await reader.query('COMMIT');

  await service.query('BEGIN');
  expect((await prune()).deleted_count).toBe(30);
  await service.query('ROLLBACK');
  const { deleted_count, execution_time_ms } = await prune();
  expect(deleted_count).toBe(30);
  expect(execution_time_ms).toBeGreaterThanOrEqual(0);
  expect((await prune()).deleted_count).toBe(20);
  expect((await jobEvents(service, 'past')).map(({ event_id }) => event_id).toSorted()).toEqual(
    [...dead, ...recent].toSorted(),
  );
  const kept = await service.query('SELECT FROM _private.outbox_dlq WHERE event_id = $1', dead);
  expect(kept.rows).toHaveLength(1);
  expect((await prune()).deleted_count).toBe(0);
});

test('N7 the pruner calls until nothing is left; wrong arguments say what to give', async () => {
  for (const [days, count] of [
    [20, 3],
    [19, 0],
    [18, 4],
    [17, 5],
  ] as const)
    await pastEvents(db, days, count);
  const { pruneEvents } = (await import(path.join(folder, 'pruner.mjs'))) as {
    pruneEvents: (options: object) => Promise<object>;
  };
  expect(await pruneEvents({ url: serviceUrl(db) })).toMatchObject({
    deleted_count: 12,
    calls: 4,
    finished: true,
  });
  for (const [call, message] of [
    ['(23)', 'retention_hours is 23: give at least 24, because whole days are removed'],
    ['(NULL)', 'retention_hours is null: give at least 24, because whole days are removed'],
    ['(72, 0)', 'batch_size is 0: give at least 1'],
  ])
    await expect(service.query(`SELECT * FROM prune_outbox_events${call}`)).rejects.toThrow(
      message,
    );
});

test('N8 only the service reads anything, and it writes nothing', async () => {
  const { rows: open } = await db.query(
    `SELECT relname FROM pg_class WHERE relnamespace = 'outbox'::regnamespace AND relkind IN ('r', 'p')
        AND NOT (relrowsecurity AND relforcerowsecurity)`,
  );
  expect(open).toEqual([]);
  for (const relation of [
    '_private.outbox',
    '_private.cursors',
    '_private.outbox_dlq',
    'public.outbox_health_metrics',
  ]) {
    const read = `SELECT * FROM ${relation}`;
    await expect(app.query(read)).rejects.toMatchObject({ code: '42501' });
    await service.query(read);
  }
  for (const call of [
    'SELECT * FROM run_system_health_check()',
    'SELECT * FROM prune_outbox_events()',
    'SELECT * FROM outbox.messages',
    "SELECT * FROM outbox.enqueue('job.created')",
  ])
    await expect(app.query(call)).rejects.toMatchObject({ code: '42501' });
  const { rows } = await db.query<{ reached: boolean }>(
    "SELECT has_schema_privilege('cataloguing_app', '_private', 'USAGE') AS reached",
  );
  expect(only(rows).reached).toBe(false);
  // a right that is granted by mistake opens a view and nothing behind it, or a table and no row of it
  const schemas = 'USAGE ON SCHEMA _private, outbox';
  await db.query(
    `GRANT ${schemas} TO cataloguing_app; GRANT SELECT ON _private.outbox_dlq, outbox.messages TO cataloguing_app`,
  );
  await expect(app.query('SELECT * FROM _private.outbox_dlq')).rejects.toMatchObject({
    code: '42501',
  });
  expect((await app.query('SELECT * FROM outbox.messages')).rows).toEqual([]);
  await db.query(
    `REVOKE ${schemas} FROM cataloguing_app; REVOKE SELECT ON _private.outbox_dlq, outbox.messages FROM cataloguing_app`,
  );
  await expect(service.query('DELETE FROM outbox.messages')).rejects.toMatchObject({
    code: '42501',
  });
});

test('N10 a session of the service has the limits of 30, 10 and 60 seconds', async () => {
  const { rows } = await service.query<{ name: string; setting: string }>(
    `SELECT name, setting FROM pg_settings
      WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout') ORDER BY name`,
  );
  expect(rows).toEqual([
    { name: 'idle_in_transaction_session_timeout', setting: '60000' },
    { name: 'lock_timeout', setting: '10000' },
    { name: 'statement_timeout', setting: '30000' },
  ]);
});

test('N12 everything can be applied again, and the health check reports what it verified', async () => {
  await installCatalogue(db);
  const check = 'SELECT * FROM run_system_health_check()';
  const { rows } = await service.query<{ check_name: string; ok: boolean; detail: string }>(check);
  expect(rows.filter(({ ok }) => !ok)).toEqual([]);
  expect(rows.map(({ check_name }) => check_name)).toEqual(
    expect.arrayContaining(['tables', 'indexes', 'partitions', 'privileges', 'watches']),
  );
  expect(rows.every(({ detail }) => detail !== '')).toBe(true);
  await db.query('ALTER TABLE cataloging_jobs DISABLE TRIGGER outbox_job_update');
  const { rows: broken } = await service.query<{ check_name: string }>(`${check} WHERE NOT ok`);
  expect(broken.map(({ check_name }) => check_name)).toEqual(['watches']);
  await db.query('ALTER TABLE cataloging_jobs ENABLE TRIGGER outbox_job_update');
});

test('N1 N2 N4 N5 the program runs: a processor and a relay get every event of the application', async () => {
  await notifyAll(service);
  await operator.query("SELECT outbox.discard_dead_letters('notifications')");
  await service.query("SELECT outbox.define_cursor('job-index', 'now', '{job.*}')");
  const { code, stdout, stderr } = await runNode([path.join(folder, 'main.mjs')], {
    environment: { DATABASE_URL: db.url },
  }).ended();
  expect(`${code} ${stderr}`).toBe('0 ');
  expect(stdout).toContain('the processor read 121 events, and knows 59 jobs');
  expect(stdout).toContain('notifications: 120 sent, 1 refused');
  expect(stdout).toContain('{"event_type":"deleted","failure_reason":"no_recipient: job ');
  expect(stdout).toContain('{"metric":"dlq_events","value":"1"}');
  expect(stdout).toMatch(
    /\{"deleted_count":\d+,"execution_time_ms":\d+,"calls":\d,"finished":true\}/,
  );
  expect(stdout).toMatch(/\{"checks":\d+,"ok":true\}/);
});
