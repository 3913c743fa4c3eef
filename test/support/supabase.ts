// A database as Supabase sets it up: its API roles and their default privileges, a role like its `postgres`, which is
// no superuser, and calls as PostgREST makes them, behind a pooler in transaction mode.

import { randomUUID } from 'node:crypto';

import pg from 'pg';
import { onTestFinished } from 'vitest';

import { cli } from './cli.js';
import { only } from './only.js';
import { runPgbouncer } from './pgbouncer.js';
import { otherDatabase } from './postgres.js';

export const apiRoles = ['anon', 'authenticated', 'service_role'] as const;
export type ApiRole = (typeof apiRoles)[number];

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
    const client = new pg.Client({ connectionString: url });
    onTestFinished(async () => {
      await client.end();
      await stop();
    });
    await client.connect();
    return new Api(this, client, schemas);
  }
}

export class Api {
  readonly #supabase: Supabase;
  readonly #client: pg.Client;
  readonly #schemas: string[];

  constructor(supabase: Supabase, client: pg.Client, schemas: string[]) {
    this.#supabase = supabase;
    this.#client = client;
    this.#schemas = schemas;
  }

  /** One request is one transaction: the role is set in it, and the arguments are read by name from the JSON body. */
  async rpc<Row>(role: ApiRole, name: string, body: Record<string, unknown>): Promise<Row[]> {
    const [schema = '', called = ''] = name.split('.');
    const types = await this.#argumentTypes(schema, called);
    const names = Object.keys(body).map((field) => pg.escapeIdentifier(field));
    const record = Object.keys(body)
      .map((field) => `${pg.escapeIdentifier(field)} ${types.get(field) ?? 'unknown_argument'}`)
      .join(', ');
    const given = names.map((field) => `${field} := b.${field}`).join(', ');
    return this.#request(role, async () => {
      const { rows } = await this.#client.query<{ row: Row }>(
        `WITH pgrst_source AS (
           SELECT c AS called FROM json_to_record($1::json) AS b(${record}),
                  LATERAL ${pg.escapeIdentifier(schema)}.${pg.escapeIdentifier(called)}(${given}) c)
         SELECT to_json(called) AS row FROM pgrst_source`,
        [JSON.stringify(body)],
      );
      return rows.map(({ row }) => row);
    });
  }

  /** `GET /table`, or a statement of the same kind. */
  async statement(role: ApiRole, sql: string): Promise<number | null> {
    return this.#request(role, async () => (await this.#client.query(sql)).rowCount);
  }

  async #request<T>(role: ApiRole, work: () => Promise<T>): Promise<T> {
    await this.#client.query('BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE');
    try {
      const path = [...this.#schemas, 'extensions'].map((name) => pg.escapeIdentifier(name));
      await this.#client.query(
        `SELECT set_config('search_path', $1, true), set_config('role', $2, true),
                set_config('request.jwt.claims', $3, true), set_config('request.method', 'POST', true)`,
        [path.join(', '), role, JSON.stringify({ role })],
      );
      const result = await work();
      await this.#client.query('COMMIT');
      return result;
    } catch (error) {
      await this.#client.query('ROLLBACK');
      throw error;
    }
  }

  /** PostgREST reads the types of the arguments from the catalog. */
  async #argumentTypes(schema: string, name: string): Promise<Map<string, string>> {
    const { rows } = await this.#supabase.superuser.query<{ name: string; type: string }>(
      `SELECT a.name, format_type(a.type, NULL) AS type
         FROM pg_proc p,
              unnest(p.proargnames, coalesce(p.proallargtypes, p.proargtypes::oid[]), p.proargmodes) a(name, type, mode)
        WHERE p.pronamespace = $1::text::regnamespace AND p.proname = $2 AND coalesce(a.mode, 'i') = 'i'`,
      [pg.escapeIdentifier(schema), name],
    );
    return new Map(rows.map((row) => [row.name, row.type]));
  }
}

/** An empty database with Supabase's roles and grants, dropped when the test ends. */
export async function makeSupabase(): Promise<Supabase> {
  const { url, client } = await otherDatabase('empty');
  const supabase = new Supabase(url, client, randomUUID().slice(0, 8));
  const { admin } = supabase;
  const { rows } = await client.query<{ name: string }>('SELECT current_database() AS name');
  const database = only(rows).name;
  // These roles belong to the server, where other tests may have created them.
  for (const role of [
    'anon NOLOGIN',
    'authenticated NOLOGIN',
    'service_role NOLOGIN BYPASSRLS',
    'authenticator LOGIN NOINHERIT',
  ])
    await client.query(`DO $$ BEGIN CREATE ROLE ${role};
      EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`);
  const everyone = `${admin}, ${apiRoles.join(', ')}`;
  await client.query(`
    ALTER ROLE service_role BYPASSRLS;
    ALTER ROLE anon SET statement_timeout = '3s';
    ALTER ROLE authenticated SET statement_timeout = '8s';
    ALTER ROLE authenticator SET statement_timeout = '8s';
    ALTER ROLE authenticator SET lock_timeout = '8s';
    GRANT ${apiRoles.join(', ')} TO authenticator;

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
