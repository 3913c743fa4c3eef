// PUBLIC never has a right on anything of Waybill; a producer needs only EXECUTE on enqueue.

import { randomUUID } from 'node:crypto';

import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
const suffix = randomUUID().slice(0, 8);
const stranger = `stranger_${suffix}`;
const producer = `producer_${suffix}`;
let queue: Queue;

beforeAll(async () => {
  queue = await makeQueue(db);
  await db.query(`CREATE ROLE ${stranger} LOGIN; CREATE ROLE ${producer} LOGIN`);
  const { rows } = await db.query<{ signature: string }>(
    `SELECT p.oid::regprocedure::text AS signature FROM pg_proc p
      WHERE p.pronamespace = $1::text::regnamespace AND p.proname = 'enqueue'`,
    [db.quoted],
  );
  await db.query(`GRANT USAGE ON SCHEMA ${db.quoted} TO ${producer};
    GRANT EXECUTE ON FUNCTION ${only(rows).signature} TO ${producer}`);
});

afterAll(async () => {
  await db.query(
    `DROP OWNED BY ${stranger}, ${producer}; DROP ROLE ${stranger}; DROP ROLE ${producer}`,
  );
});

async function connectAs(role: string): Promise<pg.Client> {
  const url = new URL(db.url);
  url.username = role;
  const client = new pg.Client({ connectionString: url.href });
  await client.connect();
  return client;
}

async function as<T>(role: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = await connectAs(role);
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

type Named = { name: string };

async function relations(kinds: string[]): Promise<string[]> {
  const { rows } = await db.query<Named>(
    `SELECT c.oid::regclass::text AS name FROM pg_class c
      WHERE c.relnamespace = $1::text::regnamespace AND c.relkind = ANY ($2) ORDER BY 1`,
    [db.quoted, kinds],
  );
  return rows.map((row) => row.name);
}

describe('PUBLIC', () => {
  it('P13 N8 has no right on the schema, a table, a column, a sequence, a function or a type', async () => {
    const { rows } = await db.query<Named>(
      `WITH ours AS (SELECT $1::text::regnamespace AS schema), granted AS (
         SELECT 'schema' AS name, n.nspacl AS acl FROM pg_namespace n, ours WHERE n.oid = ours.schema
         UNION ALL SELECT c.oid::regclass::text, coalesce(c.relacl, acldefault(
             CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner)) FROM pg_class c, ours
           WHERE c.relnamespace = ours.schema AND c.relkind IN ('r', 'p', 'v', 'S')
         UNION ALL SELECT c.relname || '.' || a.attname, a.attacl FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid, ours
           WHERE c.relnamespace = ours.schema AND a.attacl IS NOT NULL
         UNION ALL SELECT p.oid::regprocedure::text, coalesce(p.proacl, acldefault('f', p.proowner)) FROM pg_proc p, ours
           WHERE p.pronamespace = ours.schema
         UNION ALL SELECT t.typname, coalesce(t.typacl, acldefault('T', t.typowner)) FROM pg_type t, ours
           WHERE t.typnamespace = ours.schema AND t.typtype = 'e')
       SELECT DISTINCT g.name FROM granted g, aclexplode(g.acl) a WHERE a.grantee = 0`,
      [db.quoted],
    );
    expect(rows).toEqual([]);
    const { rows: functions } = await db.query(
      'SELECT FROM pg_proc WHERE pronamespace = $1::text::regnamespace',
      [db.quoted],
    );
    expect(functions.length, 'the query sees the schema').toBeGreaterThan(20);
  });

  it('P13 functions that run with the owner’s rights have a fixed search_path that ends in pg_temp', async () => {
    const { rows } = await db.query<{ name: string; path: string | null }>(
      `SELECT p.proname AS name, (SELECT s FROM unnest(p.proconfig) s WHERE s LIKE 'search_path=%') AS path
         FROM pg_proc p WHERE p.pronamespace = $1::text::regnamespace AND p.prosecdef`,
      [db.quoted],
    );
    expect(rows.map((row) => row.name).toSorted()).toEqual(
      expect.arrayContaining(['enqueue', 'enqueue_many']),
    );
    for (const { name, path } of rows) expect(path, name).toMatch(/, pg_temp$/);
  });
});

describe('a role without any grant', () => {
  it('N8 P13 reads no table and no view', async () => {
    const names = await relations(['r', 'p', 'v']);
    expect(names.length).toBeGreaterThan(10);
    await as(stranger, async (client) => {
      for (const name of names) {
        await expect(client.query(`SELECT FROM ${name}`), name).rejects.toMatchObject({
          code: '42501',
        });
      }
    });
  });

  it('N8 P13 calls no function', async () => {
    await as(stranger, async (client) => {
      const calls = ['enqueue($1)', 'claim($1, gen_random_uuid())', 'health_check()', 'reap()'];
      for (const call of calls) {
        const called = client.query(
          `SELECT * FROM ${db.quoted}.${call}`,
          call.includes('$1') ? [queue.topic] : [],
        );
        await expect(called, call).rejects.toMatchObject({ code: '42501' });
      }
    });
  });

  it("P13 cannot shadow Waybill's functions with its own", async () => {
    await as(producer, async (client) => {
      await client.query(`CREATE FUNCTION pg_temp.new_id() RETURNS uuid LANGUAGE sql
        AS $$ SELECT '00000000-0000-0000-0000-000000000000'::uuid $$`);
      await client.query(
        `CREATE TEMP TABLE messages (id uuid); CREATE TEMP TABLE routes (id uuid)`,
      );
      await client.query('SET search_path = pg_temp, public');
      const { rows } = await client.query<{ id: string }>(
        `SELECT id FROM ${db.quoted}.enqueue($1)`,
        [queue.topic],
      );
      const { rows: kept } = await db.query(`SELECT FROM ${db.quoted}.messages WHERE id = $1`, [
        only(rows).id,
      ]);
      expect(kept).toHaveLength(1);
    });
  });
});

describe('a producer with EXECUTE on enqueue only', () => {
  it('P13 P15 enqueues, and writes and reads no table', async () => {
    await as(producer, async (client) => {
      const { rows } = await client.query<{ id: string }>(
        `SELECT id FROM ${db.quoted}.enqueue($1, '{"a": 1}')`,
        [queue.topic],
      );
      expect((await queue.waiting()).map((row) => row.message_id)).toContain(only(rows).id);
      for (const name of await relations(['r', 'p'])) {
        const denied = { code: '42501' };
        await expect(client.query(`SELECT FROM ${name}`), name).rejects.toMatchObject(denied);
        await expect(client.query(`DELETE FROM ${name}`), name).rejects.toMatchObject(denied);
        await expect(
          client.query(`INSERT INTO ${name} DEFAULT VALUES`),
          name,
        ).rejects.toMatchObject(denied);
      }
    });
  });

  it('P13 cannot claim, settle or operate', async () => {
    await as(producer, async (client) => {
      const calls = [
        `claim('${queue.name}', gen_random_uuid())`,
        `mark_delivered(gen_random_uuid(), '{}')`,
        'reap()',
        'cancel(gen_random_uuid())',
        "enqueue_many('[]')",
        'new_id()',
      ];
      for (const call of calls) {
        const called = client.query(`SELECT * FROM ${db.quoted}.${call}`);
        await expect(called, call).rejects.toMatchObject({ code: '42501' });
      }
    });
  });
});
