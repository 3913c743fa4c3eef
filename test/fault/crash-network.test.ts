// Faults between a relay and PostgreSQL, one at a time, each at an exact moment: lost responses, connections that are
// cut or fall silent, and killed backends. The relay's lease is a minute long, so its expiry repairs nothing here.

import { afterEach, expect, test } from 'vitest';

import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';
import { isClaim, isSettle } from './crash/faults.js';
import { RelayUnderTest } from './crash/relay-under-test.js';

const db = testDatabase();
const started: RelayUnderTest[] = [];
afterEach(async () => {
  for (const relay of started.splice(0)) {
    relay.proxy.thaw();
    await relay.stop();
  }
});

type Changes = Partial<Parameters<typeof RelayUnderTest.start>[0]>;

async function startRelay(changes: Changes = {}): Promise<RelayUnderTest> {
  const relay = await RelayUnderTest.start({ databaseUrl: db.url, pool: db.pool, ...changes });
  started.push(relay);
  return relay;
}

const released = (claimNo: number) => ({
  claim_no: claimNo,
  tries: 0,
  state: 'released',
  error_code: null,
});

const delivered = (claimNo: number) => ({
  claim_no: claimNo,
  tries: 1,
  state: 'dispatched',
  error_code: null,
});

/**
 * Expects one delivery with the first try. A claim that was on its way when the connections failed may have taken the
 * message, too: PostgreSQL ran it, its answer was lost, and the relay released it.
 */
async function expectOneDelivery(relay: RelayUnderTest, id: string): Promise<void> {
  const attempts = await relay.attempts(id);
  const last = attempts.length;
  expect(attempts).toEqual([...attempts.slice(1).map((_, i) => released(i + 1)), delivered(last)]);
  expect(relay.handled.filter((handled) => handled === id)).toEqual([id]);
}

test('a claim whose response is lost is released and costs no try', async () => {
  const relay = await startRelay();
  const answer = relay.holdFullClaim();
  const [id = ''] = await relay.enqueue();

  (await answer).drop();
  await relay.waitUntilDelivered(id);

  expect(await relay.attempts(id)).toEqual([released(1), delivered(2)]);
  expect(relay.handled).toEqual([id]);
  expect(relay.count('leases_released')).toBe(1);
});

test('a claim that never reaches the server leaves no trace', async () => {
  const relay = await startRelay();
  const held = await relay.proxy.hold(isClaim);
  const [id = ''] = await relay.enqueue();

  held.drop();
  await relay.waitUntilDelivered(id);

  expect(await relay.attempts(id)).toEqual([delivered(1)]);
});

test('a settle whose response is lost is repeated and succeeds', async () => {
  const relay = await startRelay();
  const caught = relay.proxy.hold(isSettle);
  const [id = ''] = await relay.enqueue();

  const answer = await (await caught).forward();
  expect(answer.error).toBeNull();
  expect(await relay.attempts(id)).toEqual([delivered(1)]);
  expect(relay.count('settled')).toBe(0);
  answer.drop();
  await waitFor(() => relay.count('settled') > 0, { what: 'the settle to be repeated' });

  expect(await relay.attempts(id)).toEqual([delivered(1)]);
  expect(relay.handled).toEqual([id]);
  expect(relay.count('lease_lost')).toBe(0);
});

test('a settle that never reaches the server is repeated, and nothing is sent again', async () => {
  const relay = await startRelay();
  const caught = relay.proxy.hold(isSettle);
  const [id = ''] = await relay.enqueue();

  (await caught).drop();
  await relay.waitUntilDelivered(id);

  expect(await relay.attempts(id)).toEqual([delivered(1)]);
  expect(relay.handled).toEqual([id]);
});

test('a relay continues by itself after all its connections were cut', async () => {
  const relay = await startRelay();
  const [first = ''] = await relay.enqueue();
  await relay.waitUntilDelivered(first);

  relay.proxy.cut();
  const [second = ''] = await relay.enqueue();
  await relay.waitUntilDelivered(second);

  await expectOneDelivery(relay, second);
});

test('a relay continues by itself after its backends were killed during a claim and a settle', async () => {
  const relay = await startRelay();
  const terminate = async () =>
    db.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name LIKE 'waybill%'`,
    );
  const claim = relay.holdFullClaim();
  const [first = ''] = await relay.enqueue();
  await claim;
  await terminate();
  await relay.waitUntilDelivered(first);

  const settle = relay.proxy.hold(isSettle);
  const [second = ''] = await relay.enqueue();
  const held = await settle;
  await terminate();
  held.pass();
  await relay.waitUntilDelivered(second);

  expect((await relay.attempts(first)).at(-1)).toEqual(delivered(2));
  expect(await relay.attempts(second)).toEqual([delivered(1)]);
  expect(relay.handled).toEqual([first, second]);
});

test('silent connections are given up at the deadline, and new ones replace them', async () => {
  const relay = await startRelay({ relay: { leaseMs: 60_000, listen: false } });
  const [first = ''] = await relay.enqueue();
  await relay.waitUntilDelivered(first);

  relay.proxy.freeze('present');
  const frozenMs = performance.now();
  const [second = ''] = await relay.enqueue();
  await relay.waitUntilDelivered(second);

  // statement timeout 1 s, deadline 2 s above it, and time for a new connection on a busy machine; the lease is longer
  expect(performance.now() - frozenMs).toBeLessThan(30_000);
  await expectOneDelivery(relay, second);
});

test('a relay continues when its silent database answers again', async () => {
  const relay = await startRelay();
  relay.proxy.freeze('present and new');
  const [id = ''] = await relay.enqueue();
  await waitFor(() => relay.count('trouble') > 0, { what: 'the relay to notice the silence' });

  relay.proxy.thaw();
  await relay.waitUntilDelivered(id);

  expect((await relay.attempts(id)).filter(({ state }) => state === 'dispatched')).toHaveLength(1);
  expect(relay.handled).toEqual([id]);
});

test('a relay stops within its deadline although its database is silent (M12)', async () => {
  const relay = await startRelay({
    database: { statementTimeoutMs: 30_000, connectTimeoutMs: 10_000 },
    relay: { leaseMs: 60_000, stopDeadlineMs: 1000 },
  });
  const caught = relay.proxy.hold(isSettle);
  await relay.enqueue();
  await caught;

  relay.proxy.freeze('present and new');
  const startedMs = performance.now();
  await relay.relay.stop();

  // the deadline, and time on a busy machine; less than the timeouts of the database
  expect(performance.now() - startedMs).toBeLessThan(9000);
});
