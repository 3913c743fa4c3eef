// Half-open connections: the network silently drops all packets, both ends keep their sockets open, and new connections
// work. One missed deadline has to be enough to replace all of them. The relay's lease is a minute long, so its expiry
// repairs nothing here.

import { afterEach, expect, test } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { errorText } from '../../src/core/errors.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';
import { isSettle } from './crash/faults.js';
import { PostgresProxy } from './crash/postgres-proxy.js';
import type { HeldRequest } from './crash/postgres-proxy.js';
import { RelayUnderTest } from './crash/relay-under-test.js';

const db = testDatabase();
const cleanUp: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const each of cleanUp.splice(0).toReversed()) await each();
});

async function startRelay(): Promise<RelayUnderTest> {
  const relay = await RelayUnderTest.start({ databaseUrl: db.url, pool: db.pool });
  cleanUp.push(async () => {
    relay.proxy.thaw();
    await relay.stop();
  });
  return relay;
}

/** Several concurrent settles open a connection each; afterwards all of them are idle. */
async function openIdleConnections(relay: RelayUnderTest): Promise<void> {
  const held: HeldRequest[] = [];
  for (let n = 0; n < 3; n += 1) {
    const settle = relay.proxy.hold(isSettle);
    await relay.enqueue();
    held.push(await settle);
  }
  for (const each of held) each.pass();
  await waitFor(() => relay.count('settled') === 3, { what: 'the settles to be answered' });
}

const missedDeadlines = (relay: RelayUnderTest, what: string) =>
  relay.events.filter(
    (event) =>
      event.name === 'trouble' && event.what === what && /did not answer/.test(event.error),
  );

test('P2 P12 keyed work continues in order after one deadline when all connections are half-open', async () => {
  const relay = await startRelay();
  await openIdleConnections(relay);

  relay.proxy.freeze('present');
  const frozenMs = performance.now();
  const ids = await relay.enqueue(3, 'account-7');
  for (const id of ids) await relay.waitUntilDelivered(id, 60_000);

  // statement timeout 1 s, deadline 2 s above it, grace period 1 s, and time to reconnect on a busy machine
  expect(performance.now() - frozenMs).toBeLessThan(30_000);
  expect(missedDeadlines(relay, 'claim for notebook').length).toBeLessThanOrEqual(1);
  expect(relay.handled.slice(3)).toEqual(ids);
  for (const id of ids) expect((await relay.attempts(id)).at(-1)?.state).toBe('dispatched');
});

test('P2 P12 a settle on a half-open connection is repeated once, and the key continues', async () => {
  const relay = await startRelay();
  await openIdleConnections(relay);
  const caught = relay.proxy.hold(isSettle);
  const ids = await relay.enqueue(2, 'account-7');
  await caught;

  relay.proxy.freeze('present');
  for (const id of ids) await relay.waitUntilDelivered(id, 60_000);

  expect(missedDeadlines(relay, 'settle').length).toBeLessThanOrEqual(1);
  expect(relay.handled.slice(3)).toEqual(ids);
});

test('P12 a connection that has answered since keeps its query when another one misses its deadline', async () => {
  const proxy = await PostgresProxy.start(db.url);
  cleanUp.push(() => proxy.close());
  const options = { url: proxy.through(db.url), schema: db.schema, statementTimeoutMs: 2500 };
  const [first, second] = [resolveDatabaseOptions(options), resolveDatabaseOptions(options)];
  const work = new Database(first, { connections: 2, applicationName: 'test' });
  const control = new Database(second, { connections: 1, applicationName: 'test', beside: work });
  cleanUp.push(
    () => work.close(),
    () => control.close(),
  );
  await control.query('idle', 'SELECT 1');
  const sleep = (ms: number) =>
    work.query<{ pid: number }>('sleep', `SELECT pg_backend_pid() AS pid, pg_sleep(${ms / 1000})`);

  // the deadline is at 4.5 s; the grace period ends a second later, and the last query after that
  const held = proxy.hold(({ sql }) => sql === 'SELECT 2');
  const silent = work.query('silent', 'SELECT 2').catch(errorText);
  await held;
  const healthy = [await sleep(2000), await sleep(1500), await sleep(2400)];

  expect(await silent).toMatch(/did not answer/);
  expect(new Set(healthy.map(([row]) => row?.pid)).size).toBe(1);
});
