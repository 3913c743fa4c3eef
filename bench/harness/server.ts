// The PostgreSQL server of a run, with default durability and a fresh database for every measurement, so no
// contender is affected by another. A lent server is only for checking that benches work: starting and filling a
// server for each of them would take minutes.

import pg from 'pg';

import { startPostgres } from '../../src/dev/embedded-postgres.js';

/** Settings that differ from PostgreSQL's defaults; fsync, synchronous_commit and full_page_writes do not. */
const changedSettings = { shared_buffers: '512MB', max_wal_size: '4GB' };

const shownSettings = [
  'fsync',
  'synchronous_commit',
  'full_page_writes',
  'wal_level',
  'autovacuum',
  'shared_buffers',
  'max_wal_size',
];

export type BenchDatabase = { url: string; client: pg.Client; drop(): Promise<void> };

export type BenchServer = {
  version: string;
  settings: Record<string, string>;
  /** How long a commit of one small row takes, mostly the fsync of the disk. */
  commitMs: number;
  createDatabase(name: string): Promise<BenchDatabase>;
  /** A database that an earlier run has left; null if there is none. */
  findDatabase(name: string): Promise<BenchDatabase | null>;
  remove(): Promise<void>;
};

/** A migrated database on a running server; clones of it are used to check that a bench works. */
export type Lent = { url: string; template: string };

/** A measurement needs its own durable server; to check that a bench works, a non-durable or a lent one is enough. */
export async function startServer({
  durable,
  dataDirectory,
  lent,
}: {
  durable: boolean;
  /** A data directory that is kept after the run. */
  dataDirectory?: string | undefined;
  lent?: Lent;
}): Promise<BenchServer> {
  const server = lent
    ? { url: lent.url, remove: async () => {} }
    : await startPostgres({
        settings: durable ? changedSettings : { fsync: 'off' },
        ...(dataDirectory !== undefined && { dataDirectory }),
      });
  const kind = lent ? `TEMPLATE ${lent.template} STRATEGY file_copy` : '';
  const admin = await connect(server.url);
  const { rows } = await admin.query<{ name: string; value: string }>(
    'SELECT name, current_setting(name) AS value FROM unnest($1::text[]) name',
    [shownSettings],
  );
  const commitMs = await measureCommit(admin);
  let count = 0;
  const open = async (database: string): Promise<BenchDatabase> => {
    const url = server.url.replace(/\/postgres$/, `/${database}`);
    const client = await connect(url);
    return {
      url,
      client,
      async drop() {
        await client.end();
        await admin.query(`DROP DATABASE ${database} WITH (FORCE)`);
      },
    };
  };
  return {
    version: await ask<string>(admin, "SELECT current_setting('server_version') AS answer"),
    settings: Object.fromEntries(rows.map(({ name, value }) => [name, value])),
    commitMs,
    async createDatabase(name) {
      count += 1;
      const unique = lent ? `${process.pid}_${count}` : count;
      const database = `${name.replaceAll(/[^a-z0-9]/g, '_')}_${unique}`;
      await admin.query(`CREATE DATABASE ${database} ${kind}`);
      return open(database);
    },
    async findDatabase(name) {
      const { rowCount } = await admin.query('SELECT FROM pg_database WHERE datname = $1', [name]);
      return rowCount === 0 ? null : open(name);
    },
    async remove() {
      await admin.end();
      await server.remove();
    },
  };
}

export async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {});
  await client.connect();
  return client;
}

export async function ask<T>(client: pg.Client, sql: string, values: unknown[] = []): Promise<T> {
  const { rows } = await client.query<{ answer: T }>(sql, values);
  const [row] = rows;
  if (row === undefined) throw new Error(`no answer to ${sql}`);
  return row.answer;
}

/** Returns a function that counts the bytes of write-ahead log since this call. */
export async function watchWal(client: pg.Client): Promise<() => Promise<number>> {
  const from = await ask<string>(client, 'SELECT pg_current_wal_insert_lsn()::text AS answer');
  return async () =>
    ask<number>(
      client,
      'SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1)::float8 AS answer',
      [from],
    );
}

async function measureCommit(client: pg.Client): Promise<number> {
  const table = `commits_${process.pid}`;
  await client.query(`CREATE TABLE ${table} (n int)`);
  const samples: number[] = [];
  for (let n = 0; n < 50; n += 1) {
    const startedMs = performance.now();
    await client.query(`INSERT INTO ${table} VALUES ($1)`, [n]);
    samples.push(performance.now() - startedMs);
  }
  await client.query(`DROP TABLE ${table}`);
  return samples.toSorted((a, b) => a - b)[25] ?? 0;
}

/** The ids of all server processes except the bench's own session. */
export async function serverProcesses({ client }: BenchDatabase): Promise<number[]> {
  return ask<number[]>(
    client,
    'SELECT array_agg(pid) AS answer FROM pg_stat_activity WHERE pid <> pg_backend_pid()',
  );
}
