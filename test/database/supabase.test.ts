// Waybill on Supabase, whose environment is recreated: a migrating role that is no superuser, default privileges that
// give everything to the roles of the API, and calls as PostgREST makes them, through a pooler in transaction mode.
// The SQL is that of docs/start/frameworks.md. Supabase itself does not run.

import { randomUUID } from 'node:crypto';
import path from 'node:path';

import { describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { rightsOf, usableBy } from '../support/api-access.js';
import { findPgbouncer } from '../support/pgbouncer.js';
import { apiRoles } from '../support/postgrest.js';
import { makeSupabase } from '../support/supabase.js';
import type { Supabase } from '../support/supabase.js';

type Block = { file: string; text: string };

const { blocks } = (await import(path.resolve('scripts/docs-blocks.mjs'))) as {
  blocks: (language: string) => Block[];
};
/** The SQL of the page, with the names of the roles that this test has. */
const recipe = ({ prefix }: Supabase): string =>
  blocks('sql')
    .filter(({ file }) => file === 'docs/start/frameworks.md')
    .map(({ text }) => text.replaceAll('waybill_', prefix))
    .join('\n');
const program = findPgbouncer() ?? '';
const refused = { code: '42501' };

async function install(supabase: Supabase): Promise<void> {
  await supabase.waybill('migrate', 'up');
  await supabase.waybill('roles', 'install', '--prefix', supabase.prefix);
}

describe('a role like Supabase’s postgres', () => {
  it('N8 N12 P13 migrates and installs the roles; the roles of the API get no right', async () => {
    const supabase = await makeSupabase();
    await supabase.waybill('migrate', 'up');
    expect(await rightsOf(supabase, apiRoles, ['outbox'])).toEqual([]);
    await supabase.waybill('roles', 'install', '--prefix', supabase.prefix);
    expect(await rightsOf(supabase, apiRoles, ['outbox'])).toEqual([]);
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
      expect(await rightsOf(supabase, apiRoles, ['outbox'])).toEqual([]);
      const { rows } = await supabase.query<{ made: number }>(
        'SELECT outbox.make_partitions(70) AS made',
      );
      expect(only(rows).made).toBeGreaterThan(0);
      expect(await rightsOf(supabase, apiRoles, ['outbox'])).toEqual([]);
      await supabase.waybill('roles', 'install', '--prefix', supabase.prefix);
      expect(await rightsOf(supabase, apiRoles, ['outbox'])).toEqual([]);
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
    await expect(
      api.rpc('anon', 'public.register', { email: 'eve@example.com' }),
    ).rejects.toMatchObject(refused);
    for (const role of ['anon', 'authenticated'] as const) {
      expect(await rightsOf(supabase, [role], ['outbox'])).toEqual([]);
      expect(await usableBy(supabase, role, ['outbox'])).toEqual([]);
      await expect(
        api.rpc(role, 'outbox.enqueue', { topic: 'invoice.paid' }),
      ).rejects.toMatchObject(refused);
    }
    expect(await api.statement('anon', 'SELECT * FROM public.users')).toBe(0);
    await expect(
      api.statement('anon', "INSERT INTO public.users (email) VALUES ('eve@example.com')"),
    ).rejects.toMatchObject(refused);
    expect(await usableBy(supabase, 'authenticated', ['public'])).toEqual([
      'public.register(text)',
      'public.users',
      'public.users_id_seq',
    ]);
    // the service role bypasses row level security, but has no right on any table
    const readable = await usableBy(supabase, 'service_role', ['outbox']);
    expect(readable.filter((name) => !name.endsWith(')'))).toEqual([]);
    expect(readable.length).toBeGreaterThan(10);
  });
});
