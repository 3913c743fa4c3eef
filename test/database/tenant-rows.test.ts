// The tenant reader: through tables and views it sees the rows of the session's tenant, and nothing of other tenants,
// however it asks.

import pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';

import { as, urlAs } from '../support/logins.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { settle } from '../support/settling.js';
import { tablesOf } from '../support/role-matrix.js';

const db = testDatabase();
const tenants = ['acme', 'globex', undefined] as const;
/** One message in each state, for each tenant and without a tenant. */
const ids = new Map<string | undefined, string[]>();
let queue: Queue;
/** Everything that a tenant can read and that has a message id. */
/** The tables of which tenants see their own rows; brought_back has no rows of any tenant. */
const relations = (tablesOf['tenant_reader'] ?? []).filter(
  (name) => !['destinations', 'brought_back'].includes(name),
);

beforeAll(async () => {
  // with fairness, deliveries without a tenant have an empty one
  queue = await makeQueue(db, { maxAttempts: 5, fairness: 'tenant' });
  const sent = async (count: number): Promise<string[]> => {
    const made: string[] = [];
    for (const tenantId of tenants) {
      const own = await queue.enqueue(count, {
        payload: { secret: `of ${tenantId ?? 'none'}` },
        ...(tenantId && { tenantId }),
      });
      ids.set(tenantId, [...(ids.get(tenantId) ?? []), ...own]);
      made.push(...own);
    }
    return made;
  };
  const ended = await sent(2);
  const claim = await queue.claim({ limit: 100 });
  await settle(
    db,
    claim,
    ended.map((id, index) => ({
      id,
      outcome: index % 2 === 0 ? 'delivered' : 'reject',
      errorCode: 'broken',
    })),
  );
  await sent(1);
  // one lease that holds messages of all of them
  await queue.claim({ limit: 100, leaseMs: 3_600_000 });
  await sent(1);
  for (const tenantId of tenants) {
    const { rows } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.enqueue('not.routed', tenant_id => $1)`,
      [tenantId],
    );
    ids.set(tenantId, [...(ids.get(tenantId) ?? []), ...rows.map((row) => row.id)]);
  }
  await db.query(`UPDATE ${db.quoted}.retention_floors SET keeps_identity = true;
    SELECT ${db.quoted}.keep_identities((now() AT TIME ZONE 'UTC')::date)`);
});

async function seen(client: pg.Client, relation: string): Promise<string[]> {
  const column = relation === 'messages' ? 'id' : 'message_id';
  const { rows } = await client.query<{ id: string }>(
    `SELECT DISTINCT ${column} AS id FROM ${db.quoted}.${relation} ORDER BY 1`,
  );
  return rows.map((row) => row.id);
}

describe('a tenant reader', () => {
  it.each(relations)('N8 sees all rows of its tenant in %s, and nothing else', async (relation) => {
    const client = await db.connect();
    const all = await seen(client, relation);
    await as(db, 'test_tenant_reader', async (reader) => {
      for (const tenantId of ['acme', 'globex']) {
        await reader.query(`SELECT set_config('waybill.tenant_id', $1, false)`, [tenantId]);
        const own = all.filter((id) => ids.get(tenantId)?.includes(id));
        expect(own.length, 'the test has rows to show').toBeGreaterThan(0);
        expect(await seen(reader, relation)).toEqual(own);
      }
    });
    expect(all.length).toBeGreaterThan(2 * (await ownCount(relation)));
  });

  async function ownCount(relation: string): Promise<number> {
    return as(db, 'test_tenant_reader', async (reader) => {
      await reader.query(`SET waybill.tenant_id = 'acme'`);
      return (await seen(reader, relation)).length;
    });
  }

  it('N8 sees nothing without the setting, with an empty one, or after it was reset', async () => {
    await as(db, 'test_tenant_reader', async (reader) => {
      for (const before of [
        'SELECT 1',
        `SET waybill.tenant_id = ''`,
        `SET waybill.tenant_id = 'acme'; RESET waybill.tenant_id`,
        `BEGIN; SET LOCAL waybill.tenant_id = 'acme'; COMMIT`,
        `SET waybill.tenant_id = 'ACME'`,
        `SET waybill.tenant_id = '%'`,
      ]) {
        await reader.query(before);
        for (const relation of relations)
          expect(await seen(reader, relation), `${relation} after ${before}`).toEqual([]);
      }
    });
  });

  it('N8 sees the whole journey of its messages: each in its state, with the destination', async () => {
    await as(db, 'test_tenant_reader', async (reader) => {
      await reader.query(`SET waybill.tenant_id = 'acme'`);
      const { rows } = await reader.query<{ status: string; destination: string | null }>(
        `SELECT status, destination FROM ${db.quoted}.message_status ORDER BY message_id`,
      );
      expect(rows).toEqual([
        { status: 'delivered', destination: queue.name },
        { status: 'dead', destination: queue.name },
        { status: 'processing', destination: queue.name },
        { status: 'pending', destination: queue.name },
        { status: 'unrouted', destination: null },
      ]);
    });
  });

  it.each(relations)(
    'N8 learns nothing of others through a cheap function of its own in a query of %s',
    async (relation) => {
      await as(db, 'test_tenant_reader', async (reader) => {
        const heard: string[] = [];
        reader.on('notice', (notice) => heard.push(notice.message ?? ''));
        await reader.query(`SET waybill.tenant_id = 'acme';
        CREATE FUNCTION pg_temp.overhears(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001
        AS $$ BEGIN RAISE NOTICE '%', $1; RETURN true; END $$`);
        await reader.query(
          `SELECT FROM ${db.quoted}.${relation} r WHERE pg_temp.overhears(r::text)`,
        );
        expect(heard.length, 'its function sees its own rows').toBeGreaterThan(0);
        const others = [...(ids.get('globex') ?? []), ...(ids.get(undefined) ?? []), 'of globex'];
        for (const text of heard)
          for (const other of others) expect(text.includes(other), text).toBe(false);
      });
    },
  );

  it('N8 cannot switch row level security off', async () => {
    await as(db, 'test_tenant_reader', async (reader) => {
      await reader.query('SET row_security = off');
      await expect(reader.query(`SELECT FROM ${db.quoted}.messages`)).rejects.toMatchObject({
        code: '42501',
      });
    });
  });

  it('N8 sees the endpoints of its tenant, without their secrets, and no destinations of others', async () => {
    for (const tenantId of tenants)
      await db.query(`SELECT ${db.quoted}.add_endpoint($1, $2)`, [
        `endpoint-${tenantId ?? 'all'}`,
        JSON.stringify({
          url: 'https://example.com',
          topics: ['*'],
          sealedSecret: 'sealed:1:x',
          fingerprint: 'f',
          ...(tenantId && { tenantId }),
        }),
      ]);
    await as(db, 'test_tenant_reader', async (reader) => {
      await reader.query(`SET waybill.tenant_id = 'acme'`);
      const { rows } = await reader.query<{ name: string; url: string }>(
        `SELECT d.name, e.url FROM ${db.quoted}.destinations d LEFT JOIN ${db.quoted}.endpoints e ON e.destination_id = d.id
          WHERE d.origin = 'database'`,
      );
      expect(rows).toEqual([{ name: 'endpoint-acme', url: 'https://example.com' }]);
      await expect(
        reader.query(`SELECT secrets FROM ${db.quoted}.endpoints`),
      ).rejects.toMatchObject({ code: '42501' });
    });
  });

  it('N8 reads by the index of its tenant', async () => {
    await as(db, 'test_tenant_reader', async (reader) => {
      await reader.query(`SET waybill.tenant_id = 'acme'; SET enable_seqscan = off`);
      const { rows } = await reader.query<{ 'QUERY PLAN': string }>(
        `EXPLAIN (COSTS OFF) SELECT count(*) FROM ${db.quoted}.messages`,
      );
      const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
      expect(plan).toMatch(/Index Cond: \(tenant_id = NULLIF\(current_setting/);
    });
  });
});

describe('a role with SELECT on everything by mistake', () => {
  it('N8 still sees no row of any table', async () => {
    const url = urlAs(db.url, 'test_consumer');
    await db.query(`GRANT SELECT ON ALL TABLES IN SCHEMA ${db.quoted} TO waybill_consumer`);
    try {
      const { rows } = await db.query<{ name: string }>(
        `SELECT c.oid::regclass::text AS name FROM pg_class c
          WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p')`,
        [db.quoted],
      );
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      for (const { name } of rows)
        expect((await client.query(`SELECT FROM ${name}`)).rowCount, name).toBe(0);
      await client.end();
    } finally {
      await db.query(`REVOKE SELECT ON ALL TABLES IN SCHEMA ${db.quoted} FROM waybill_consumer`);
    }
  });
});
