// A PostgreSQL server that counts statements itself, with pg_stat_statements. The relays under test log in as their own
// role, so that the statements of the test are not counted.

import { randomUUID } from 'node:crypto';

import pg from 'pg';

import { migrateUp } from '../../src/database/migrate.js';
import { startPostgres } from '../../src/dev/embedded-postgres.js';
import type { PostgresServer } from '../../src/dev/embedded-postgres.js';
import { databaseUrl } from './postgres.js';

const counted = 'counted_login';
const template = 'counted_template';

export type CountedDatabase = {
  /** For the test's own queries. */
  readonly pool: pg.Pool;
  /** The address of the role whose statements are counted. */
  readonly url: string;
  /** Statements that have ended since the last `reset`, with their number, the most frequent first. */
  statements(): Promise<{ query: string; calls: number }[]>;
  reset(): Promise<void>;
  /** Connections of the counted role. */
  connections(): Promise<number>;
  close(): Promise<void>;
};

export async function startCountingPostgres(): Promise<PostgresServer> {
  const server = await startPostgres({
    settings: {
      fsync: 'off',
      shared_preload_libraries: 'pg_stat_statements',
      'pg_stat_statements.track_utility': 'on',
    },
  });
  const client = new pg.Client(server.url);
  await client.connect();
  await client.query(`CREATE ROLE ${counted} SUPERUSER LOGIN`);
  await client.query(`CREATE DATABASE ${template}`);
  await client.end();
  const url = databaseUrl(server.url, template);
  await migrateUp({ url });
  const migrated = new pg.Client(url);
  await migrated.connect();
  await migrated.query('CREATE EXTENSION pg_stat_statements');
  await migrated.end();
  return server;
}

/** A migrated database of this server: a copy, which costs a twentieth of a migration. */
export async function countedDatabase(server: PostgresServer): Promise<CountedDatabase> {
  const admin = new pg.Client(server.url);
  await admin.connect();
  const name = `counted_${randomUUID().replaceAll('-', '')}`;
  await admin.query(`CREATE DATABASE ${name} TEMPLATE ${template} STRATEGY file_copy`);
  await admin.end();
  const address = databaseUrl(server.url, name);
  const pool = new pg.Pool({ connectionString: address, max: 2 });
  pool.on('error', () => {});
  const url = new URL(address);
  url.username = counted;
  const ofRelay = `userid = '${counted}'::regrole
                   AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())`;
  const statements = async () => {
    const { rows } = await pool.query<{ query: string; calls: number }>(
      `SELECT query, calls::int AS calls FROM pg_stat_statements WHERE ${ofRelay} ORDER BY calls DESC`,
    );
    return rows;
  };
  return {
    pool,
    url: url.href,
    statements,
    async reset() {
      await pool.query(
        `SELECT pg_stat_statements_reset(userid, dbid) FROM pg_stat_statements WHERE ${ofRelay} LIMIT 1`,
      );
    },
    async connections() {
      const { rows } = await pool.query<{ count: number }>(
        `SELECT count(*)::int AS count FROM pg_stat_activity
          WHERE usename = '${counted}' AND datname = current_database()`,
      );
      return rows[0]?.count ?? 0;
    },
    close: () => pool.end(),
  };
}
