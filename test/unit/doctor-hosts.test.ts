// Managed hosts are recognised by what they leave in the database, and by the host names of their addresses.

import { readFileSync } from 'node:fs';

import { expect, it } from 'vitest';

import { recognise } from '../../src/doctor/hosts.js';
import type { HostFacts } from '../../src/doctor/hosts.js';

const plain: HostFacts = {
  version: 'PostgreSQL 17.6 on x86_64-pc-linux-gnu, compiled by gcc, 64-bit',
  roles: [],
  settings: [],
  extensions: [],
  functions: [],
  names: [],
};

it.each<[string, Partial<HostFacts>]>([
  ['Amazon RDS', { roles: ['rds_superuser'], settings: ['rds.extensions'] }],
  [
    'Amazon RDS Proxy',
    { roles: ['rds_superuser'], names: ['app.proxy-demo.us-east-1.rds.amazonaws.com'] },
  ],
  ['Amazon Aurora', { roles: ['rds_superuser'], functions: ['aurora_version'] }],
  ['Google Cloud SQL', { roles: ['cloudsqlsuperuser'] }],
  ['AlloyDB', { roles: ['alloydbsuperuser'] }],
  ['Azure Database for PostgreSQL', { roles: ['azure_pg_admin'] }],
  ['Neon', { settings: ['neon.timeline_id'] }],
  ['Neon', { names: ['ep-cool-darkness-123456-pooler.us-east-2.aws.neon.tech'] }],
  ['Supabase', { roles: ['supabase_admin'] }],
  ['Supabase', { names: ['aws-0-eu-central-1.pooler.supabase.com'] }],
  ['PlanetScale Postgres', { names: ['x-useast1-1.horizon.psdb.cloud'] }],
  ['Fly Managed Postgres', { names: ['pgbouncer.abc.flympg.net'] }],
  ['Aiven for PostgreSQL', { roles: ['avnadmin'] }],
  ['Crunchy Bridge', { names: ['p.abc.db.postgresbridge.com'] }],
  ['Render', { names: ['dpg-abc-a'] }],
  ['Cloudflare Hyperdrive', { names: ['abc.hyperdrive.local'] }],
])('%s is recognised by %j', (name, facts) => {
  const host = recognise({ ...plain, ...facts });
  expect(host).toMatchObject({ name });
  expect(host).not.toHaveProperty('unsupported');
  expect(readFileSync('docs/operate/hosts.md', 'utf8'), 'its row').toContain(`| [${name}](#`);
});

it.each<[string, Partial<HostFacts>]>([
  ['CockroachDB', { version: 'CockroachDB CCL v25.4.0 (x86_64-pc-linux-gnu)' }],
  ['YugabyteDB', { version: 'PostgreSQL 15.12-YB-2025.2.0.0-b0 on x86_64-pc-linux-gnu' }],
  ['Amazon Aurora DSQL', { names: ['abc123.dsql.us-east-1.on.aws'] }],
])('%s is recognised as unsupported by %j', (name, facts) => {
  expect(recognise({ ...plain, ...facts })).toMatchObject({
    name,
    unsupported: expect.stringMatching(/^it has no /) as unknown,
  });
});

it('PostgreSQL on a machine of its own is no managed host', () => {
  expect(recognise(plain)).toBeUndefined();
  expect(recognise({ ...plain, names: ['database.example.com'] })).toBeUndefined();
});
