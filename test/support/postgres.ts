// Creates a fresh database for each test file, cloned from a migrated template and dropped afterwards. Files never see
// each other's rows and can run at the same time. vitest.config.ts sets the PostgreSQL version and the schema name of
// each project.

import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, inject, onTestFinished } from 'vitest';

declare module 'vitest' {
  interface ProvidedContext {
    /** Set in vitest.config.ts. */
    postgresMajor: number;
    server: string;
    /** True: proofs run all seeds and rounds, as in `npm run test:full`. */
    isFull: boolean;
    /** True: the template has partitions for a week instead of sixty days (few-partitions.ts). */
    fewPartitions: boolean;
    schema: string;
    /** Set by global-setup.ts. */
    serverUrl: string;
    templateDatabase: string;
  }
}

export type TestDatabase = {
  readonly url: string;
  /** The name of the schema, plain and quoted for SQL. */
  readonly schema: string;
  readonly quoted: string;
  readonly pool: pg.Pool;
  query<Row extends pg.QueryResultRow>(
    sql: string,
    parameters?: unknown[],
  ): Promise<pg.QueryResult<Row>>;
  /** A separate connection, closed at the end of the file at the latest. */
  connect(): Promise<pg.Client>;
  /** Runs the work in a transaction on one connection; an error rolls it back. */
  inTransaction<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T>;
};

export type TestDatabaseOptions = {
  /** Prepares a migrated database once, and leaves no connection open: each test then gets a copy. */
  eachTestFrom?: (url: string) => Promise<void>;
  /** True: partitions for sixty days, as migrated, for tests of the partitions themselves. Default: those of the project. */
  allPartitions?: boolean;
};

/** Registers the hooks that create and drop the database; the result can be used from `beforeAll` on. */
export function testDatabase({
  eachTestFrom,
  allPartitions = false,
}: TestDatabaseOptions = {}): TestDatabase {
  const schema = inject('schema');
  const given = inject('templateDatabase');
  const template = allPartitions ? withAllPartitions(given) : given;
  const name = databaseName();
  const url = databaseUrl(inject('serverUrl'), name);
  const clients = new Set<pg.Client>();
  let pool: pg.Pool | undefined;
  const openPool = (): pg.Pool => {
    if (pool === undefined)
      throw new Error('the test database exists only between beforeAll and afterAll');
    return pool;
  };
  const make = async (from: string): Promise<void> => {
    await administer(createDatabase(name, from));
    pool = new pg.Pool({ connectionString: url, max: 10 });
    // A test may kill its connections; an error event without a listener would end the whole worker.
    pool.on('error', () => undefined);
  };
  const drop = async (): Promise<void> => {
    await Promise.all([...clients].map((client) => client.end().catch(() => undefined)));
    await pool?.end();
    pool = undefined;
    await administer(`drop database if exists ${name} with (force)`);
  };

  if (eachTestFrom === undefined) {
    beforeAll(() => make(template));
    afterAll(drop);
  } else {
    const prepared = databaseName();
    beforeAll(async () => {
      await administer(createDatabase(prepared, template));
      await eachTestFrom(databaseUrl(inject('serverUrl'), prepared));
    });
    beforeEach(() => make(prepared));
    afterEach(drop);
    afterAll(() => administer(`drop database if exists ${prepared} with (force)`));
  }

  return {
    url,
    schema,
    quoted: pg.escapeIdentifier(schema),
    get pool() {
      return openPool();
    },
    query: (sql, parameters) => openPool().query(sql, parameters),
    async connect() {
      const client = new pg.Client({ connectionString: url });
      client.on('error', () => undefined);
      client.on('end', () => clients.delete(client));
      clients.add(client);
      await client.connect();
      return client;
    },
    inTransaction: (work) => inTransaction(openPool(), work),
  };
}

export type OtherDatabase = { readonly url: string; readonly client: pg.Client };

type Kind = 'migrated' | 'migrated without roles' | 'empty';

/** The template that is migrated and has no roles installed. */
export const withoutRoles = (templateDatabase: string): string => `${templateDatabase}_bare`;

/** The template with partitions for sixty days. */
export const withAllPartitions = (templateDatabase: string): string => `${templateDatabase}_all`;

/** A second database, migrated or empty, dropped when the test ends. */
export async function otherDatabase(kind: Kind): Promise<OtherDatabase> {
  const name = databaseName();
  const migrated = inject('templateDatabase');
  const templates: Record<Kind, string> = {
    migrated: withAllPartitions(migrated),
    'migrated without roles': withoutRoles(migrated),
    empty: 'template0',
  };
  await administer(createDatabase(name, templates[kind]));
  const url = databaseUrl(inject('serverUrl'), name);
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  onTestFinished(async () => {
    await client.end();
    await administer(`drop database ${name} with (force)`);
  });
  await client.connect();
  return { url, client };
}

/** Copying files takes half the time of logging every page, because no write waits for a disk here. */
function createDatabase(name: string, template: string): string {
  return `create database ${name} template ${template} strategy file_copy`;
}

function databaseName(): string {
  return `test_${process.pid}_${Math.random().toString(36).slice(2, 10)}`;
}

/** The address of another database on the same server. */
export function databaseUrl(serverUrl: string, database: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${database}`;
  return url.href;
}

async function administer(sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: inject('serverUrl') });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}

/** Commits or rolls back; a broken connection is not used again. */
export async function inTransaction<T>(
  pool: pg.Pool,
  work: (client: pg.PoolClient) => Promise<T>,
): Promise<T> {
  const client = await pool.connect();
  let broken = false;
  try {
    await client.query('begin');
    const result = await work(client);
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback').catch(() => (broken = true));
    throw error;
  } finally {
    client.release(broken);
  }
}
