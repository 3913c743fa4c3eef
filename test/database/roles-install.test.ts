// Installing roles: it does what it prints, and a second run does nothing. The next migration repairs what has changed
// since. What cannot be done is refused with the remedy.

import { randomUUID } from 'node:crypto';

import pg from 'pg';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { migrationSteps } from '../../src/database/migration-steps.js';
import { installRoles, planRoles } from '../../src/database/roles.js';
import { handler } from '../../src/destinations/handler.js';
import { cliOn, json } from '../support/cli.js';
import { as, rolePrefix } from '../support/logins.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';
import { makeRelay, startRelay } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const made: string[] = [];

/** A prefix that no other test uses; its roles are dropped when the file ends. */
function newPrefix(): string {
  const prefix = `t${randomUUID().slice(0, 8)}_`;
  made.push(prefix);
  return prefix;
}

afterAll(async () => {
  const { rows } = await db.query<{ name: string }>(
    `SELECT rolname AS name FROM pg_roles WHERE substring(rolname FROM '^t[0-9a-f]{8}_') = ANY ($1)`,
    [made],
  );
  for (const { name } of rows) await db.query(`DROP ROLE ${name}`);
});

/** A database without roles, whose roles can be dropped when the test has ended. */
async function freshDatabase(): Promise<{ url: string; client: pg.Client }> {
  const fresh = await otherDatabase('migrated without roles');
  onTestFinished(async () => {
    await fresh.client.query(`DROP SCHEMA ${db.quoted} CASCADE`);
  });
  return fresh;
}

const health = `SELECT name, detail FROM ${db.quoted}.health_check() WHERE NOT ok`;

describe('roles install', () => {
  it('P13 does what it printed before, and nothing on the second run', async () => {
    const { url } = await freshDatabase();
    const options = { url, schema: db.schema };
    const prefix = newPrefix();
    const [path, ...planned] = await planRoles(options, prefix);
    expect(path).toBe(`SET LOCAL search_path = ${db.quoted}, pg_temp`);
    expect(await installRoles(options, prefix)).toEqual(planned);
    expect(planned).toContain(`ALTER SCHEMA ${quoted(db.schema)} OWNER TO ${prefix}owner`);
    expect(await installRoles(options, prefix)).toEqual([]);
    expect(await planRoles(options, prefix)).toEqual([]);
  });

  it('P13 what it prints can be run in psql instead', async () => {
    const { url, client } = await freshDatabase();
    const prefix = newPrefix();
    const statements = await planRoles({ url, schema: db.schema }, prefix);
    await client.query(`BEGIN; ${statements.join('; ')}; COMMIT`);
    await client.query('RESET search_path');
    expect((await client.query(health)).rows).toEqual([]);
    expect(await planRoles({ url, schema: db.schema }, prefix)).toEqual([]);
  });

  it('P13 protects a schema that another tool created', async () => {
    const { client } = await otherDatabase('empty');
    await client.query(
      migrationSteps(db.schema)
        .map(({ up }) => up)
        .join(''),
    );
    expect((await client.query(health)).rows).toEqual([]);
  });

  it('P13 two databases share the roles', async () => {
    const prefix = newPrefix();
    const [one, two] = [await freshDatabase(), await freshDatabase()];
    await Promise.all(
      [one, two].map(({ url }) => installRoles({ url, schema: db.schema }, prefix)),
    );
    for (const { client } of [one, two]) expect((await client.query(health)).rows).toEqual([]);
  });

  it('P13 N12 works while producers and relays run: nothing fails, nothing is lost', async () => {
    const { url, client } = await freshDatabase();
    let delivered = 0;
    const relay = await startRelay(db, {
      destinations: { live: handler(() => void (delivered += 1)) },
      database: { url },
    });
    const producer = new pg.Client({ connectionString: url });
    await producer.connect();
    let sent = 0;
    const state = { installed: false };
    const producing = (async () => {
      while (!state.installed || sent < 20) {
        await producer.query(`SELECT ${db.quoted}.enqueue('live', key => $1)`, [`k${sent % 5}`]);
        sent += 1;
      }
    })();
    await waitFor(() => delivered > 5, { what: 'the first deliveries' });
    await installRoles({ url, schema: db.schema }, newPrefix());
    state.installed = true;
    await producing;
    await producer.end();
    await waitFor(() => delivered >= sent, { what: 'all of them', timeoutMs: 20_000 });
    expect((await client.query(health)).rows).toEqual([]);
    await relay.stop();
  });

  it.each([
    ['', /prefix is "": give up to 40 lower-case letters/],
    ['pg_', /prefix is "pg_"/],
    ['Shop_', /prefix is "Shop_"/],
    ['a"; DROP ROLE x; --', /prefix is "a"; DROP ROLE/],
    ['a'.repeat(41), /prefix is "a{41}"/],
    ['other_', /the roles of this schema are called waybill_auditor.* already: use that prefix/],
  ])('P13 refuses the prefix %j', async (prefix, words) => {
    await expect(installRoles({ url: db.url, schema: db.schema }, prefix)).rejects.toThrow(words);
  });

  it('P13 refuses an owner that can log in, or that row level security does not bind', async () => {
    const { url } = await freshDatabase();
    for (const [attribute, fact, remedy] of [
      ['LOGIN', 'can log in', 'NOLOGIN'],
      ['SUPERUSER', 'is a superuser', 'NOSUPERUSER'],
      ['BYPASSRLS', 'bypasses row level security', 'NOBYPASSRLS'],
    ]) {
      const prefix = newPrefix();
      await db.query(`CREATE ROLE ${prefix}owner ${attribute}`);
      await expect(installRoles({ url, schema: db.schema }, prefix)).rejects.toThrow(
        `the role ${prefix}owner exists and ${fact}: choose another prefix, or run ALTER ROLE ${prefix}owner ${remedy}`,
      );
    }
  });

  it('P13 the command shows the roles, their rights, and their members', async () => {
    const shown = json(await cliOn(db, ['roles', 'show', '--json'])) as {
      role: string;
      name: string;
      members: string[];
      functions: string[];
      tables: string[];
    }[];
    expect(shown.find(({ role }) => role === 'producer')).toMatchObject({
      name: 'waybill_producer',
      members: ['test_producer'],
      functions: ['enqueue', 'enqueue_many', 'enqueue_text', 'report_sent', 'rollout_decision'],
      tables: [],
    });
    const { stdout } = await cliOn(db, ['roles', 'show']);
    expect(stdout).toMatch(/^relay +waybill_relay +.*\btest_relay\b.* \d+ +0 +claims/m);
  });
});

describe('a later migration', () => {
  it.each([
    [
      'a missing right',
      () => `REVOKE EXECUTE ON FUNCTION ${db.quoted}.reap(int) FROM ${rolePrefix}relay`,
    ],
    ['a right too many', () => `GRANT DELETE ON ${db.quoted}.deliveries TO ${rolePrefix}relay`],
    [
      'a column too many',
      () => `GRANT SELECT (hash) ON ${db.quoted}.tokens TO ${rolePrefix}auditor`,
    ],
    [
      'a function too many',
      () => `GRANT EXECUTE ON FUNCTION ${db.quoted}.number_messages TO ${rolePrefix}producer`,
    ],
    ['a right to create', () => `GRANT CREATE ON SCHEMA ${db.quoted} TO ${rolePrefix}producer`],
    [
      'a disabled guard',
      () => `ALTER TABLE ${db.quoted}.deliveries DISABLE TRIGGER never_truncated`,
    ],
    ['a missing tenant policy', () => `DROP POLICY tenants ON ${db.quoted}.messages`],
    [
      'a policy for another',
      () =>
        `ALTER POLICY readers ON ${db.quoted}.keys TO ${rolePrefix}control, ${rolePrefix}auditor`,
    ],
  ])('P13 N8 finds and repairs %s', async (_what, damage) => {
    await db.query(damage());
    expect(only((await db.query<{ name: string }>(health)).rows)).toMatchObject({
      name: 'protection',
    });
    await migrateUp({ url: db.url, schema: db.schema });
    expect((await db.query(health)).rows).toEqual([]);
  });

  it('P13 gives new objects to the owner, whichever login migrates', async () => {
    await db.query(`DROP FUNCTION ${db.quoted}.explain(uuid);
      DELETE FROM ${db.quoted}.applied_files WHERE file = 'functions/explain.sql'`);
    await migrateUp({ url: db.url, schema: db.schema });
    const { rows } = await db.query(
      `SELECT pg_get_userbyid(p.proowner) AS owner, has_function_privilege('test_control', p.oid, 'EXECUTE') AS control,
              has_function_privilege('test_relay', p.oid, 'EXECUTE') AS relay
         FROM pg_proc p WHERE p.pronamespace = $1::text::regnamespace AND p.proname = 'explain'`,
      [db.quoted],
    );
    expect(rows).toEqual([{ owner: `${rolePrefix}owner`, control: true, relay: false }]);
  });
});

describe('a relay with only its role', () => {
  it('N1 P13 creates the watches of its file if the owner may create triggers, and reports what is missing if not', async () => {
    await db.query('CREATE TABLE public.orders (id int PRIMARY KEY)');
    const drain = () =>
      makeRelay(db, {
        destinations: { sink: handler(() => {}) },
        watches: [{ table: 'public.orders', topic: 'order' }],
      }).relay.drain({ maxMs: 5000, maxMessages: 10 });
    await expect(drain()).rejects.toMatchObject({
      code: '42501',
      message: expect.stringContaining(
        'waybill_owner may not put triggers on public.orders',
      ) as string,
      hint: expect.stringContaining('GRANT TRIGGER ON public.orders TO waybill_owner') as string,
    });
    await db.query('GRANT TRIGGER ON public.orders TO waybill_owner');
    await drain();
    await db.query(`CREATE ROLE ${newPrefix()}writer LOGIN`);
    const writer = `${made.at(-1) ?? ''}writer`;
    await db.query(`GRANT INSERT ON public.orders TO ${writer}`);
    const address = new URL(db.url);
    address.username = writer;
    const client = new pg.Client({ connectionString: address.href });
    await client.connect();
    await client.query('INSERT INTO public.orders VALUES (7)');
    await client.end();
    await db.query(`REVOKE ALL ON public.orders FROM ${writer}`);
    const { rows } = await db.query<{ record: string }>(
      `SELECT payload ->> 'recordId' AS record FROM ${db.quoted}.messages WHERE topic = 'order.created'`,
    );
    expect(rows).toEqual([{ record: '7' }]);
  });

  it('P13 cannot create its own trigger that calls watch_event, which trusts its arguments', async () => {
    await as(db, 'test_relay', async (client) => {
      await client.query('CREATE TEMP TABLE bait (id int PRIMARY KEY)');
      await expect(
        client.query(`CREATE TRIGGER mine AFTER INSERT ON bait REFERENCING NEW TABLE AS new_rows
          FOR EACH STATEMENT EXECUTE FUNCTION ${db.quoted}.watch_event('{}')`),
      ).rejects.toMatchObject({ code: '42501' });
    });
  });

  it('P5 N7 removes only expired days, and keeps them at least as long as the owner wants', async () => {
    await db.query(`SELECT ${db.quoted}.make_partitions(0, (now() AT TIME ZONE 'UTC')::date - 20)`);
    const day = (ago: number): string =>
      new Date(Date.now() - ago * 86_400_000).toISOString().slice(0, 10).replaceAll('-', '');
    await as(db, 'test_maintenance', async (client) => {
      const remove = async (partition: string, days: number) => {
        const { rows } = await client.query<{ rows: string | null }>(
          `SELECT ${db.quoted}.remove_partition($1, $2 * interval '1 day', $2 * interval '1 day') AS rows`,
          [partition, days],
        );
        return only(rows).rows;
      };
      expect(await remove(`messages_${day(3)}`, 7), 'not expired').toBeNull();
      expect(await remove(`messages_${day(0)}`, 1), 'today').toBeNull();
      expect(await remove('deliveries', 1), 'no partition').toBeNull();
      expect(await remove(`messages_${day(15)}`, 7)).toBe('0');
      await db.query(
        `UPDATE ${db.quoted}.retention_floors SET messages_days = 12, attempts_days = 12`,
      );
      expect(await remove(`messages_${day(10)}`, 7), 'below the floor').toBeNull();
      await expect(
        client.query(`UPDATE ${db.quoted}.retention_floors SET messages_days = 1`),
      ).rejects.toMatchObject({ code: '42501' });
      expect(await remove(`messages_${day(14)}`, 7)).toBe('0');
    });
  });

  it('P5 does not wait to remove a day: it gives up, and producers continue', async () => {
    await db.query(
      `UPDATE ${db.quoted}.retention_floors SET messages_days = 1, attempts_days = 1;
       SELECT ${db.quoted}.make_partitions(0, (now() AT TIME ZONE 'UTC')::date - 20)`,
    );
    const queue = await makeQueue(db);
    const producer = await db.connect();
    await producer.query('BEGIN');
    await producer.query(`SELECT ${db.quoted}.enqueue($1)`, [queue.topic]);
    const { rows } = await db.query<{ partition: string }>(
      `SELECT partition FROM ${db.quoted}.expired_partitions('7 days', '7 days') WHERE statement IS NOT NULL LIMIT 1`,
    );
    await as(db, 'test_maintenance', async (client) => {
      const removing = client.query(
        `SELECT ${db.quoted}.remove_partition($1, '7 days', '7 days')`,
        [only(rows).partition],
      );
      await expect(removing).rejects.toMatchObject({ code: '55P03' });
    });
    await producer.query('COMMIT');
  });
});

function quoted(name: string): string {
  return /^[a-z_]+$/.test(name) ? name : pg.escapeIdentifier(name);
}
