// The upgrade of examples/cataloguing from the service's own tables, with events in every state, transactions that are
// open meanwhile, and a processor that was stopped in the middle. The commands are those of UPGRADE.md.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';

import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import {
  catalogueSql,
  connectService,
  makeCatalogueRoles,
  organizationId,
  serviceUrl,
} from '../support/cataloguing.js';
import { runProgram } from '../support/cli.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { hasPrograms } from '../support/programs.js';
import { waitFor } from '../support/wait.js';

const page = readFileSync('examples/cataloguing/UPGRADE.md', 'utf8');
const organization = organizationId('acme');
const canRunPsql = hasPrograms({ psql: 'postgresql-client-15' });

/** The database of a service that has not been upgraded. Its roles exist, because they belong
 * to the server. */
const db = testDatabase({
  async eachTestFrom(url) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await migrateUp({ url });
    await makeCatalogueRoles(client);
    await client.query(readFileSync('test/support/cataloguing-before.sql', 'utf8'));
    await client.end();
  },
});

type Event = { event_id: string; event_type: string; record_id: string; created_at: string };
type Process = (options: object) => Promise<{ read: { finished: boolean; succeeded: number } }>;

/** Runs the processor of the example under its old name, and returns the events that it got. */
async function processed(): Promise<Event[]> {
  const file = path.resolve('examples/cataloguing/processor.mjs');
  const { processEvents } = (await import(file)) as { processEvents: Process };
  const events: Event[] = [];
  const { read } = await processEvents({
    database: { url: serviceUrl(db) },
    name: 'job-processor',
    maxMs: 20_000,
    handle: (batch: Event[]) => events.push(...batch),
  });
  expect(read).toMatchObject({ finished: true });
  return events;
}

/** An event of the old outbox that is this old. */
async function oldEvent(minutes: number, columns: Record<string, unknown> = {}): Promise<string> {
  const event = {
    event_id: randomUUID(),
    table_name: 'cataloging_jobs',
    record_id: randomUUID(),
    event_type: 'created',
    organization_id: organization,
    payload: { status: 'queued', minutes },
    created_at: new Date(Date.now() - minutes * 60_000),
    retry_count: 0,
    ...columns,
  };
  await db.query(
    `INSERT INTO _private.outbox SELECT * FROM jsonb_populate_record(NULL::_private.outbox, $1)`,
    [JSON.stringify(event)],
  );
  return event.event_id;
}

async function cursorAt(name: string, eventId: string | null): Promise<void> {
  await db.query('INSERT INTO _private.cursors VALUES ($1, $2, now())', [name, eventId]);
}

/** The three files, in one transaction. */
async function upgrade(): Promise<void> {
  const client = await db.connect();
  await client.query('BEGIN');
  try {
    for (const file of ['upgrade/retire.sql', 'schema.sql', 'upgrade/move.sql'])
      await client.query(catalogueSql(file));
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    await client.end();
  }
}

test.skipIf(!canRunPsql)(
  'N16 N4 N5 the commands of the page keep every event in its state: unprocessed ones are delivered in order, once',
  async () => {
    const done = await oldEvent(50, { processed_at: new Date() });
    // committed late: the cursor has passed it
    const late = await oldEvent(45);
    const last = await oldEvent(40, { processed_at: new Date() });
    const waiting = await oldEvent(20);
    const retrying = await oldEvent(30, { retry_count: 3, last_error: 'busy' });
    const newest = await oldEvent(10, { event_type: 'status_changed' });
    const dead = await oldEvent(60, { retry_count: 5, last_error: 'gone' });
    await db.query(
      `INSERT INTO _private.outbox_dlq SELECT event_id, to_jsonb(o), 'gone', now(), 5 FROM _private.outbox o WHERE event_id = $1`,
      [dead],
    );
    await cursorAt('job-processor', last);

    const command = /```text\n(psql[^`]*)```/.exec(page)?.[1] ?? '';
    const { code, stderr } = await runProgram('sh', ['-c', command], {
      environment: { DATABASE_URL: db.url },
      cwd: path.resolve('.'),
    }).ended();
    expect(`${code} ${stderr}`).toMatch(/^0 .*4 unprocessed events were moved/s);

    const service = await connectService(db);
    onTestFinished(() => service.end());
    const inOutbox = async () => {
      const { rows } = await service.query<{ processed_at: Date | null }>(
        'SELECT * FROM _private.outbox ORDER BY created_at, event_id',
      );
      return rows;
    };
    const before = await db.query<{ created_at: Date }>(
      'SELECT created_at FROM _private_archive.outbox WHERE event_id = ANY ($1) ORDER BY created_at',
      [[late, retrying, waiting, newest]],
    );
    const moved = [late, retrying, waiting, newest].map((event_id, index) => ({
      event_id,
      created_at: before.rows[index]?.created_at,
    }));
    expect(await inOutbox()).toMatchObject(
      moved.map((event) => ({ ...event, processed_at: null, retry_count: 0 })),
    );
    const events = await processed();
    expect(events.map(({ event_id }) => event_id)).toEqual(moved.map(({ event_id }) => event_id));
    expect(events.map(({ created_at }) => new Date(created_at))).toEqual(
      moved.map(({ created_at }) => created_at),
    );
    expect((await inOutbox()).every(({ processed_at }) => processed_at !== null)).toBe(true);
    const { rows: cursors } = await service.query('SELECT * FROM _private.cursors');
    expect(only(cursors)).toMatchObject({
      processor_name: 'job-processor',
      last_processed_id: newest,
    });

    // nothing of the old tables is gone
    const { rows: kept } = await db.query(
      `SELECT (SELECT count(*)::int FROM _private_archive.outbox) AS events,
              (SELECT last_processed_id FROM _private_archive.cursors) AS position,
              (SELECT failure_reason FROM _private_archive.outbox_dlq) AS reason,
              (SELECT processed_at IS NOT NULL FROM _private_archive.outbox WHERE event_id = $1) AS processed`,
      [done],
    );
    expect(only(kept)).toEqual({ events: 7, position: last, reason: 'gone', processed: true });

    // A dead letter can be sent again, once. The application goes on, and its changes make events in the new place only.
    const again = /```text\n(SELECT[^`]*outbox_dlq[^`]*)```/.exec(page)?.[1] ?? '';
    await db.query(again);
    await db.query(again);
    await db.query(/```text\n(DROP SCHEMA[^`]*)```/.exec(page)?.[1] ?? '');
    await db.query('INSERT INTO cataloging_jobs (organization_id) VALUES ($1)', [organization]);
    await db.query("UPDATE cataloging_jobs SET status = 'done'");
    const later = await processed();
    expect(later[0]?.event_id).toBe(dead);
    expect(later.map(({ event_type }) => event_type)).toEqual([
      'created',
      'created',
      'status_changed',
    ]);
  },
);

test('N16 N4 a transaction that is open during the upgrade loses nothing, and the next change makes one event', async () => {
  await cursorAt('job-processor', null);
  const writer = await db.connect();
  await writer.query('BEGIN');
  await writer.query('INSERT INTO cataloging_jobs (organization_id) VALUES ($1)', [organization]);
  const upgraded = upgrade();
  await waitFor(
    async () => {
      const { rows } = await db.query<{ mode: string }>(
        "SELECT FROM pg_locks WHERE NOT granted AND relation = 'public.cataloging_jobs'::regclass",
      );
      return rows.length > 0;
    },
    { what: 'the upgrade to wait' },
  );
  // a second writer waits behind the upgrade, and goes on after it
  const behind = db.query('INSERT INTO cataloging_jobs (organization_id) VALUES ($1)', [
    organization,
  ]);
  await writer.query('COMMIT');
  await upgraded;
  await behind;
  const events = await processed();
  expect(events.map(({ event_type }) => event_type)).toEqual(['created', 'created']);
  expect(new Set(events.map(({ record_id }) => record_id)).size).toBe(2);
});

test('N16 N4 an old processor that is at work when the upgrade begins fails, and its event comes again with its id', async () => {
  const event = await oldEvent(5);
  await cursorAt('job-processor', null);
  const old = await db.connect();
  await old.query('SELECT * FROM _private.outbox WHERE processed_at IS NULL');
  await upgrade();
  await expect(
    old.query('UPDATE _private.outbox SET processed_at = now() WHERE event_id = $1', [event]),
  ).rejects.toThrow(/cannot update view "outbox"/);
  expect((await processed()).map(({ event_id }) => event_id)).toEqual([event]);
});

test('N16 N4 events of one bulk change have one created_at, and the processor gets them in the order of their ids', async () => {
  await db.query(
    `INSERT INTO _private.outbox (table_name, record_id, event_type, organization_id, payload)
     SELECT 'cataloging_jobs', gen_random_uuid(), 'created', $1, '{}' FROM generate_series(1, 2400)`,
    [organization],
  );
  await cursorAt('job-processor', null);
  await upgrade();
  const ids = (await processed()).map(({ event_id }) => event_id);
  expect(ids).toHaveLength(2400);
  expect(ids).toEqual(ids.toSorted());
});

test('N16 an event whose created_at is in the future keeps it, and is due at once', async () => {
  const ahead = await oldEvent(-90);
  const { rows: before } = await db.query<{ created_at: Date }>(
    'SELECT created_at FROM _private.outbox WHERE event_id = $1',
    [ahead],
  );
  await upgrade();
  const service = await connectService(db);
  onTestFinished(() => service.end());
  const { rows } = await service.query(
    'SELECT event_id, created_at FROM _private.outbox WHERE processed_at IS NULL',
  );
  expect(rows).toEqual([{ event_id: ahead, created_at: before[0]?.created_at }]);
  const claimed = await service.query(
    "SELECT FROM outbox.claim('notifications', gen_random_uuid())",
  );
  expect(claimed.rowCount).toBe(1);
});

test('N16 N4 a second processor that is behind stops the upgrade, and nothing has changed', async () => {
  const first = await oldEvent(5, { processed_at: new Date() });
  const second = await oldEvent(4, { processed_at: new Date() });
  await cursorAt('job-processor', second);
  await cursorAt('reports', first);
  await expect(upgrade()).rejects.toThrow(
    'the processor "reports" has not read 1 events that another one has processed',
  );
  const { rows } = await db.query<{ kind: string; triggers: string[] }>(
    `SELECT (SELECT relkind FROM pg_class WHERE oid = '_private.outbox'::regclass) AS kind,
            ARRAY (SELECT tgname::text FROM pg_trigger WHERE tgrelid = 'cataloging_jobs'::regclass) AS triggers`,
  );
  expect(only(rows)).toEqual({ kind: 'r', triggers: ['capture_job_event'] });
  await db.query(
    "UPDATE _private.cursors SET last_processed_id = $1 WHERE processor_name = 'reports'",
    [second],
  );
  await upgrade();
  const { rows: moved } = await db.query('SELECT FROM outbox.messages');
  expect(moved).toEqual([]);
});

test('N16 N12 a trigger of another table and a view that use the old tables stop the upgrade, by name', async () => {
  await db.query(`CREATE TABLE shelves (id uuid);
    CREATE FUNCTION capture_shelf() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
      INSERT INTO _private.outbox (table_name, record_id, event_type, organization_id, payload)
      VALUES ('shelves', NEW.id, 'created', NEW.id, '{}');
      RETURN NULL;
    END $f$;
    CREATE TRIGGER capture_shelf AFTER INSERT ON shelves FOR EACH ROW EXECUTE FUNCTION capture_shelf();
    CREATE VIEW backlog AS SELECT count(*) FROM _private.outbox WHERE processed_at IS NULL;
    CREATE FUNCTION waiting() RETURNS SETOF _private.outbox LANGUAGE sql AS 'SELECT * FROM _private.outbox'`);
  await expect(upgrade()).rejects.toThrow(
    'these triggers write to the old tables, which become views: capture_shelf on shelves',
  );
  await db.query('INSERT INTO shelves VALUES (gen_random_uuid()); DROP TABLE shelves');
  await expect(upgrade()).rejects.toThrow('these read the old tables: backlog, waiting()');
  await db.query('DROP VIEW backlog; DROP FUNCTION waiting()');
  await upgrade();
});

test('N5 N16 the dead letter of a moved event is a copy with the columns of the outbox and its own creation time', async () => {
  const event_id = await oldEvent(90, { event_type: 'deleted' });
  const { rows: before } = await db.query<{ created_at: Date }>(
    'SELECT created_at FROM _private.outbox',
  );
  await cursorAt('job-processor', null);
  await upgrade();
  await processed();
  const { rows } = await db.query<{ original_event: Record<string, unknown> }>(
    'SELECT original_event FROM _private.outbox_dlq',
  );
  const { original_event: copy } = only(rows);
  expect(copy).toMatchObject({ event_id, retry_count: 1, processed_at: null });
  expect(copy['last_error']).toContain('is gone');
  expect(new Date(String(copy['created_at']))).toEqual(only(before).created_at);
  const { rows: columns } = await db.query<{ name: string }>(
    `SELECT attname AS name FROM pg_attribute WHERE attrelid = '_private.outbox'::regclass AND attnum > 0`,
  );
  expect(Object.keys(copy).toSorted()).toEqual(columns.map(({ name }) => name).toSorted());
});
