// A relay that may sleep, on a PostgreSQL that counts its statements: while asleep it has no connection and sends
// nothing. It wakes for due work, on request, for an enqueue of its own process and for its scheduled look, also if the
// server starts slowly; and it loses nothing if it is killed while it falls asleep or wakes.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';

import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';

import { createRelay } from '../../src/config.js';
import type { Config } from '../../src/config.js';
import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import type { SingleDestination } from '../../src/destinations/destination.js';
import { handler } from '../../src/destinations/handler.js';
import type { PostgresServer } from '../../src/dev/embedded-postgres.js';
import { addToken, removeToken } from '../../src/features/tokens/database.js';
import { createOutbox } from '../../src/producer/outbox.js';
import type { Relay } from '../../src/relay/relay.js';
import type { SleepOptions } from '../../src/relay/sleep/options.js';
import { resolveServerOptions } from '../../src/server/options.js';
import { startServer } from '../../src/server/server.js';
import type { RelayEvent } from '../../src/telemetry/events.js';
import { countedDatabase, startCountingPostgres } from '../support/counted-statements.js';
import type { CountedDatabase } from '../support/counted-statements.js';
import { openWire } from '../support/relay-proxy.js';
import { silentAddress } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait.js';

/** Ten minutes by hand: WAYBILL_TEST_IDLE_SECONDS=600 npx vitest run --project waiting sleep */
const idleSeconds = Number(process.env['WAYBILL_TEST_IDLE_SECONDS'] ?? 3);
const never = 86_400_000;
const timeout = 120_000;

let server: PostgresServer;
beforeAll(async () => {
  server = await startCountingPostgres();
});
afterAll(() => server.remove());

async function openDatabase(): Promise<CountedDatabase> {
  const database = await countedDatabase(server);
  onTestFinished(() => database.close());
  return database;
}

type Sleeping = {
  relay: Relay;
  events: RelayEvent[];
  /** Ids of delivered messages, and when. */
  delivered: Map<string, number>;
  asleep: () => Promise<void>;
  has: (id: string, timeoutMs?: number) => Promise<number>;
};

async function startSleeping(
  { url }: Pick<CountedDatabase, 'url'>,
  sleep: SleepOptions,
  parts: Partial<SingleDestination> = {},
): Promise<Sleeping> {
  const events: RelayEvent[] = [];
  const delivered = new Map<string, number>();
  const relay = createRelay({
    database: { url },
    destinations: {
      awaited: { ...handler(({ id }) => void delivered.set(id, Date.now())), ...parts },
    },
    routes: [{ topic: 'awaited', to: 'awaited' }],
    relay: { sleep },
    onEvent: (event) => void events.push(event),
  });
  onTestFinished(() => relay.stop());
  await relay.start();
  return {
    relay,
    events,
    delivered,
    async asleep() {
      await waitFor(() => relay.isAsleep, { what: 'the relay to fall asleep', timeoutMs: 30_000 });
    },
    has: (id, timeoutMs = 30_000) =>
      waitFor(() => delivered.get(id), { what: `the message ${id}`, timeoutMs }),
  };
}

/** Enqueues in SQL, as another process would: the relay of this process does not notice. */
async function enqueue(
  { pool }: CountedDatabase,
  { topic = 'awaited', availableInMs = 0 } = {},
): Promise<string> {
  const { rows } = await pool.query<{ id: string }>(
    `SELECT id FROM outbox.enqueue($1, '{}',
       available_at => CASE WHEN $2 > 0 THEN clock_timestamp() + $2 * interval '1 ms' END)`,
    [topic, availableInMs],
  );
  return rows[0]?.id ?? '';
}

/** A client of its own, which a failing test does not leave open. */
async function connect({ pool }: CountedDatabase): Promise<pg.PoolClient> {
  const client = await pool.connect();
  onTestFinished(() => client.release(true));
  return client;
}

describe('asleep', { timeout: timeout + idleSeconds * 1000 }, () => {
  test('X3 it has no connection and sends nothing; relay.wake() delivers what was enqueued meanwhile', async () => {
    const database = await openDatabase();
    const { relay, asleep, has, events } = await startSleeping(database, {
      afterMs: 500,
      lookEveryMs: never,
    });
    await has(await enqueue(database));
    await asleep();
    await waitFor(async () => (await database.connections()) === 0, { what: 'no connection' });
    await database.reset();
    await database.pool.query('SELECT pg_sleep($1)', [idleSeconds]);
    expect(await database.statements()).toEqual([]);
    expect(await database.connections()).toBe(0);
    const { rows } = await database.pool.query(
      'SELECT 1 FROM outbox.relays UNION ALL SELECT 1 FROM outbox.listeners',
    );
    expect(rows, 'it has signed off').toEqual([]);
    const id = await enqueue(database);
    relay.wake();
    await has(id);
    await asleep();
    await relay.stop();
    expect(events.map(({ name }) => name).filter((name) => name.startsWith('relay_'))).toEqual([
      'relay_started',
      'relay_asleep',
      'relay_started',
      'relay_asleep',
      'relay_stopped',
    ]);
  });

  test('X3 a message that is due while it sleeps is delivered at its time', async () => {
    const database = await openDatabase();
    const { asleep, has, delivered } = await startSleeping(database, {
      afterMs: 300,
      lookEveryMs: never,
    });
    const id = await enqueue(database, { availableInMs: 6000 });
    const enqueuedMs = Date.now();
    await asleep();
    expect(delivered.size).toBe(0);
    const tookMs = (await has(id)) - enqueuedMs;
    expect(tookMs).toBeGreaterThan(5500);
    expect(tookMs).toBeLessThan(20_000);
  });

  test('X3 a lease of a dead worker that expires while it sleeps is ended at its time', async () => {
    const database = await openDatabase();
    const first = await startSleeping(database, { afterMs: 60_000, lookEveryMs: never });
    await first.relay.stop();
    const id = await enqueue(database);
    const { rows } = await database.pool.query(
      `SELECT message_id AS id FROM outbox.claim('awaited', gen_random_uuid(), lease => '8 seconds')`,
    );
    expect(rows).toEqual([{ id }]);
    const { asleep, has, delivered } = await startSleeping(database, {
      afterMs: 300,
      lookEveryMs: never,
    });
    await asleep();
    expect(delivered.size).toBe(0);
    await has(id);
  });

  test('X3 if nothing wakes it, the next scheduled look finds the message', async () => {
    const database = await openDatabase();
    const { asleep, has } = await startSleeping(database, { afterMs: 300, lookEveryMs: 3000 });
    await asleep();
    await has(await enqueue(database));
  });

  test('X3 an enqueue of its own process wakes it', async () => {
    const database = await openDatabase();
    const { asleep, has } = await startSleeping(database, { afterMs: 1000, lookEveryMs: never });
    await asleep();
    const client = await database.pool.connect();
    await client.query('BEGIN');
    const { id } = await createOutbox().enqueue(client, { topic: 'awaited' });
    await client.query('COMMIT');
    client.release();
    await has(id);
  });

  test('X3 it stays awake, without a stop and a start, beside a transaction that has enqueued something', async () => {
    const database = await openDatabase();
    const { asleep, has, events } = await startSleeping(database, {
      afterMs: 300,
      lookEveryMs: never,
    });
    const client = await connect(database);
    await client.query('BEGIN');
    const { rows } = await client.query<{ id: string }>(
      `SELECT id FROM outbox.enqueue('awaited', '{}')`,
    );
    await client.query('SELECT pg_sleep(9)');
    const changes = events.map(({ name }) => name).filter((name) => name.startsWith('relay_'));
    expect(changes).toEqual(['relay_started']);
    await client.query('COMMIT');
    await has(rows[0]?.id ?? '');
    await asleep();
  });

  test('X3 it does not sleep if a transaction enqueues something while it falls asleep', async () => {
    const database = await openDatabase();
    const client = await connect(database);
    let id: string | undefined;
    // destinations are closed before the relay signs off
    const { has, events } = await startSleeping(
      database,
      { afterMs: 300, lookEveryMs: never },
      {
        async close() {
          if (id !== undefined) return;
          await client.query('BEGIN');
          const { rows } = await client.query<{ id: string }>(
            `SELECT id FROM outbox.enqueue('awaited', '{}')`,
          );
          id = rows[0]?.id ?? '';
        },
      },
    );
    const starts = () => events.filter(({ name }) => name === 'relay_started').length;
    await waitFor(() => starts() === 2, { what: 'the next run', timeoutMs: 30_000 });
    expect(events.filter(({ name }) => name === 'relay_asleep')).toEqual([]);
    await client.query('COMMIT');
    await has(id ?? '');
  });

  test('X3 a message arrives as soon as a stopped server is up', async () => {
    const database = await openDatabase();
    const { relay, asleep, has, events } = await startSleeping(database, {
      afterMs: 300,
      lookEveryMs: never,
    });
    await asleep();
    const id = await enqueue(database);
    await server.stop('fast');
    try {
      relay.wake();
      await waitFor(() => events.some(({ name }) => name === 'database_unavailable'), {
        what: 'a start in vain',
      });
    } finally {
      await server.restart();
    }
    await has(id);
  });
});

describe('a destination that cannot be opened when it wakes', { timeout }, () => {
  test('X3 does not hold up the others, and is tried again with its deliveries', async () => {
    const database = await openDatabase();
    const delivered = new Set<string>();
    const opened = { down: 0, silent: 0 };
    let isDown = false;
    const toSet = () =>
      handler(({ id }) => void delivered.add(id), { retry: { delaysMs: [200, 200, 200, 200] } });
    const troubles: string[] = [];
    const relay = createRelay({
      database: { url: database.url },
      destinations: {
        down: {
          ...toSet(),
          open() {
            opened.down += 1;
            if (isDown) throw new Error('the broker is down');
          },
        },
        silent: {
          ...toSet(),
          open: () => (++opened.silent === 1 ? undefined : new Promise<void>(() => undefined)),
        },
        awaited: toSet(),
      },
      routes: [
        { topic: 'awaited', to: 'awaited' },
        { topic: 'down', to: 'down' },
      ],
      relay: { sleep: { afterMs: 300, lookEveryMs: never } },
      onEvent: (event) => void (event.name === 'trouble' && troubles.push(event.what)),
    });
    onTestFinished(() => relay.stop());
    await relay.start();
    await waitFor(() => relay.isAsleep, { what: 'the relay to fall asleep', timeoutMs: 30_000 });
    isDown = true;
    const late = await enqueue(database, { topic: 'down' });
    const id = await enqueue(database);
    relay.wake();
    await waitFor(() => delivered.has(id), { what: 'the message', timeoutMs: 30_000 });
    expect(delivered.has(late)).toBe(false);
    await waitFor(() => opened.down >= 3, { what: 'another try', timeoutMs: 30_000 });
    isDown = false;
    await waitFor(() => delivered.has(late), { what: 'the late message', timeoutMs: 30_000 });
    expect(new Set(troubles)).toEqual(new Set(['open down']));
  });

  test('X3 lets the first start fail', async () => {
    const database = await openDatabase();
    const parts = {
      open() {
        throw new Error('a library is missing');
      },
    };
    const started = startSleeping(database, { afterMs: 300 }, parts);
    await expect(started).rejects.toThrow('a library is missing');
  });
});

describe('a database that does not start', { timeout }, () => {
  test('X3 catchUp ends at its limit', async () => {
    const database = await openDatabase();
    const { relay, asleep } = await startSleeping(database, { afterMs: 300, lookEveryMs: never });
    await asleep();
    await server.stop('fast');
    try {
      const report = await relay.catchUp({ maxMs: 1500 });
      expect(report).toMatchObject({ processed: 0, finished: false });
    } finally {
      await server.restart();
    }
    expect(await relay.catchUp()).toMatchObject({ finished: true });
  });
});

describe('a server beside it', { timeout }, () => {
  test('X3 says asleep without asking the database, and wakes it on an authenticated request', async () => {
    const database = await openDatabase();
    const { relay, asleep, has } = await startSleeping(database, {
      afterMs: 500,
      lookEveryMs: never,
    });
    const pool = new Database(resolveDatabaseOptions({ url: database.url }), {
      connections: 2,
      applicationName: 'waybill server',
    });
    onTestFinished(() => pool.close());
    const http = await startServer(resolveServerOptions({ port: 0 }), {
      database: pool,
      isReady: () => true,
      sleeping: { isAsleep: () => relay.isAsleep, wake: () => relay.wake() },
    });
    onTestFinished(() => http.close());
    const { url } = http;
    const token = await addToken(pool, { name: 'producer', scope: 'operate' }, 'test');
    const authorization = `Bearer ${token}`;
    const awake = await fetch(`${url}/metrics`, { headers: { authorization } });
    expect(await awake.text()).toContain('outbox_relay_asleep 0');
    await asleep();
    pool.discardIdle();
    await waitFor(async () => (await database.connections()) === 0, { what: 'no connection' });
    await database.reset();

    expect(await (await fetch(`${url}/healthz`)).json()).toEqual({ status: 'asleep', counts: {} });
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    const metrics = await (await fetch(`${url}/metrics`)).text();
    expect(metrics.split('\n').filter((line) => line && !line.startsWith('#'))).toEqual([
      'outbox_relay_asleep 1',
    ]);
    const refresh = await fetch(`${url}/api/relays`, {
      headers: { authorization, 'waybill-refresh': '1' },
    });
    expect(refresh.status).toBe(503);
    expect((await fetch(`${url}/api/wake`, { method: 'POST' })).status, 'no token').toBe(401);
    expect(relay.isAsleep).toBe(true);
    expect(await database.statements(), 'the database was not asked').toEqual([]);
    expect(await database.connections()).toBe(0);

    const id = await enqueue(database);
    const wrong = createOutbox({ wake: { url: `${url}/api/nothing`, token } });
    expect(await wrong.nudge(), 'this process has a relay').toBe(true);
    await has(id);
    await asleep();
    const answer = await fetch(`${url}/api/wake`, { method: 'POST', headers: { authorization } });
    expect(await answer.json()).toEqual({ asleep: true });
    await has(await enqueue(database));
    await asleep();
    const later = await enqueue(database);
    const resumed = await fetch(`${url}/api/destinations/awaited/resume`, {
      method: 'POST',
      headers: { authorization },
    });
    expect(resumed.status, 'a change of an operator').toBe(200);
    await has(later);
  });

  test('X3 a token that has expired wakes nothing, and a revoked one wakes it once and opens nothing', async () => {
    const database = await openDatabase();
    const { relay, asleep } = await startSleeping(database, { afterMs: 500, lookEveryMs: never });
    const pool = new Database(resolveDatabaseOptions({ url: database.url }), {
      connections: 2,
      applicationName: 'waybill server',
    });
    onTestFinished(() => pool.close());
    const http = await startServer(resolveServerOptions({ port: 0 }), {
      database: pool,
      isReady: () => true,
      sleeping: { isAsleep: () => relay.isAsleep, wake: () => relay.wake() },
    });
    onTestFinished(() => http.close());
    const ask = async (method: string, route: string, token: string): Promise<number> => {
      const headers = { authorization: `Bearer ${token}` };
      return (await fetch(`${http.url}${route}`, { method, headers })).status;
    };
    const expiresAt = new Date(Date.now() + 10_000);
    const short = await addToken(pool, { name: 'short', scope: 'operate', expiresAt }, 'test');
    const revoked = await addToken(pool, { name: 'revoked', scope: 'operate' }, 'test');
    expect(await ask('GET', '/metrics', short)).toBe(200);
    expect(await ask('GET', '/metrics', revoked)).toBe(200);
    await asleep();
    await removeToken(pool, 'revoked', 'test');
    await waitFor(() => Date.now() > expiresAt.getTime(), { what: 'the end of the token' });
    expect(await ask('POST', '/api/wake', short), 'expired').toBe(401);
    expect(relay.isAsleep).toBe(true);
    expect(await ask('GET', '/api/destinations', revoked), 'revoked').toBe(401);
    const again = await addToken(pool, { name: 'again', scope: 'operate' }, 'test');
    relay.wake();
    await waitFor(() => !relay.isAsleep, { what: 'the relay to wake' });
    expect(await ask('GET', '/api/destinations', again)).toBe(200);
    await asleep();
    await removeToken(pool, 'again', 'test');
    expect(await ask('POST', '/api/wake', again), 'the relay cannot know yet').toBe(200);
    await asleep();
    expect(await ask('POST', '/api/wake', again), 'the database was asked').toBe(401);
  });

  test('X3 nudge() never rejects, whatever the server does', async () => {
    const wake = (url: string) =>
      createOutbox({ schema: 'elsewhere', wake: { url, timeoutMs: 200 } }).nudge();
    expect(await wake('http://127.0.0.1:1/api/wake'), 'nothing listens').toBe(false);
    const { port } = new URL(await silentAddress());
    expect(await wake(`http://127.0.0.1:${port}/api/wake`), 'no answer').toBe(false);
    expect(await createOutbox({ schema: 'elsewhere' }).nudge(), 'no address').toBe(false);
  });
});

test('X3 the example of the guide wakes its relay', { timeout }, async () => {
  const database = await openDatabase();
  await database.pool.query('CREATE TABLE users (email text)');
  const example = path.resolve('examples/sleeping-database');
  const { default: config } = (await import(`${example}/waybill.config.mjs`)) as {
    default: Config;
  };
  const { register } = (await import(`${example}/register.mjs`)) as {
    register: (client: pg.PoolClient, email: string) => Promise<void>;
  };
  const said = vi.spyOn(console, 'log').mockReturnValue(undefined);
  onTestFinished(() => said.mockRestore());
  const relay = createRelay({
    ...config,
    database: { url: database.url },
    relay: { sleep: { ...config.relay?.sleep, afterMs: 500 } },
  });
  onTestFinished(() => relay.stop());
  await relay.start();
  await waitFor(() => relay.isAsleep, { what: 'the relay to fall asleep', timeoutMs: 30_000 });
  const client = await database.pool.connect();
  await register(client, 'ada@example.com');
  client.release();
  await waitFor(() => said.mock.calls.some(([text]) => text === 'welcome ada@example.com'), {
    what: 'the welcome',
    timeoutMs: 30_000,
  });
});

describe('killed', { timeout }, () => {
  const program = path.resolve('test/fault/sleep/relay.mjs');

  async function startProcess(databaseUrl: string, sleep: SleepOptions) {
    const child = spawn(process.execPath, [program, JSON.stringify({ databaseUrl, sleep })], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    let output = '';
    child.stdout.on('data', (text: Buffer) => void (output += text.toString()));
    const says = (text: string, timeoutMs = 30_000) =>
      waitFor(() => output.includes(text), { what: `the relay to say ${text}`, timeoutMs });
    const kill = async () => {
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
    };
    await says('relay_started');
    return { child, says, kill };
  }

  test.each([
    ['while it signs off', 'sign_off', false],
    ['at its last look', 'idle_is_safe', false],
    ['at its first statement after it woke', 'pg_is_in_recovery', true],
    ['while it registers', 'heartbeat', true],
    ['over a claim', 'claim_batch', true],
  ])('X3 %s, it loses nothing', async (_when, statement, waking) => {
    const database = await openDatabase();
    const wire = await openWire(database.url);
    const sleep = { afterMs: 300, lookEveryMs: never };
    const first = await startProcess(wire.url, sleep);
    if (waking) await first.says('relay_asleep');
    wire.holdAnswerTo(statement);
    const ids: string[] = [];
    if (waking) {
      ids.push(await enqueue(database, { topic: 'killed' }));
      first.child.kill('SIGUSR2');
    }
    await waitFor(() => wire.held > 0, { what: `an answer to ${statement}`, timeoutMs: 30_000 });
    await first.kill();
    ids.push(await enqueue(database, { topic: 'killed' }));
    const next = await startProcess(database.url, sleep);
    for (const id of ids) await next.says(`delivered ${id}`, 60_000);
    await next.kill();
  });
});
