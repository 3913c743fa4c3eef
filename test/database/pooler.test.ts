// Behind a real PgBouncer in transaction mode there is no session and so no session setting. Every statement still has
// its limits, none of them remains for the application, and features that need a session say so.

import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import type { DatabaseOptions } from '../../src/database/connection.js';
import { connectDirectly } from '../../src/database/direct-connection.js';
import { migrateUp } from '../../src/database/migrate.js';
import { handler } from '../../src/destinations/handler.js';
import { cli } from '../support/cli.js';
import { misplaced } from '../support/outbox.js';
import { findPgbouncer, startPgbouncer } from '../support/pgbouncer.js';
import { testDatabase } from '../support/postgres.js';
import { numbered, send, startRelay, untilPlaces } from '../support/relay.js';

const db = testDatabase();
const program = findPgbouncer() ?? '';

async function pooledUrl(
  options: { poolMode?: 'transaction' | 'session'; connections?: number } = {},
): Promise<string> {
  return startPgbouncer(program, db.url, {
    poolMode: 'transaction',
    connections: 5,
    ...options,
  });
}

function open(options: DatabaseOptions): Database {
  const database = new Database(resolveDatabaseOptions({ schema: db.schema, ...options }), {
    connections: 2,
    applicationName: 'waybill test',
  });
  onTestFinished(() => database.close());
  return database;
}

const show = `SELECT current_setting('statement_timeout') AS statement, current_setting('lock_timeout') AS lock,
  current_setting('idle_in_transaction_session_timeout') AS idle, current_setting('transaction_isolation') AS isolation,
  current_setting('DateStyle') AS dates`;

const unlimited = {
  statement: '0',
  lock: '0',
  idle: '0',
  isolation: 'serializable',
  dates: 'SQL, DMY',
};

describe.skipIf(program === '')('behind a pooler in transaction mode', () => {
  // defaults that differ from Waybill's, so that a leftover setting would show
  const defaults = [
    ['default_transaction_isolation', 'serializable'],
    ['DateStyle', "'SQL, DMY'"],
  ] as const;
  beforeAll(async () => {
    for (const [name, value] of defaults)
      await db.query(`ALTER DATABASE ${new URL(db.url).pathname.slice(1)} SET ${name} = ${value}`);
  });
  afterAll(async () => {
    for (const [name] of defaults)
      await db.query(`ALTER DATABASE ${new URL(db.url).pathname.slice(1)} RESET ${name}`);
  });

  it('N10 every statement has its limits, and none of them remains for others', async () => {
    // one server connection that all clients share
    const url = await pooledUrl({ connections: 1 });
    const application = new pg.Client({ connectionString: url });
    onTestFinished(() => application.end());
    await application.connect();
    const database = open({ url, statementTimeoutMs: 5000, lockTimeoutMs: 700 });
    const limited = {
      statement: '5s',
      lock: '700ms',
      idle: '1min',
      isolation: 'read committed',
      dates: 'ISO, DMY',
    };
    for (let round = 0; round < 3; round += 1) {
      expect(await database.query('show', show)).toEqual([limited]);
      expect((await application.query(show)).rows).toEqual([unlimited]);
    }
    await expect(database.query('fail', 'SELECT 1 / 0')).rejects.toMatchObject({ code: '22012' });
    expect((await application.query(show)).rows, 'after a failure').toEqual([unlimited]);
    expect(await database.query('show', show)).toEqual([limited]);
  });

  it('N10 a statement that takes longer than its limit is cancelled by the server', async () => {
    const database = open({ url: await pooledUrl(), statementTimeoutMs: 100 });
    await expect(database.query('sleep', 'SELECT pg_sleep(20)')).rejects.toMatchObject({
      code: '57014',
    });
    expect(await database.query('go on', 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  });

  it('N10 P7 a relay delivers, and reports what it needs for wake-ups', async () => {
    const url = await pooledUrl();
    const relay = await startRelay(db, {
      destinations: { pooled: handler(() => undefined) },
      database: { url },
    });
    await send(db, numbered('pooled', 300));
    await untilPlaces(db, 'pooled', { delivered: 300, waiting: 0, leased: 0 });
    await relay.stop();
    expect(relay.of('listen_unavailable')[0]?.reason).toMatch(
      /connection pooler.*database\.directUrl \(DATABASE_DIRECT_URL\)/,
    );
    expect(relay.of('trouble')).toEqual([]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('P7 a relay with a direct address beside the pooler is woken by notifications', async () => {
    const relay = await startRelay(db, {
      destinations: { beside: handler(() => undefined) },
      database: { url: await pooledUrl(), directUrl: db.url },
      relay: { fallbackPollMs: null },
    });
    await send(db, numbered('beside', 3));
    await untilPlaces(db, 'beside', { delivered: 3 });
    await relay.stop();
    expect(relay.of('listen_unavailable')).toEqual([]);
    expect(relay.of('trouble')).toEqual([]);
  });

  it('P7 a pooler given as the direct address is recognised as one that cannot listen', async () => {
    const url = await pooledUrl();
    const relay = await startRelay(db, {
      destinations: { mistaken: handler(() => undefined) },
      database: { url, directUrl: url },
    });
    expect(relay.of('listen_unavailable')[0]?.reason).toMatch(/pooler.*directUrl/);
    await send(db, numbered('mistaken', 3));
    await untilPlaces(db, 'mistaken', { delivered: 3 });
  });

  it('N12 migrations are refused, with the remedy', async () => {
    const url = await pooledUrl();
    await expect(migrateUp({ url, schema: db.schema })).rejects.toMatchObject({
      code: 'configuration_invalid',
      message: expect.stringMatching(/connection pooler.*DATABASE_DIRECT_URL/) as unknown,
    });
    const { applied } = await migrateUp({ url, directUrl: db.url, schema: db.schema });
    expect(applied).toEqual(['partitions']);
  });

  it('commands that need no session work', async () => {
    const environment = { DATABASE_URL: await pooledUrl(), WAYBILL_SCHEMA: db.schema };
    const enqueued = await cli(['enqueue', 'by.hand', '{"n": 1}'], { environment });
    expect(enqueued).toMatchObject({ code: 0, stderr: '' });
    const status = await cli(['status', '--json'], { environment });
    expect(status).toMatchObject({ code: 0, stderr: '' });
  });
});

describe.skipIf(program === '')('behind a pooler in session mode', () => {
  it('N12 P7 a direct address migrates and listens', async () => {
    const url = await pooledUrl({ poolMode: 'session', connections: 20 });
    const options = { url, directUrl: url, schema: db.schema };
    expect((await migrateUp(options)).applied).toEqual(['partitions']);
    const client = await connectDirectly(resolveDatabaseOptions(options));
    onTestFinished(() => client.end());
    expect((await client.query(show)).rows).toMatchObject([
      { statement: '30s', lock: '10s', idle: '1min', isolation: 'read committed' },
    ]);
    const relay = await startRelay(db, {
      destinations: { sessions: handler(() => undefined) },
      database: options,
      relay: { fallbackPollMs: null },
    });
    await send(db, numbered('sessions', 3));
    await untilPlaces(db, 'sessions', { delivered: 3 });
    expect(relay.of('listen_unavailable')).toEqual([]);
  });
});
