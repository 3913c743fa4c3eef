// The doctor names the managed host, and adapts its remedies to it. It runs on its own server, which gets the roles and
// settings that such hosts have.

import { expect, it, onTestFinished } from 'vitest';

import { look, ownServer, untilState } from '../support/doctor.js';
import { findPgbouncer, startPgbouncer } from '../support/pgbouncer.js';

const db = ownServer({});
const program = findPgbouncer() ?? '';

it('a server of your own is no managed host', async () => {
  expect(await look(db, 'server_host')).toMatchObject({
    state: 'ok',
    found: 'nothing shows a managed host',
  });
});

it.each([
  ['CREATE ROLE rds_superuser', 'DROP ROLE rds_superuser', 'Amazon RDS'],
  [
    `ALTER DATABASE postgres SET rds.extensions = 'x'`,
    'ALTER DATABASE postgres RESET rds.extensions',
    'Amazon RDS',
  ],
  ['CREATE ROLE azure_pg_admin', 'DROP ROLE azure_pg_admin', 'Azure Database for PostgreSQL'],
  ['CREATE ROLE supabase_admin', 'DROP ROLE supabase_admin', 'Supabase'],
  [
    `CREATE FUNCTION aurora_version() RETURNS text LANGUAGE sql AS 'SELECT ''17.4'''`,
    'DROP FUNCTION aurora_version()',
    'Amazon Aurora',
  ],
])('after %s the host is recognised', async (make, unmake, name) => {
  await db.query(make);
  onTestFinished(async () => void (await db.query(unmake)));
  const { state, found } = await look(db, 'server_host');
  expect({ state, found }).toEqual({
    state: 'ok',
    found: expect.stringContaining(`${name}: `) as unknown,
  });
});

it('a setting that is off is changed where the host keeps it', async () => {
  await db.query('CREATE ROLE cloudsqlsuperuser');
  await db.query('ALTER SYSTEM SET full_page_writes = off');
  await db.query('SELECT pg_reload_conf()');
  onTestFinished(async () => {
    await db.query('DROP ROLE cloudsqlsuperuser');
    await db.query('ALTER SYSTEM RESET full_page_writes');
    await db.query('SELECT pg_reload_conf()');
  });
  const { remedy, paste } = await untilState(db, 'full_page_writes_off', 'error');
  expect(remedy).toMatch(/On Google Cloud SQL, set it in the database flags of the instance\.$/);
  expect(paste).toEqual([]);
});

it.skipIf(program === '')('the remedy for a pooler names the address of the host', async () => {
  await db.query('CREATE ROLE neon_superuser');
  onTestFinished(async () => void (await db.query('DROP ROLE neon_superuser')));
  const url = await startPgbouncer(program, db.url, { poolMode: 'transaction', connections: 5 });
  const { state, remedy } = await look({ ...db, url }, 'listen_pooled');
  expect(state).toBe('warning');
  expect(remedy).toContain('Neon: the host name without -pooler');
});
