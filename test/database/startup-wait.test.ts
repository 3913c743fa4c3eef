// Startup wait: a relay or subscription that starts while its database is down or read-only waits for it, reports it,
// and can be stopped meanwhile. Errors that do not go away by themselves fail at once.

import { describe, expect, it, onTestFinished, test } from 'vitest';

import { batchHandler, handler } from '../../src/destinations/handler.js';
import { subscribe } from '../../src/consumer/subscribe.js';
import type { RelayEvent } from '../../src/telemetry/events.js';
import { environmentOf, startCli, writeConfig } from '../support/cli.js';
import { urlAs } from '../support/logins.js';
import { testDatabase } from '../support/postgres.js';
import { makeRelay, sendOne, untilPlaces } from '../support/relay.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

/** The same database behind a port that refuses connections until it comes back. */
async function downDatabase(url = db.url): Promise<{ url: string; comeBack(): Promise<void> }> {
  const { url: behind, proxy } = await behindProxy(url);
  await proxy.leave();
  return { url: behind, comeBack: () => proxy.comeBack() };
}

async function behindProxy(url: string): Promise<{ url: string; proxy: TcpProxy }> {
  const proxy = await TcpProxy.open();
  onTestFinished(() => proxy.close());
  const { hostname: host, port } = new URL(url);
  proxy.leadTo({ host, port: Number(port) });
  const behind = new URL(url);
  behind.hostname = proxy.address.host;
  behind.port = String(proxy.address.port);
  return { url: behind.href, proxy };
}

/** Locks tables until `unlock` is called; `hasWaiter` tells whether a session waits for one of them. */
async function lockTables(...tables: string[]) {
  const client = await db.connect();
  onTestFinished(async () => void (await client.query('ROLLBACK')));
  await client.query('BEGIN');
  for (const table of tables)
    await client.query(`LOCK TABLE ${db.quoted}.${table} IN ACCESS EXCLUSIVE MODE`);
  return {
    unlock: () => client.query('ROLLBACK'),
    hasWaiter: async () => {
      const { rows } = await db.query<{ waits: boolean }>(
        `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = ANY ($1::regclass[])) AS waits`,
        [tables.map((table) => `${db.quoted}.${table}`)],
      );
      return rows[0]?.waits ?? false;
    },
  };
}

/** For new sessions, as after a failover to a server that is not promoted yet. */
async function setReadOnly(isReadOnly: boolean): Promise<void> {
  await db.query(
    `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = ${isReadOnly}', current_database()); END $$`,
  );
}

const relayUrl = () => urlAs(db.url, 'test_relay');
const destinations = { patient: handler(() => undefined) };
/** A configuration whose start takes every step. */
const everything = () => ({
  destinations: { ...destinations, log: batchHandler(() => Promise.resolve(), { mode: 'stream' }) },
  routes: [{ topic: 'patient', to: 'log' }],
  endpoints: {},
  alerts: { thresholds: { waiting: 5000 } },
});

describe('start()', () => {
  it('M12 waits for a database that is down, reports it, and serves it when it is there', async () => {
    const down = await downDatabase(relayUrl());
    const relay = makeRelay(db, { destinations, database: { url: down.url } });
    const started = relay.relay.start();
    const { error } = await relay.event('database_unavailable');
    expect(error).toContain('ECONNREFUSED');
    expect(relay.of('relay_started')).toEqual([]);
    await down.comeBack();
    await started;
    expect(relay.of('database_available')).toHaveLength(1);
    await sendOne(db, { topic: 'patient' });
    await untilPlaces(db, 'patient', { delivered: 1 });
  });

  it('M12 waits for a database that is read-only', async () => {
    await setReadOnly(true);
    onTestFinished(() => setReadOnly(false));
    const relay = makeRelay(db, { destinations });
    const started = relay.relay.start();
    const { error } = await relay.event('database_unavailable');
    expect(error).toContain('the database is read-only');
    await setReadOnly(false);
    await started;
  });

  it('M12 gives up after relay.startupWaitMs with the reason', async () => {
    const down = await downDatabase(relayUrl());
    const never = makeRelay(db, {
      destinations,
      database: { url: down.url },
      relay: { startupWaitMs: 0 },
    });
    await expect(never.relay.start()).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    expect(never.of('database_unavailable')).toEqual([]);
    const short = makeRelay(db, {
      destinations,
      database: { url: down.url },
      relay: { startupWaitMs: 100 },
    });
    await expect(short.relay.start()).rejects.toMatchObject({ code: 'ECONNREFUSED' });
    expect(short.of('database_unavailable')).toHaveLength(1);
  });

  it.each(['declarations', 'alert_thresholds', 'relays', 'endpoint_settings', 'cursors'])(
    'M12 keeps waiting when the database goes away during the start, at a step that uses %s',
    async (table) => {
      const { url, proxy } = await behindProxy(relayUrl());
      const lock = await lockTables(table);
      const relay = makeRelay(db, { ...everything(), database: { url } });
      const started = relay.relay.start();
      await waitFor(lock.hasWaiter, { what: `the start to wait for ${table}` });
      await proxy.leave();
      await relay.event('database_unavailable');
      await lock.unlock();
      await proxy.comeBack();
      await started;
      expect(relay.of('database_available').length).toBeGreaterThan(0);
      expect(relay.of('relay_started')).toHaveLength(1);
    },
  );

  it('M12 keeps waiting while tables that it needs stay locked, within relay.startupWaitMs', async () => {
    const lock = await lockTables('endpoint_settings', 'alert_thresholds');
    const database = { lockTimeoutMs: 100 };
    const short = makeRelay(db, { ...everything(), database, relay: { startupWaitMs: 100 } });
    await expect(short.relay.start()).rejects.toMatchObject({ code: '55P03' });
    const relay = makeRelay(db, { ...everything(), database });
    const started = relay.relay.start();
    const { error } = await relay.event('database_unavailable');
    expect(error).toContain('lock timeout');
    await lock.unlock();
    await started;
  });

  it.each([
    ['a database that does not exist', () => ({ url: withDatabase('no_such_database') }), '3D000'],
    [
      'a login that does not exist',
      () => ({ url: urlAs(db.url, 'no_such_login' as never) }),
      '28000',
    ],
    ['a schema that does not exist', () => ({ schema: 'no_such_schema' }), 'schema_missing'],
  ])('M12 %s is not waited for', async (_what, database, code) => {
    const relay = makeRelay(db, { destinations, database: database() });
    const failure: unknown = await relay.relay.start().catch((error: unknown) => error);
    expect(failure).toMatchObject({ code });
    expect(relay.of('database_unavailable')).toEqual([]);
  });

  it('M12 can be stopped while it waits', async () => {
    const down = await downDatabase(relayUrl());
    const relay = makeRelay(db, { destinations, database: { url: down.url } });
    const started = relay.relay.start();
    await relay.event('database_unavailable');
    await relay.stop();
    await expect(started).rejects.toThrow('the relay was stopped while it started');
  });
});

function withDatabase(name: string): string {
  const url = new URL(relayUrl());
  url.pathname = `/${name}`;
  return url.href;
}

describe('subscribe()', () => {
  const options = (url: string, events: RelayEvent[]) => ({
    name: 'patient-reader',
    database: { url, schema: db.schema },
    onEvent: (event: RelayEvent) => void events.push(event),
  });
  const isWaiting = (events: RelayEvent[]) =>
    waitFor(() => events.some(({ name }) => name === 'database_unavailable'), {
      what: 'the subscription to wait',
    });

  it('N4 waits for a database that is down', async () => {
    const down = await downDatabase(relayUrl());
    const events: RelayEvent[] = [];
    const started = subscribe(options(down.url, events), () => undefined);
    await isWaiting(events);
    await down.comeBack();
    const subscription = await started;
    await subscription.stop();
  });

  it('N4 waits for a database that is read-only', async () => {
    await setReadOnly(true);
    onTestFinished(() => setReadOnly(false));
    const events: RelayEvent[] = [];
    const started = subscribe(options(relayUrl(), events), () => undefined);
    await isWaiting(events);
    expect(events).toContainEqual(
      expect.objectContaining({
        name: 'database_unavailable',
        error: expect.stringContaining('the database is read-only') as string,
      }),
    );
    await setReadOnly(false);
    const subscription = await started;
    await waitFor(() => subscription.reading, { what: 'the subscription to read' });
    await subscription.stop();
  });

  it('N4 keeps waiting while a table that it needs stays locked', async () => {
    const lock = await lockTables('cursors');
    const events: RelayEvent[] = [];
    const { database, ...rest } = options(relayUrl(), events);
    const started = subscribe(
      { ...rest, database: { ...database, lockTimeoutMs: 100 } },
      () => undefined,
    );
    await isWaiting(events);
    await lock.unlock();
    const subscription = await started;
    await subscription.stop();
  });

  it('N4 can be stopped by its signal while it waits, and later', async () => {
    const down = await downDatabase(relayUrl());
    const events: RelayEvent[] = [];
    const early = new AbortController();
    const started = subscribe(
      { ...options(down.url, events), signal: early.signal },
      () => undefined,
    );
    await isWaiting(events);
    early.abort(new Error('not today'));
    await expect(started).rejects.toThrow('not today');

    const late = new AbortController();
    const running = await subscribe(
      { ...options(relayUrl(), events), signal: late.signal },
      () => undefined,
    );
    await waitFor(() => running.reading, { what: 'the subscription to read' });
    late.abort();
    await waitFor(() => !running.reading, { what: 'the subscription to stop' });
  });
});

test.each(['SIGTERM', 'SIGINT'] as const)(
  'M12 waybill start waits for a database that is down, and %s ends the wait with exit code 0',
  async (signal) => {
    const down = await downDatabase();
    const config = writeConfig(`{ destinations: { away: handler(() => {}) }, routes: [] }`);
    const child = startCli(['start', '--config', config, '--no-server'], {
      environment: { ...environmentOf(db), DATABASE_URL: down.url },
    });
    await child.says('database_unavailable');
    child.process.kill(signal);
    expect(await child.ended(8000)).toMatchObject({ code: 0 });
  },
);
