// A primary and its hot standby with real streaming replication. The standby is a copy of the stopped primary's files,
// because a package may lack pg_basebackup. Both belong to the test file and end with it.

import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';

import pg from 'pg';
import { afterAll, beforeAll, inject, onTestFinished } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import type { DatabaseOptions } from '../../src/database/connection.js';
import { migrateUp } from '../../src/database/migrate.js';
import { Replica } from '../../src/features/replicas/replica.js';
import type { ReplicaStatus } from '../../src/features/replicas/replica.js';
import { installRoles } from '../../src/database/roles.js';
import { startPostgres } from '../../src/dev/embedded-postgres.js';
import type { PostgresServer } from '../../src/dev/embedded-postgres.js';
import { ownPrograms } from './doctor.js';
import { makeLogins, rolePrefix, urlAs } from './logins.js';
import type { Login } from './logins.js';
import { only } from './only.js';
import { inTransaction } from './postgres.js';
import type { TestDatabase } from './postgres.js';
import { waitFor } from './wait.js';

export type ReplicatedDatabase = TestDatabase & {
  readonly primary: PostgresServer;
  readonly standby: PostgresServer;
  /** Queries the standby as its superuser. */
  onStandby<Row extends pg.QueryResultRow>(sql: string): Promise<Row[]>;
  /** Pauses replay on the standby, until the test ends at the latest. */
  pauseReplay(): Promise<void>;
  resumeReplay(): Promise<void>;
  /** Waits until the standby has caught up. */
  caughtUp(): Promise<void>;
};

const settings = { fsync: 'off', max_connections: '50', shared_buffers: '32MB' };

/** Registers the hooks that start and remove both; the result can be used from `beforeAll` on. */
export function replicatedDatabase(standbySettings: Record<string, string> = {}) {
  const schema = inject('schema');
  const clients = new Set<pg.Client>();
  let primary: PostgresServer | undefined;
  let standby: PostgresServer | undefined;
  let pool: pg.Pool | undefined;
  const running = <T>(part: T | undefined): T => {
    if (part === undefined) throw new Error('it runs only between beforeAll and afterAll');
    return part;
  };

  beforeAll(async () => {
    primary = await startPostgres({ settings, ...ownPrograms() });
    const { url, port, dataDirectory } = primary;
    await migrateUp({ url, schema });
    await installRoles({ url, schema }, rolePrefix);
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await makeLogins(client);
    await client.end();
    await primary.stop();
    const copy = `${dataDirectory}-standby`;
    // with their owner, which is not root
    const copied = spawnSync('cp', ['-a', dataDirectory, copy], { encoding: 'utf8' });
    if (copied.status !== 0) throw new Error(`the files were not copied: ${copied.stderr}`);
    writeFileSync(path.join(copy, 'standby.signal'), '');
    await primary.restart();
    standby = await startPostgres({
      ...ownPrograms(),
      dataDirectory: copy,
      settings: {
        ...settings,
        primary_conninfo: `host=127.0.0.1 port=${port} user=postgres application_name=standby`,
        wal_receiver_status_interval: '1s',
        wal_retrieve_retry_interval: '100ms',
        ...standbySettings,
      },
    });
    pool = new pg.Pool({ connectionString: url, max: 10 });
    pool.on('error', () => undefined);
    // a transaction to replay: a standby without one does not know how old its data is
    await pool.query('CREATE TABLE replayed (id int)');
    await db.caughtUp();
  });

  afterAll(async () => {
    await Promise.all([...clients].map((client) => client.end().catch(() => undefined)));
    await pool?.end();
    await standby?.remove();
    await primary?.remove();
  });

  const onStandby = async <Row extends pg.QueryResultRow>(sql: string): Promise<Row[]> => {
    const client = new pg.Client({ connectionString: running(standby).url });
    client.on('error', () => undefined);
    await client.connect();
    try {
      return (await client.query<Row>(sql)).rows;
    } finally {
      await client.end();
    }
  };
  const resumeReplay = async () => {
    await onStandby('SELECT pg_wal_replay_resume()');
  };

  const db: ReplicatedDatabase = {
    schema,
    quoted: pg.escapeIdentifier(schema),
    get url() {
      return running(primary).url;
    },
    get pool() {
      return running(pool);
    },
    get primary() {
      return running(primary);
    },
    get standby() {
      return running(standby);
    },
    query: (sql, parameters) => running(pool).query(sql, parameters),
    async connect() {
      const client = new pg.Client({ connectionString: running(primary).url });
      client.on('error', () => undefined);
      clients.add(client);
      await client.connect();
      return client;
    },
    inTransaction: (work) => inTransaction(running(pool), work),
    onStandby,
    async pauseReplay() {
      onTestFinished(resumeReplay);
      await onStandby('SELECT pg_wal_replay_pause()');
      const paused = `SELECT pg_get_wal_replay_pause_state() = 'paused' AS yes`;
      await waitFor(async () => only(await onStandby<{ yes: boolean }>(paused)).yes, {
        what: 'replay to be paused',
      });
    },
    resumeReplay,
    async caughtUp() {
      const { rows } = await running(pool).query<{ lsn: string }>(
        'SELECT pg_current_wal_flush_lsn()::text AS lsn',
      );
      const reached = `SELECT pg_last_wal_replay_lsn() >= '${only(rows).lsn}' AS yes`;
      await waitFor(async () => only(await onStandby<{ yes: boolean }>(reached)).yes, {
        what: 'the standby to catch up',
        timeoutMs: 20_000,
      });
    },
  };
  return db;
}

export type TestReplica = {
  readonly database: Database;
  readonly replica: Replica;
  /** Each time reads moved to the replica, or away from it. */
  readonly changes: ReplicaStatus[];
};

/** The primary and the replica with the rights of a server; closed when the test ends. */
export async function openReplica(
  db: ReplicatedDatabase,
  { login = 'test_server', ...options }: DatabaseOptions & { login?: Login } = {},
): Promise<TestReplica> {
  const database = new Database(
    resolveDatabaseOptions({
      url: urlAs(db.url, login),
      replicaUrl: urlAs(db.standby.url, login),
      schema: db.schema,
      ...options,
    }),
    { connections: 4, applicationName: 'waybill test' },
  );
  const changes: ReplicaStatus[] = [];
  const replica = new Replica(database, {
    connections: 4,
    applicationName: 'waybill test replica',
    onChange: (status) => changes.push(status),
  });
  onTestFinished(async () => {
    await replica.close();
    await database.close();
  });
  await replica.start();
  return { database, replica, changes };
}
