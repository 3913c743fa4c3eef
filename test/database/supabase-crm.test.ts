// The CRM of examples/crm on Supabase, whose environment is recreated: what `service_role` may do with its key, exactly,
// that `anon` and `authenticated` may do nothing, and the smoke tests in psql as the role that installs the example.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';

import { expect, it } from 'vitest';

import { rightsOf, usableBy } from '../support/api-access.js';
import { findPgbouncer } from '../support/pgbouncer.js';
import { keyOf } from '../support/postgrest.js';
import { hasPsql, psqlCommand, runCommand, textBlocks } from '../support/psql.js';
import { makeSupabase } from '../support/supabase.js';
import type { Supabase } from '../support/supabase.js';

const program = findPgbouncer() ?? '';
const refused = { code: '42501' };
const folder = path.resolve('examples/crm');
const tenant = '5d1c5ffb-6b0f-4b7e-8d2c-2f6f4f0b9d11';

type Row = { id: string; payload: { seq: number }; processing_token: string; delivered_at: null };

async function installCrm(): Promise<Supabase> {
  const supabase = await makeSupabase();
  await supabase.waybill('migrate', 'up');
  await supabase.waybill('roles', 'install', '--prefix', supabase.prefix);
  const schema = readFileSync(path.join(folder, 'schema.sql'), 'utf8');
  await supabase.query(schema);
  // it can be run again
  await supabase.query(schema);
  return supabase;
}

it.skipIf(program === '')(
  'C12 C1 C2 C3 the service role inserts, claims and marks with its key, and may do nothing else; others may do nothing',
  async () => {
    const supabase = await installCrm();
    const api = await supabase.startApi(program, ['public', 'app']);
    await api.statement(
      'service_role',
      `INSERT INTO public.outbox (tenant_id, topic, payload, created_at)
       SELECT '${tenant}', 'contact.created', jsonb_build_object('seq', n), now() - n * interval '1 hour'
         FROM generate_series(1, 3) n RETURNING id`,
    );
    const token = randomUUID();
    const claim = { p_limit: 10, p_token: token, p_tenant: tenant };
    const rows = await api.rpc<Row>('service_role', 'app.outbox_claim', claim);
    expect(rows.map(({ payload }) => payload.seq)).toEqual([3, 2, 1]);
    expect(Object.keys(rows[0] ?? {})).toEqual([
      'id',
      'tenant_id',
      'topic',
      'payload',
      'created_at',
      'delivered_at',
      'attempts',
      'processing_token',
    ]);
    expect(rows[0]).toMatchObject({ processing_token: token, delivered_at: null });
    const [failed = '', ...p_ids] = rows.map(({ id }) => id);
    const mark = (p_token: string) =>
      api.rpc('service_role', 'app.outbox_mark_delivered', { p_token, p_ids });
    expect(await mark(randomUUID())).toEqual([0]);
    expect(await mark(token)).toEqual([2]);
    const p_errors = { [failed]: 'the topic is missing' };
    expect(
      await api.rpc('service_role', 'app.outbox_mark_failed', { p_token: token, p_errors }),
    ).toEqual([1]);
    const { rows: kept } = await supabase.query(
      `SELECT last_error, retrying FROM outbox.message_status WHERE tries > 0 AND status = 'pending'`,
    );
    expect(kept).toEqual([{ last_error: 'the topic is missing', retrying: true }]);

    // tenants and tokens are uuids
    await expect(
      api.rpc('service_role', 'app.outbox_claim', { ...claim, p_tenant: 'acme' }),
    ).rejects.toMatchObject({ code: '22P02' });

    // over HTTP, the key decides
    const url = await api.listen();
    const claimWith = async (key: string | undefined, body: object) => {
      const response = await fetch(`${url}/rest/v1/rpc/outbox_claim`, {
        method: 'POST',
        headers: {
          'content-profile': 'app',
          ...(key !== undefined && { authorization: `Bearer ${key}` }),
        },
        body: JSON.stringify(body),
      });
      return { status: response.status, body: (await response.json()) as object };
    };
    const given = { p_limit: 1, p_token: randomUUID(), p_tenant: randomUUID() };
    expect(await claimWith(keyOf('service_role'), given)).toEqual({ status: 200, body: [] });
    expect(await claimWith(keyOf('authenticated'), given)).toMatchObject({ status: 403 });
    expect(await claimWith(undefined, given)).toMatchObject({ status: 403 });
    expect(await claimWith(`${keyOf('service_role')}x`, given)).toMatchObject({ status: 401 });
    expect(await claimWith(keyOf('service_role'), { ...given, limit: 1 })).toMatchObject({
      status: 404,
      body: { code: 'PGRST202' },
    });

    for (const role of ['anon', 'authenticated'] as const) {
      expect(await usableBy(supabase, role, ['outbox', 'app', 'public'])).toEqual([]);
      expect(await rightsOf(supabase, [role], ['outbox', 'app', 'public'])).toEqual([
        `${role}: schema public`,
      ]);
      await expect(
        api.statement(role, "INSERT INTO public.outbox (topic, payload) VALUES ('a', '{}')"),
      ).rejects.toMatchObject(refused);
    }
    expect(await rightsOf(supabase, ['service_role'], ['outbox', 'app'])).toEqual([
      'service_role: app.outbox_claim(integer,uuid,uuid)',
      'service_role: app.outbox_claimed()',
      'service_role: app.outbox_is_last(uuid,integer,integer)',
      'service_role: app.outbox_mark_delivered(uuid,uuid[])',
      'service_role: app.outbox_mark_failed(uuid,jsonb)',
      'service_role: schema app',
    ]);
    // it may name the view, whose tables it may not read
    await expect(
      api.statement('service_role', 'SELECT * FROM public.outbox'),
    ).rejects.toMatchObject(refused);
    expect(await usableBy(supabase, 'service_role', ['public'])).toEqual([
      'public.contact_identities',
    ]);
    const reading = textBlocks('examples/crm/README.md').find((text) => text.startsWith('GRANT'));
    await supabase.query(reading?.replaceAll('waybill_', supabase.prefix) ?? '');
    expect(await api.statement('service_role', 'SELECT * FROM public.outbox')).toBe(3);
    const { rows: unhealthy } = await supabase.query(
      'SELECT name FROM outbox.health_check() WHERE NOT ok',
    );
    expect(unhealthy).toEqual([]);
  },
);

it.skipIf(!hasPsql)(
  'C11 C12 the four smoke tests run in psql, and fail when one is not met',
  async () => {
    const supabase = await installCrm();
    const command = psqlCommand('examples/crm/README.md', 'smoke-tests.sql');
    const smoke = () => runCommand(command, supabase.urlOf(supabase.admin));
    const passed = await smoke();
    expect(`${passed.code} ${passed.stderr}`).toBe('0 ');
    expect(passed.stdout.match(/ok: \d/g)).toEqual([1, 3, 3, 4, 2, 2].map((n) => `ok: ${n}`));
    expect(await smoke()).toMatchObject({ code: 0 });

    await supabase.query('DROP INDEX public.contact_identities_email');
    const failed = await smoke();
    expect(failed.code).not.toBe(0);
    expect(failed.stderr).toContain('not met: 4. both identities are refused');
  },
);

it('C9 C12 the daily retention removes delivered days, makes partitions ahead, and leaves what waits', async () => {
  const supabase = await installCrm();
  const readme = readFileSync(path.join(folder, 'README.md'), 'utf8');
  const [, scheduled = ''] =
    /cron\.schedule\('outbox-retention', '0 2 \* \* \*', '(.+)'\)/.exec(readme) ?? [];
  await supabase.superuser.query(`
    SELECT outbox.make_partitions(-9, (now() AT TIME ZONE 'UTC')::date - 10);
    INSERT INTO outbox.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
    SELECT 2, outbox.id_at(now() - d * interval '1 day'), now() - d * interval '1 day', pg_current_xact_id(),
           'default', 'contact.created', 'null' FROM unnest('{9,10}'::int[]) d;
    INSERT INTO app.outbox_ids SELECT gen_random_uuid(), m.id FROM outbox.messages m;
    INSERT INTO outbox.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
    SELECT m.id, t.id, 1, 1, 'dispatched', now() FROM outbox.messages m, outbox.destinations t
     WHERE t.name = 'crm' AND m.created_at < now() - interval '9.5 days';
    INSERT INTO outbox.deliveries (message_id, available_at, bytes, destination_id, namespace)
    SELECT m.id, now(), 2, t.id, 'default' FROM outbox.messages m, outbox.destinations t
     WHERE t.name = 'crm' AND m.created_at > now() - interval '9.5 days'`);
  const run = async () => (await supabase.query<{ outbox_retention: string }>(scheduled)).rows;
  expect(await run()).toEqual([{ outbox_retention: '1' }]);
  expect(await run()).toEqual([{ outbox_retention: '0' }]);
  const { rows } = await supabase.query(
    `SELECT count(*)::int AS waiting, (SELECT count(*)::int FROM app.outbox_ids) AS ids,
            outbox.partition_days_ahead() AS ahead FROM public.outbox`,
  );
  expect(rows).toEqual([{ waiting: 1, ids: 1, ahead: 60 }]);
  // without partitions ahead, inserts would fail some day
  await supabase.superuser.query(
    `DO $$ BEGIN EXECUTE (SELECT string_agg(format('DROP TABLE outbox.%I', relname), ';') FROM pg_class
       WHERE relnamespace = 'outbox'::regnamespace AND relname IN (
         to_char((now() AT TIME ZONE 'UTC')::date + 60, '"messages_"YYYYMMDD'),
         to_char((now() AT TIME ZONE 'UTC')::date + 60, '"attempts_"YYYYMMDD')) AND relkind = 'r'); END $$`,
  );
  await run();
  const { rows: after } = await supabase.query('SELECT outbox.partition_days_ahead() AS ahead');
  expect(after).toEqual([{ ahead: 60 }]);
});
