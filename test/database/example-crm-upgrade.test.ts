// The upgrade of examples/crm from the CRM's own outbox table, as UPGRADE.md has it: in psql, as a role that is no
// superuser, with rows in every state, and with workers of the old system that are in the middle of their work.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';

import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';

import { only } from '../support/only.js';
import { hasPsql, psqlCommand, runCommand, textBlocks } from '../support/psql.js';
import { makeSupabase } from '../support/supabase.js';
import type { Supabase } from '../support/supabase.js';
import { waitFor } from '../support/wait.js';

const folder = path.resolve('examples/crm');
const tenant = randomUUID();
const page = 'examples/crm/UPGRADE.md';
const [queries = '', , afterwards = ''] = textBlocks(page);

type Row = { id: string; tenant_id: string; payload: { n: number }; created_at: Date };

/** A project with the old outbox, and Waybill beside it, not yet in use. */
async function makeOldProject(): Promise<Supabase> {
  const supabase = await makeSupabase();
  await supabase.query(readFileSync(path.join(folder, 'old-system.sql'), 'utf8'));
  await supabase.query(`GRANT ALL ON SCHEMA app TO service_role;
    ALTER INDEX public.outbox_claimable RENAME TO idx_outbox_claimable;
    CREATE TABLE public.contact_identities (tenant_id uuid, contact_id uuid, type text, value text);
    INSERT INTO public.contact_identities VALUES ('${tenant}', gen_random_uuid(), 'email', 'ada@example.com')`);
  await supabase.waybill('migrate', 'up');
  await supabase.waybill('roles', 'install', '--prefix', supabase.prefix);
  return supabase;
}

/** n counts from the oldest; the ids are random, and the rows are inserted from the youngest. */
async function insert(supabase: Supabase, count: number): Promise<Row[]> {
  const { rows } = await supabase.query<Row>(
    `WITH made AS (
       INSERT INTO public.outbox (tenant_id, topic, payload, created_at)
       SELECT $1, 'contact.created', jsonb_build_object('n', n), now() - (100 - n) * interval '1 hour'
         FROM generate_series($2::int, 1, -1) n RETURNING *)
     SELECT * FROM made ORDER BY created_at`,
    [tenant, count],
  );
  return rows;
}

const upgrade = (supabase: Supabase) =>
  runCommand(psqlCommand(page, 'upgrade.sql'), supabase.urlOf(supabase.admin));

/** A worker of the service role. */
async function connect(supabase: Supabase): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: supabase.urlOf('authenticator') });
  onTestFinished(() => client.end());
  await client.connect();
  await client.query('SET ROLE service_role');
  return client;
}

async function claim(client: pg.Client, limit: number, token: string): Promise<Row[]> {
  const sql = 'SELECT * FROM app.outbox_claim($1, $2, NULL)';
  return (await client.query<Row>(sql, [limit, token])).rows;
}

async function mark(client: pg.Client, token: string, ids: string[]): Promise<number> {
  const sql = 'SELECT app.outbox_mark_delivered($1, $2) AS count';
  return only((await client.query<{ count: number }>(sql, [token, ids])).rows).count;
}

const numbers = (rows: Row[]): number[] => rows.map(({ payload }) => payload.n);
const idsOf = (rows: Row[]): string[] => rows.map(({ id }) => id);

describe.skipIf(!hasPsql)('the upgrade of the CRM', () => {
  it('C12 moves each row by its state: undelivered ones keep id, tenant, time and order, those in flight their worker', async () => {
    const supabase = await makeOldProject();
    const all = await insert(supabase, 8);
    const worker = await connect(supabase);
    const [delivering, died] = [randomUUID(), randomUUID()];
    // 1 and 2 are delivered; 3 and 4 are in flight; 5 is held by a worker that died; 6 to 8 wait
    const first = await claim(worker, 4, delivering);
    expect(numbers(first)).toEqual([1, 2, 3, 4]);
    const ids = first.map(({ id }) => id);
    expect(await mark(worker, delivering, ids.slice(0, 2))).toBe(2);
    expect(numbers(await claim(worker, 1, died))).toEqual([5]);

    // the queries of UPGRADE.md find nothing that would stop it
    for (const query of queries.split(';').slice(0, -1)) {
      const { rows } = await supabase.query(query);
      expect(rows).toEqual([]);
    }
    const done = await upgrade(supabase);
    expect(`${done.code} ${done.stderr}`).toMatch(/^0 /);

    const { rows: archived } = await supabase.query<Row>(
      'SELECT * FROM archive.outbox ORDER BY created_at',
    );
    expect(numbers(archived)).toEqual([1, 2]);
    const { rows: indexes } = await supabase.query(
      `SELECT indexname AS name FROM pg_indexes WHERE schemaname = 'archive'`,
    );
    expect(indexes).toEqual([{ name: 'outbox_pkey' }]);
    const { rows: moved } = await supabase.query<Row & { processing_token: string | null }>(
      'SELECT * FROM public.outbox ORDER BY created_at',
    );
    const same = ({ id, tenant_id, payload, created_at }: Row) => ({
      id,
      tenant_id,
      payload,
      created_at,
    });
    expect(moved.map((row) => same(row))).toEqual(all.slice(2).map((row) => same(row)));
    expect(moved.map((row) => row.processing_token)).toEqual([
      delivering,
      delivering,
      died,
      null,
      null,
      null,
    ]);

    // the worker that was in flight goes on, with its token and the ids that it knows
    expect(await mark(worker, delivering, ids)).toBe(2);
    const next = await claim(worker, 100, delivering);
    expect(next.map(({ id }) => id)).toEqual(all.slice(5).map(({ id }) => id));
    expect(
      await mark(
        worker,
        randomUUID(),
        next.map(({ id }) => id),
      ),
    ).toBe(0);
    expect(
      await mark(
        worker,
        delivering,
        next.map(({ id }) => id),
      ),
    ).toBe(3);

    // what the dead worker held comes back when its lease has expired
    await supabase.superuser.query(
      `UPDATE outbox.leases SET expires_at = now() - interval '1 minute', claimed_at = now() - interval '2 minutes'`,
    );
    const again = await waitFor(
      async () => {
        const rows = await claim(worker, 100, delivering);
        return rows.length > 0 ? rows : undefined;
      },
      { what: 'the row of the dead worker' },
    );
    expect(again.map(({ id }) => id)).toEqual([all[4]?.id]);
    expect(afterwards).toContain('DROP TABLE');
    await supabase.query(afterwards);
  });

  it('C12 C1 rows of one transaction have one created_at, and keep the order of their ids', async () => {
    const supabase = await makeOldProject();
    await supabase.query(
      `INSERT INTO public.outbox (tenant_id, topic, payload)
       SELECT $1, 'contact.created', '{}' FROM generate_series(1, 2400)`,
      [tenant],
    );
    expect(await upgrade(supabase)).toMatchObject({ code: 0 });
    const ids = idsOf(await claim(await connect(supabase), 5000, randomUUID()));
    expect(ids).toHaveLength(2400);
    expect(ids).toEqual(ids.toSorted());
  });

  it('C12 waits for a claim of an old worker that has not committed; one that waits for it meanwhile loses nothing', async () => {
    const supabase = await makeOldProject();
    await insert(supabase, 3);
    const [worker, token] = [await connect(supabase), randomUUID()];
    const [other, otherToken] = [await connect(supabase), randomUUID()];
    const untilWaiting = (count: number) =>
      waitFor(
        async () => {
          const { rows } = await supabase.superuser.query(
            `SELECT FROM pg_locks WHERE NOT granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
          );
          return rows.length >= count;
        },
        { what: `${count} to wait for a lock` },
      );
    await worker.query('BEGIN');
    const held = await claim(worker, 2, token);
    const upgraded = upgrade(supabase);
    await untilWaiting(1);
    const late = claim(other, 10, otherToken).catch((error: unknown) => error);
    await untilWaiting(2);
    await worker.query('COMMIT');
    expect(await upgraded).toMatchObject({ code: 0 });
    expect(await mark(worker, token, idsOf(held))).toBe(2);
    // its function was replaced while it waited; it has changed nothing, and the next call gets the row
    expect(await late).toBeInstanceOf(Error);
    expect(numbers(await claim(other, 10, otherToken))).toEqual([3]);
  });

  it('C12 loses and doubles no row that is inserted before, during and after it, and keeps the order of each writer', async () => {
    const supabase = await makeOldProject();
    await supabase.query('GRANT INSERT ON public.outbox TO service_role');
    const writers = await Promise.all([1, 2, 3].map(() => connect(supabase)));
    const written = writers.map(() => 0);
    const until = { count: Infinity };
    const write = async (writer: number) => {
      while ((written[writer] ?? 0) < until.count) {
        await writers[writer]?.query(
          `INSERT INTO public.outbox (tenant_id, topic, payload) VALUES ($1, 'contact.created', $2)`,
          [tenant, { writer, n: (written[writer] ?? 0) + 1 }],
        );
        written[writer] = (written[writer] ?? 0) + 1;
      }
    };
    const writing = Promise.all(writers.map((_, writer) => write(writer)));
    await waitFor(() => Promise.resolve(written.every((count) => count > 5)), {
      what: 'rows of every writer',
    });
    const done = await upgrade(supabase);
    until.count = Math.max(...written) + 5;
    await writing;
    expect(`${done.code} ${done.stderr}`).toMatch(/^0 /);
    const rows = (await claim(await connect(supabase), 10_000, randomUUID())) as (Row & {
      payload: { writer: number };
    })[];
    for (const [writer, count] of written.entries())
      expect(numbers(rows.filter(({ payload }) => payload.writer === writer))).toEqual(
        Array.from({ length: count }, (_, index) => index + 1),
      );
  });

  it('C12 changes nothing if it fails: the old system goes on', async () => {
    const supabase = await makeOldProject();
    await insert(supabase, 2);
    await supabase.query('CREATE VIEW public.backlog AS SELECT count(*) FROM public.outbox');
    const refused = await upgrade(supabase);
    expect(refused.code).not.toBe(0);
    expect(refused.stderr).toContain('these read public.outbox: backlog');
    const worker = await connect(supabase);
    const token = randomUUID();
    const rows = await claim(worker, 10, token);
    expect(numbers(rows)).toEqual([1, 2]);
    expect(
      await mark(
        worker,
        token,
        rows.map(({ id }) => id),
      ),
    ).toBe(2);
    await supabase.query(`DROP VIEW public.backlog;
      CREATE FUNCTION public.oldest() RETURNS SETOF public.outbox LANGUAGE sql AS 'SELECT * FROM public.outbox LIMIT 1'`);
    expect((await upgrade(supabase)).stderr).toContain('these read public.outbox: oldest()');
    await supabase.query(`DROP FUNCTION public.oldest;
      CREATE FUNCTION public.call_worker() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
      CREATE TRIGGER call_worker AFTER INSERT ON public.outbox EXECUTE FUNCTION public.call_worker()`);
    expect((await upgrade(supabase)).stderr).toContain(
      'public.outbox has these triggers: call_worker',
    );
    await supabase.query(`DROP FUNCTION public.call_worker CASCADE;
      INSERT INTO public.contact_identities VALUES ('${tenant}', gen_random_uuid(), 'email', 'Ada@Example.com')`);
    expect((await upgrade(supabase)).stderr).toContain('contact_identities_email');
    const { rows: found } = await supabase.query(queries.split(';')[0] ?? '');
    expect(found).toMatchObject([{ count: '2' }]);
    await supabase.query(`DELETE FROM public.contact_identities;
      UPDATE public.outbox SET topic = 'contact created', delivered_at = NULL`);
    expect((await upgrade(supabase)).stderr).toContain('topic "contact created" is malformed');
    const { rows: topics } = await supabase.query(queries.split(';')[2] ?? '');
    expect(topics).toEqual([{ topic: 'contact created', count: '2' }]);
    const { rows: left } = await supabase.query(`SELECT to_regnamespace('archive') AS archive`);
    expect(left).toEqual([{ archive: null }]);
  });
});
