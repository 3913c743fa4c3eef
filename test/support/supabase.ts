// A database as Supabase sets it up: its API roles and their default privileges, a role like its `postgres`, which is
// no superuser, and calls as PostgREST makes them, behind a pooler in transaction mode.

import { randomUUID } from 'node:crypto';

import pg from 'pg';
import { inject, onTestFinished } from 'vitest';

import { cli } from './cli.js';
import { only } from './only.js';
import { runPgbouncer } from './pgbouncer.js';
import { otherDatabase } from './postgres.js';
import { Api, apiRoles } from './postgrest.js';

export class Supabase {
  readonly url: string;
  readonly superuser: pg.Client;
  /** In the place of the role `postgres`, which is a superuser on the tests' server. */
  readonly admin: string;
  /** Of the roles that `waybill roles install` creates here: roles belong to the server. */
  readonly prefix: string;

  constructor(url: string, superuser: pg.Client, suffix: string) {
    this.url = url;
    this.superuser = superuser;
    this.admin = `supabase_${suffix}`;
    this.prefix = `sb_${suffix}_`;
  }

  urlOf(login: string): string {
    const url = new URL(this.url);
    url.username = login;
    url.password = '';
    return url.href;
  }

  /** Runs a command of Waybill with the address of the administrator. */
  async waybill(...args: string[]): Promise<string> {
    const ended = await cli(args, { environment: { DATABASE_URL: this.urlOf(this.admin) } });
    if (ended.code !== 0)
      throw new Error(`waybill ${args.join(' ')} ended with ${ended.code}:\n${ended.stderr}`);
    return ended.stdout;
  }

  /** Runs SQL as the administrator. */
  async query<Row extends pg.QueryResultRow>(
    sql: string,
    values: unknown[] = [],
  ): Promise<pg.QueryResult<Row>> {
    const client = new pg.Client({ connectionString: this.urlOf(this.admin) });
    await client.connect();
    try {
      return await client.query<Row>(sql, values);
    } finally {
      await client.end();
    }
  }

  /** The API behind a pooler with one server connection, so that a call could not hide what it leaves behind. */
  async startApi(pgbouncer: string, schemas: string[]): Promise<Api> {
    const { url, stop } = await runPgbouncer(pgbouncer, this.urlOf('authenticator'), {
      poolMode: 'transaction',
      connections: 1,
    });
    const pool = new pg.Pool({ connectionString: url, max: 4 });
    onTestFinished(async () => {
      await pool.end();
      await stop();
    });
    return new Api(pool, this.superuser, schemas);
  }
}

/** An empty database with Supabase's roles and grants, dropped when the test ends. */
export async function makeSupabase(): Promise<Supabase> {
  const { url, client } = await otherDatabase('empty');
  const supabase = new Supabase(url, client, randomUUID().slice(0, 8));
  const { admin } = supabase;
  const { rows } = await client.query<{ name: string }>('SELECT current_database() AS name');
  const database = only(rows).name;
  await makeApiRoles();
  const everyone = `${admin}, ${apiRoles.join(', ')}`;
  await client.query(`
    CREATE ROLE ${admin} LOGIN NOSUPERUSER CREATEDB CREATEROLE REPLICATION BYPASSRLS;
    GRANT ${apiRoles.join(', ')} TO ${admin} WITH ADMIN OPTION;
    ALTER DATABASE ${database} OWNER TO ${admin};
    ALTER ROLE ${admin} SET search_path = "$user", public, extensions;

    CREATE SCHEMA extensions;
    GRANT USAGE ON SCHEMA public, extensions TO ${everyone};
    GRANT ALL ON SCHEMA public, extensions TO ${admin};
    ALTER DEFAULT PRIVILEGES FOR ROLE ${admin} IN SCHEMA public GRANT ALL ON TABLES TO ${everyone};
    ALTER DEFAULT PRIVILEGES FOR ROLE ${admin} IN SCHEMA public GRANT ALL ON FUNCTIONS TO ${everyone};
    ALTER DEFAULT PRIVILEGES FOR ROLE ${admin} IN SCHEMA public GRANT ALL ON SEQUENCES TO ${everyone}`);
  return supabase;
}

/** These roles belong to the server, which other files use at the same time: one creates and changes them at a time. */
async function makeApiRoles(): Promise<void> {
  const client = new pg.Client({ connectionString: inject('serverUrl') });
  await client.connect();
  try {
    await client.query(`SELECT pg_advisory_lock(hashtext('supabase'))`);
    for (const role of [
      'anon NOLOGIN',
      'authenticated NOLOGIN',
      'service_role NOLOGIN BYPASSRLS',
      'authenticator LOGIN NOINHERIT',
    ])
      await client.query(`DO $$ BEGIN CREATE ROLE ${role};
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`);
    await client.query(`
      ALTER ROLE service_role BYPASSRLS;
      ALTER ROLE anon SET statement_timeout = '3s';
      ALTER ROLE authenticated SET statement_timeout = '8s';
      ALTER ROLE authenticator SET statement_timeout = '8s';
      ALTER ROLE authenticator SET lock_timeout = '8s';
      GRANT ${apiRoles.join(', ')} TO authenticator`);
  } finally {
    await client.end();
  }
}
