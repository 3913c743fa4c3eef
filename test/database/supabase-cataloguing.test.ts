// The cataloguing service on Supabase, whose environment is recreated: schema.sql is run by a role that is no superuser,
// and the service's functions are called by rpc with the service role's key.

import { readFileSync } from 'node:fs';

import { expect, it } from 'vitest';

import { catalogueSql } from '../support/cataloguing.js';
import { findPgbouncer } from '../support/pgbouncer.js';
import { makeSupabase } from '../support/supabase.js';

const program = findPgbouncer() ?? '';
const refused = { code: '42501' };

it.skipIf(program === '')(
  'N16 N8 the service role prunes, checks and reads; anon and authenticated can do nothing',
  async () => {
    const supabase = await makeSupabase();
    const { prefix } = supabase;
    await supabase.waybill('migrate', 'up');
    await supabase.waybill('roles', 'install', '--prefix', prefix);
    const page = readFileSync('examples/cataloguing/README.md', 'utf8');
    // roles belong to the server, so those of the example have names of this test
    const ours = (sql: string) =>
      sql
        .replaceAll('waybill_', prefix)
        .replaceAll('cataloguing_', `${prefix}cataloguing_`)
        .replace('install_roles()', `install_roles('${prefix}')`);
    await supabase.query(ours(catalogueSql('schema.sql')));
    await supabase.query(ours(/```text\n(GRANT[^`]*)```/.exec(page)?.[1] ?? ''));
    const api = await supabase.startApi(program, ['public', '_private']);
    await api.statement(
      'service_role',
      'INSERT INTO cataloging_jobs (organization_id) SELECT gen_random_uuid() FROM generate_series(1, 50)',
    );

    const reads = [
      'SELECT * FROM _private.outbox',
      'SELECT * FROM _private.cursors',
      'SELECT * FROM _private.outbox_dlq',
      'SELECT * FROM public.outbox_health_metrics',
      'SELECT FROM public.run_system_health_check() WHERE NOT ok',
    ];
    const rows: (number | null)[] = [];
    for (const sql of reads) rows.push(await api.statement('service_role', sql));
    expect(rows).toEqual([50, 0, 0, 4, 0]);
    const prune = { retention_hours: 72, batch_size: 1000 };
    const [pruned] = await api.rpc<object>('service_role', 'public.prune_outbox_events', prune);
    expect(pruned).toMatchObject({ deleted_count: 0 });

    for (const role of ['anon', 'authenticated'] as const) {
      for (const sql of reads)
        await expect(api.statement(role, sql), sql).rejects.toMatchObject(refused);
      await expect(api.rpc(role, 'public.prune_outbox_events', prune)).rejects.toMatchObject(
        refused,
      );
    }
    // refused by these objects themselves, and not only by what is behind them
    const { rows: open } = await supabase.superuser.query(
      `SELECT role, c.oid::regclass::text FROM unnest('{anon,authenticated}'::text[]) role, pg_class c
        WHERE c.relname IN ('outbox', 'cursors', 'outbox_dlq', 'outbox_health_metrics') AND c.relkind = 'v'
          AND has_table_privilege(role, c.oid, 'SELECT')
       UNION ALL
       SELECT role, p.oid::regproc::text FROM unnest('{anon,authenticated}'::text[]) role, pg_proc p
        WHERE p.proname IN ('prune_outbox_events', 'run_system_health_check')
          AND has_function_privilege(role, p.oid, 'EXECUTE')`,
    );
    expect(open).toEqual([]);
    await supabase.superuser.query(`REVOKE ${prefix}cataloguing_service FROM service_role`);
  },
);
