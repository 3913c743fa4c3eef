// Waybill on Supabase, whose environment is recreated: a migrating role that is no superuser, default privileges that
// give everything to the roles of the API, and calls as PostgREST makes them, through a pooler in transaction mode.
// The SQL is that of docs/start/frameworks.md. Supabase itself does not run.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { findPgbouncer } from '../support/pgbouncer.js';
import { apiRoles, makeSupabase } from '../support/supabase.js';
import type { Supabase } from '../support/supabase.js';

type Block = { file: string; text: string };

const { blocks } = (await import(path.resolve('scripts/docs-blocks.mjs'))) as {
  blocks: (language: string) => Block[];
};
/** The grants that the CRM's page names. */
const grantsOfCrm = ({ prefix }: Supabase): string =>
  (
    /```text\n([^`]*GRANT[^`]*)```/.exec(readFileSync('examples/crm/README.md', 'utf8'))?.[1] ?? ''
  ).replaceAll('waybill_', prefix);
/** The SQL of the page, with the names of the roles that this test has. */
const recipe = ({ prefix }: Supabase): string =>
  blocks('sql')
    .filter(({ file }) => file === 'docs/start/frameworks.md')
    .map(({ text }) => text.replaceAll('waybill_', prefix))
    .join('\n');
const program = findPgbouncer() ?? '';
const refused = { code: '42501' };

/** Every right that one of the roles has in the schema outbox, through a grant, a membership or PUBLIC. */
async function rightsOf({ superuser }: Supabase, roles: readonly string[]): Promise<string[]> {
  const { rows } = await superuser.query<{ text: string }>(
    `WITH ours AS (SELECT 'outbox'::regnamespace AS schema), who AS (SELECT unnest($1::text[]) AS role)
     SELECT format('%s: %s', role, x.right) AS text
       FROM who, ours, LATERAL (
         SELECT 'schema' AS right WHERE has_schema_privilege(role, ours.schema, 'USAGE, CREATE')
         UNION ALL
         SELECT c.relname FROM pg_class c
          WHERE c.relnamespace = ours.schema AND c.relkind IN ('r', 'p', 'v')
            AND (has_table_privilege(role, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
                 OR has_any_column_privilege(role, c.oid, 'SELECT, INSERT, UPDATE, REFERENCES'))
         UNION ALL
         SELECT c.relname FROM pg_class c
          WHERE c.relnamespace = ours.schema AND c.relkind = 'S'
            AND has_sequence_privilege(role, c.oid, 'USAGE, SELECT, UPDATE')
         UNION ALL
         SELECT p.oid::regprocedure::text FROM pg_proc p
          WHERE p.pronamespace = ours.schema AND has_function_privilege(role, p.oid, 'EXECUTE')
         UNION ALL
         SELECT t.typname FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
          WHERE t.typnamespace = ours.schema AND (t.typtype = 'e' OR c.relkind = 'c')
            AND has_type_privilege(role, t.oid, 'USAGE')) x
      ORDER BY 1`,
    [roles],
  );
  return rows.map((row) => row.text);
}

async function install(supabase: Supabase): Promise<void> {
  await supabase.waybill('migrate', 'up');
  await supabase.waybill('roles', 'install', '--prefix', supabase.prefix);
}

describe('a role like Supabase’s postgres', () => {
  it('N8 N12 P13 migrates and installs the roles; the roles of the API get no right', async () => {
    const supabase = await makeSupabase();
    await supabase.waybill('migrate', 'up');
    expect(await rightsOf(supabase, apiRoles)).toEqual([]);
    await supabase.waybill('roles', 'install', '--prefix', supabase.prefix);
    expect(await rightsOf(supabase, apiRoles)).toEqual([]);
    const { rows } = await supabase.query('SELECT name FROM outbox.health_check() WHERE NOT ok');
    expect(rows).toEqual([]);
  });

  it.each(['of the whole database', 'of the schema'])(
    'N8 P13 default privileges %s give them nothing, nor do later partitions',
    async (where) => {
      const supabase = await makeSupabase();
      const inSchema = where === 'of the schema';
      if (inSchema) await supabase.query('CREATE SCHEMA outbox');
      for (const kind of ['TABLES', 'FUNCTIONS', 'SEQUENCES', 'TYPES', 'SCHEMAS'])
        if (!(inSchema && kind === 'SCHEMAS'))
          await supabase.query(
            `ALTER DEFAULT PRIVILEGES ${inSchema ? 'IN SCHEMA outbox' : ''}
               GRANT ALL ON ${kind} TO ${apiRoles.join(', ')}`,
          );
      await supabase.waybill('migrate', 'up');
      expect(await rightsOf(supabase, apiRoles)).toEqual([]);
      const { rows } = await supabase.query<{ made: number }>(
        'SELECT outbox.make_partitions(70) AS made',
      );
      expect(only(rows).made).toBeGreaterThan(0);
      expect(await rightsOf(supabase, apiRoles)).toEqual([]);
      await supabase.waybill('roles', 'install', '--prefix', supabase.prefix);
      expect(await rightsOf(supabase, apiRoles)).toEqual([]);
    },
  );
});

describe.skipIf(program === '')('calls of the API', () => {
  it('C12 N8 M1 the service role enqueues, claims and finishes; a user calls a function of the application', async () => {
    const supabase = await makeSupabase();
    await install(supabase);
    await supabase.query(recipe(supabase));
    await supabase.query(
      `SELECT outbox.apply_definitions('{"destinations": [{"name": "crm", "kind": "worker", "maxAttempts": 10,
         "retryBaseMs": 1000, "retryMaxMs": 300000}], "routes": [{"topic": "*", "to": "crm"}]}')`,
    );
    const api = await supabase.startApi(program, ['public', 'outbox']);

    // a user registers, and a worker with the service role's key delivers the message
    const email = 'ada@example.com';
    const [registered] = await api.rpc<string>('authenticated', 'public.register', { email });
    await expect(api.rpc('authenticated', 'public.register', { email })).rejects.toThrow(
      /users_email_key/,
    );
    const [enqueued] = await api.rpc<{ id: string; duplicate: boolean }>(
      'service_role',
      'outbox.enqueue',
      { topic: 'invoice.paid', payload: { invoice: 7 }, dedupe_key: 'invoice/7' },
    );
    const many = await api.rpc<{ id: string }>('service_role', 'outbox.enqueue_many', {
      p_messages: [{ topic: 'invoice.paid', payload: { invoice: 8 } }],
    });
    const token = randomUUID();
    const claimed = await api.rpc<{ message_id: string; payload: unknown }>(
      'service_role',
      'outbox.claim',
      { destination: 'crm', token, max_messages: 100 },
    );
    expect(claimed.map((row) => row.message_id)).toEqual([
      registered,
      enqueued?.id,
      ...many.map((row) => row.id),
    ]);
    expect(claimed[0]?.payload).toEqual({ userId: 1, email });
    const [first = '', second = '', third = ''] = claimed.map((row) => row.message_id);
    expect(
      await api.rpc('service_role', 'outbox.mark_delivered', {
        token,
        ids: [first],
        destination: 'crm',
      }),
    ).toEqual([1]);
    expect(
      await api.rpc('service_role', 'outbox.ack', { token, id: second, destination: 'crm' }),
    ).toEqual([true]);
    expect(
      await api.rpc('service_role', 'outbox.nack', {
        token,
        id: third,
        destination: 'crm',
        error: 'the receiver is down',
      }),
    ).toEqual([true]);

    // others see nothing and can do nothing
    expect(await rightsOf(supabase, ['anon', 'authenticated'])).toEqual([]);
    await expect(
      api.rpc('anon', 'public.register', { email: 'eve@example.com' }),
    ).rejects.toMatchObject(refused);
    const relations = await supabase.superuser.query<{ name: string }>(
      `SELECT c.oid::regclass::text AS name FROM pg_class c
        WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind IN ('r', 'p', 'v')`,
    );
    for (const role of ['anon', 'authenticated'] as const) {
      await expect(
        api.rpc(role, 'outbox.enqueue', { topic: 'invoice.paid' }),
      ).rejects.toMatchObject(refused);
      await expect(
        api.rpc(role, 'outbox.claim', { destination: 'crm', token: randomUUID() }),
      ).rejects.toMatchObject(refused);
      for (const { name } of relations.rows)
        await expect(api.statement(role, `SELECT FROM ${name}`), name).rejects.toMatchObject(
          refused,
        );
    }
    // the service role bypasses row level security, but has no right on any table
    for (const { name } of relations.rows)
      await expect(
        api.statement('service_role', `SELECT FROM ${name}`),
        name,
      ).rejects.toMatchObject(refused);
  });

  it('C12 C1 C2 C3 the CRM’s worker calls its two functions with the service role’s key; others cannot', async () => {
    const supabase = await makeSupabase();
    await install(supabase);
    await supabase.query(readFileSync('examples/crm/schema.sql', 'utf8'));
    await supabase.query(grantsOfCrm(supabase));
    const api = await supabase.startApi(program, ['public', 'app']);
    await api.statement(
      'service_role',
      `INSERT INTO public.outbox (tenant_id, topic, payload, created_at)
       SELECT '5d1c5ffb-6b0f-4b7e-8d2c-2f6f4f0b9d11', 'contact.created', jsonb_build_object('seq', n),
              now() - n * interval '1 hour'
         FROM generate_series(1, 3) n`,
    );
    const token = randomUUID();
    const rows = await api.rpc<{ id: string; payload: { seq: number }; processing_token: string }>(
      'service_role',
      'app.outbox_claim',
      { p_limit: 10, p_token: token, p_tenant: '5d1c5ffb-6b0f-4b7e-8d2c-2f6f4f0b9d11' },
    );
    expect(rows.map(({ payload }) => payload.seq)).toEqual([3, 2, 1]);
    expect(rows.every((row) => row.processing_token === token)).toBe(true);
    const p_ids = rows.map(({ id }) => id);
    const mark = (p_token: string) =>
      api.rpc('service_role', 'app.outbox_mark_delivered', { p_token, p_ids });
    expect(await mark(randomUUID())).toEqual([0]);
    expect(await mark(token)).toEqual([3]);

    for (const role of ['anon', 'authenticated'] as const) {
      await expect(
        api.rpc(role, 'app.outbox_claim', { p_limit: 1, p_token: token }),
      ).rejects.toMatchObject(refused);
      await expect(
        api.rpc(role, 'app.outbox_mark_delivered', { p_token: token, p_ids }),
      ).rejects.toMatchObject(refused);
      for (const sql of [
        'SELECT * FROM public.outbox',
        "INSERT INTO public.outbox (topic, payload) VALUES ('contact.created', '{}')",
      ])
        await expect(api.statement(role, sql), sql).rejects.toMatchObject(refused);
    }
  });
});
