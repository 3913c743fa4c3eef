// Runs the doctor on a database and follows its advice. Remedies are run exactly as printed, so that every printed
// remedy works.

import pg from 'pg';
import { afterAll, beforeAll, expect, inject } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import type { DatabaseOptions } from '../../src/database/connection.js';
import { examine } from '../../src/doctor/doctor.js';
import type { DoctorOptions, Examination } from '../../src/doctor/doctor.js';
import { migrateUp } from '../../src/database/migrate.js';
import { startPostgres } from '../../src/dev/embedded-postgres.js';
import type { PostgresServer } from '../../src/dev/embedded-postgres.js';
import { cli } from './cli.js';
import { only } from './only.js';
import { programsOf } from './postgres-versions.js';
import { waitFor } from './wait.js';

/** The login that owns the database. */
export type Examined = { url: string; schema: string };

export type LookOptions = DoctorOptions & { database?: DatabaseOptions };

/** The whole report. */
export async function report(
  { url, schema }: Examined,
  { database: more, ...options }: LookOptions = {},
): Promise<Examination[]> {
  const database = new Database(resolveDatabaseOptions({ url, schema, ...more }), {
    connections: 1,
    applicationName: 'waybill test',
  });
  try {
    return await examine(database, options);
  } finally {
    await database.close();
  }
}

/** The result of one check. */
export async function look(
  examined: Examined,
  code: string,
  options: LookOptions = {},
): Promise<Examination> {
  return only(await report(examined, { ...options, only: [code] }));
}

export async function expectWell(
  examined: Examined,
  code: string,
  options: LookOptions = {},
): Promise<void> {
  expect(await look(examined, code, options)).toMatchObject({ state: 'ok', remedy: null });
}

/** Waits until a check has this state, because the server reports some changes late. */
export async function untilState(
  examined: Examined,
  code: string,
  state: Examination['state'],
  options: LookOptions = {},
): Promise<Examination> {
  return waitFor(
    async () => {
      const found = await look(examined, code, options);
      return found.state === state ? found : undefined;
    },
    { what: `${code} to be ${state}`, timeoutMs: 20_000 },
  );
}

/**
 * Runs a remedy of the doctor: commands as a shell would, everything else line by line as psql would. There is no
 * terminal here; with `yes`, commands that ask for confirmation get it.
 */
export async function follow(
  { url, schema }: Examined,
  { paste }: Examination,
  { yes = false } = {},
): Promise<void> {
  expect(paste).not.toEqual([]);
  for (const line of paste) {
    if (line.startsWith('waybill ')) {
      const { code, stderr } = await cli(
        [...shellWords(line).slice(1), ...(yes ? ['--yes'] : [])],
        {
          environment: { DATABASE_URL: url, WAYBILL_SCHEMA: schema },
        },
      );
      expect({ line, code, stderr }).toMatchObject({ code: 0 });
      continue;
    }
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    try {
      await client.query(line);
    } finally {
      await client.end();
    }
  }
}

/** Splits a command into words, and keeps text between single quotes together. */
function shellWords(line: string): string[] {
  return [...line.matchAll(/(?:'[^']*'|\\'|[^\s'\\])+/g)].map(([word]) =>
    word
      .replaceAll(String.raw`'\''`, '\u0000')
      .replaceAll("'", '')
      .replaceAll('\u0000', "'"),
  );
}

export type OwnServer = Examined & {
  readonly quoted: string;
  readonly server: PostgresServer;
  query<Row extends pg.QueryResultRow>(sql: string): Promise<Row[]>;
  /** A separate connection, closed at the end of the file at the latest. */
  connect(): Promise<pg.Client>;
};

/** The programs of this project's PostgreSQL. */
export function ownPrograms(): { binDirectory?: string } {
  return programsOf(inject('postgresMajor'));
}

/** A migrated server for this file only, for checks that concern a whole server. It can be used from `beforeAll` on. */
export function ownServer(settings: Record<string, string> = {}): OwnServer {
  const schema = inject('schema');
  const clients = new Set<pg.Client>();
  let server: PostgresServer | undefined;
  const running = (): PostgresServer => {
    if (server === undefined)
      throw new Error('the server runs only between beforeAll and afterAll');
    return server;
  };
  const connect = async () => {
    const client = new pg.Client({ connectionString: running().url });
    client.on('error', () => undefined);
    clients.add(client);
    await client.connect();
    return client;
  };
  beforeAll(async () => {
    server = await startPostgres({ settings, ...ownPrograms() });
    await migrateUp({ url: server.url, schema });
  });
  afterAll(async () => {
    await Promise.all([...clients].map((client) => client.end().catch(() => undefined)));
    await server?.remove();
  });
  return {
    schema,
    quoted: pg.escapeIdentifier(schema),
    get url() {
      return running().url;
    },
    get server() {
      return running();
    },
    async query<Row extends pg.QueryResultRow>(sql: string) {
      const client = await connect();
      try {
        return (await client.query<Row>(sql)).rows;
      } finally {
        clients.delete(client);
        await client.end();
      }
    },
    connect,
  };
}
