// The rpc calls of PostgREST, as Supabase's API makes them: one request is one transaction of the login `authenticator`,
// with the role of the key. Also served over HTTP, with keys that are signed as Supabase signs them.

import { createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';

import pg from 'pg';

import { serve } from './relay-partner.js';

export const apiRoles = ['anon', 'authenticated', 'service_role'] as const;
export type ApiRole = (typeof apiRoles)[number];

type Called = { returnsSet: boolean; types: Map<string, string> };

const secret = 'the secret of the project, which signs the keys';
const signature = (signed: string): string =>
  createHmac('sha256', secret).update(signed).digest('base64url');
const encoded = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');

/** A key of the API: a signed claim to be this role. */
export function keyOf(role: ApiRole): string {
  const signed = `${encoded({ alg: 'HS256', typ: 'JWT' })}.${encoded({ iss: 'supabase', role })}`;
  return `${signed}.${signature(signed)}`;
}

/** The role of a request: that of its key, or anon without a key. Null: the key was not signed here. */
function roleOf(authorization: string | undefined): ApiRole | null {
  if (authorization === undefined) return 'anon';
  const [, signed = '', given = ''] = /^Bearer (.+\..+)\.(.+)$/.exec(authorization) ?? [];
  const [expected, found] = [Buffer.from(signature(signed)), Buffer.from(given)];
  if (expected.length !== found.length || !timingSafeEqual(expected, found)) return null;
  const claims = Buffer.from(signed.split('.')[1] ?? '', 'base64url').toString();
  return (JSON.parse(claims) as { role: ApiRole }).role;
}

export class Api {
  readonly #pool: pg.Pool;
  readonly #catalog: pg.Client;
  readonly #schemas: string[];

  constructor(pool: pg.Pool, catalog: pg.Client, schemas: string[]) {
    this.#pool = pool;
    this.#catalog = catalog;
    this.#schemas = schemas;
  }

  /** The arguments are read by name from the JSON body, with the types of the function's parameters. */
  async rpc<Row>(role: ApiRole, name: string, body: Record<string, unknown>): Promise<Row[]> {
    const [schema = '', called = ''] = name.split('.');
    const { types } = await this.#look(schema, called);
    const fields = Object.keys(body);
    const record = fields
      .map((field) => `${pg.escapeIdentifier(field)} ${types.get(field) ?? 'unknown_argument'}`)
      .join(', ');
    const given = fields
      .map((field) => pg.escapeIdentifier(field))
      .map((field) => `${field} := b.${field}`)
      .join(', ');
    const source = fields.length === 0 ? '' : `json_to_record($1::json) AS b(${record}), LATERAL`;
    return this.#request(role, async (client) => {
      const { rows } = await client.query<{ row: Row }>(
        `WITH pgrst_source AS (
           SELECT c AS called
             FROM ${source} ${pg.escapeIdentifier(schema)}.${pg.escapeIdentifier(called)}(${given}) c)
         SELECT to_json(called) AS row FROM pgrst_source`,
        fields.length === 0 ? [] : [JSON.stringify(body)],
      );
      return rows.map(({ row }) => row);
    });
  }

  /** `GET /table`, or a statement of the same kind. */
  async statement(role: ApiRole, sql: string): Promise<number | null> {
    return this.#request(role, async (client) => (await client.query(sql)).rowCount);
  }

  /** Serves `POST /rest/v1/rpc/NAME` until the test ends; returns the address of the project. */
  async listen(): Promise<string> {
    const { url } = await serve((request, response) => void this.#answer(request, response));
    return new URL(url).origin;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const answer = (status: number, body: unknown): void => {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    const role = roleOf(request.headers.authorization);
    const [, name] = /^\/rest\/v1\/rpc\/(\w+)$/.exec(request.url ?? '') ?? [];
    const schema = String(request.headers['content-profile'] ?? this.#schemas[0]);
    if (role === null) return answer(401, { code: 'PGRST301', message: 'JWSInvalidSignature' });
    if (name === undefined || request.method !== 'POST') return answer(404, {});
    if (!this.#schemas.includes(schema)) return answer(406, { code: 'PGRST106' });
    try {
      const body = JSON.parse(await text(request)) as Record<string, unknown>;
      const { returnsSet, types } = await this.#look(schema, name);
      if (Object.keys(body).some((field) => !types.has(field)))
        return answer(404, {
          code: 'PGRST202',
          message: `no function ${schema}.${name} with these`,
        });
      const rows = await this.rpc(role, `${schema}.${name}`, body);
      return answer(200, returnsSet ? rows : rows[0]);
    } catch (error) {
      const { code, message } = error as { code?: string; message: string };
      return answer(code === '42501' ? 403 : 400, { code, message });
    }
  }

  async #request<T>(role: ApiRole, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = await this.#pool.connect();
    try {
      await client.query('BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE');
      const path = [...this.#schemas, 'extensions'].map((name) => pg.escapeIdentifier(name));
      await client.query(
        `SELECT set_config('search_path', $1, true), set_config('role', $2, true),
                set_config('request.jwt.claims', $3, true), set_config('request.method', 'POST', true)`,
        [path.join(', '), role, JSON.stringify({ role })],
      );
      const result = await work(client);
      await client.query('COMMIT');
      return result;
    } catch (error) {
      await client.query('ROLLBACK');
      throw error;
    } finally {
      client.release();
    }
  }

  /** PostgREST reads the functions from the catalog. */
  async #look(schema: string, name: string): Promise<Called> {
    const { rows } = await this.#catalog.query<{ set: boolean; name: string; type: string }>(
      `SELECT p.proretset AS set, a.name, format_type(a.type, NULL) AS type
         FROM pg_proc p,
              unnest(p.proargnames, coalesce(p.proallargtypes, p.proargtypes::oid[]), p.proargmodes) a(name, type, mode)
        WHERE p.pronamespace = $1::text::regnamespace AND p.proname = $2 AND coalesce(a.mode, 'i') = 'i'`,
      [pg.escapeIdentifier(schema), name],
    );
    return {
      returnsSet: rows[0]?.set ?? false,
      types: new Map(rows.map((row) => [row.name, row.type])),
    };
  }
}
