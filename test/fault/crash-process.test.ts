// Relay processes that stop or die at the worst moment: a stopped one that comes back after another took over its
// lease, and a message that kills every relay that handles it.

import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';

import { createOutbox } from '../../src/producer/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';
import { Child } from './crash/child-process.js';
import { idsIn, isSettle } from './crash/faults.js';
import { RelaySlot } from './crash/relay-slot.js';
import { Sink } from './crash/sink.js';

const db = testDatabase();
const outbox = createOutbox();
const relayOptions = {
  leaseMs: 1000,
  reapMs: 100,
  batchSize: 50,
  stopDeadlineMs: 3000,
  fallbackPollMs: 100,
};
let directory: string;
const afterwards: (() => Promise<unknown>)[] = [];

beforeAll(() => {
  directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-crash-'));
});
afterEach(async () => {
  for (const step of afterwards.splice(0).toReversed()) await step();
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

type Row = {
  id: string;
  topic: string;
  claim_no: number;
  tries: number;
  state: string;
  error_code: string | null;
};

async function attempts(): Promise<Row[]> {
  const { rows } = await db.query<Row>(
    `SELECT a.message_id AS id, m.topic, a.claim_no, a.tries, a.state::text AS state, a.error_code
       FROM outbox.attempts a JOIN outbox.messages m ON m.id = a.message_id ORDER BY 1, 3`,
  );
  return rows;
}

test('a relay that is stopped beyond its lease and then continued changes nothing with its late settle', async () => {
  const sink = await Sink.start(directory);
  afterwards.push(() => sink.stop());
  const open = async (name: string) => {
    const slot = await RelaySlot.open(name, {
      databaseUrl: db.url,
      sinkUrl: sink.url,
      directory,
      relay: relayOptions,
      retry: { maxAttempts: 8, baseMs: 10, maxMs: 100 },
    });
    afterwards.push(() => slot.close());
    return slot;
  };
  const first = await open('first');
  const { id: firstId } = await first.current();
  const caught = first.proxy.hold(isSettle);
  const messages = Array.from({ length: 5 }, (_, n) => ({ topic: 'mail.sent', payload: { n } }));
  const ids = (await db.inTransaction((client) => outbox.enqueueMany(client, messages))).map(
    ({ id }) => id,
  );
  const held = await caught;
  // a lease that was delivered completely is among those of deliver_leases, any other is the first parameter of settle
  const [one, other] = held.request.parameters;
  const { rows: leases } = await db.query<{ late: string[] }>(
    'SELECT message_ids AS late FROM outbox.leases WHERE id = ANY ($1)',
    [[...idsIn(one), ...idsIn(other)]],
  );
  const late = leases.flatMap((lease) => lease.late);

  first.signal('SIGSTOP');
  const second = await open('second');
  await waitFor(
    async () => {
      const rows = await attempts();
      return ids.every((id) =>
        rows.some((row) => row.id === id && ['dispatched', 'failed'].includes(row.state)),
      );
    },
    { what: 'the second relay to take over' },
  );
  const before = await attempts();
  held.pass();
  first.signal('SIGCONT');
  const record = await first.current();
  await waitFor(() => record.lost > 0, { what: 'the first relay to learn that its lease is lost' });

  expect(await attempts()).toEqual(before);
  expect(late.length).toBeGreaterThan(0);
  for (const id of late)
    expect(before.find((row) => row.id === id && row.claim_no === 1)).toMatchObject({
      state: 'zombie_requeue',
      error_code: 'zombie',
    });
  const { rows } = await db.query('SELECT FROM outbox.leases WHERE relay_id = $1', [firstId]);
  expect(rows).toEqual([]);
  await Promise.all([first.stop(5000), second.stop(5000)]);
  expect([record.ending, (await second.current()).ending]).toEqual([
    { code: 0, signal: null },
    { code: 0, signal: null },
  ]);
}, 60_000);

test('a relay process whose database has fallen silent ends by itself within its deadline (M12)', async () => {
  const slot = await RelaySlot.open('silent', {
    databaseUrl: db.url,
    sinkUrl: 'http://127.0.0.1:9',
    directory,
    relay: { ...relayOptions, stopDeadlineMs: 1000 },
    retry: { maxAttempts: 8, baseMs: 10, maxMs: 100 },
  });
  afterwards.push(() => slot.close());
  const record = await slot.current();

  slot.proxy.freeze('present and new');
  await slot.stop(30_000);

  expect(record.ending, record.lastWords).toEqual({ code: 0, signal: null });
  expect(record.stopMs).toBeLessThan(15_000);
}, 60_000);

test('a message that kills its relay every time dies after its last try and costs each neighbour at most one try', async () => {
  const retry = { maxAttempts: 3, baseMs: 10, maxMs: 100 };
  const supervision = { starts: 0, over: false };
  let current: Child<{ started?: string }> | undefined;
  /** Restarts the relay whenever it dies, as a supervisor does. */
  const supervise = async () => {
    while (!supervision.over) {
      supervision.starts += 1;
      current = new Child(
        'poison-relay.mjs',
        { databaseUrl: db.url, relay: relayOptions, retry },
        path.join(directory, 'poison.err'),
        () => {},
      );
      await current.ended;
    }
  };
  const dishes = ['plain', 'plain', 'plain', 'poison', 'plain', 'plain', 'plain'];
  await db.query(`SELECT outbox.apply_definitions($1::jsonb)`, [
    JSON.stringify({
      destinations: [
        { name: 'kitchen', kind: 'handler', maxAttempts: 3, retryBaseMs: 10, retryMaxMs: 100 },
      ],
      routes: [{ topic: 'dish.*', to: 'kitchen' }],
    }),
  ]);
  await db.inTransaction((client) =>
    outbox.enqueueMany(
      client,
      dishes.map((kind) => ({ topic: `dish.${kind}`, payload: {} })),
    ),
  );

  const supervised = supervise();
  afterwards.push(async () => {
    supervision.over = true;
    await current?.kill();
    await supervised;
  });
  const dishAttempts = async () =>
    (await attempts()).filter(({ topic }) => topic.startsWith('dish.'));
  await waitFor(
    async () =>
      (await dishAttempts()).filter(({ state }) => ['dispatched', 'failed'].includes(state))
        .length === dishes.length,
    { what: 'every dish to be delivered or dead', timeoutMs: 60_000 },
  );

  const rows = await dishAttempts();
  const poison = rows.filter(({ topic }) => topic === 'dish.poison');
  expect(poison).toMatchObject([
    { claim_no: 1, tries: 1, state: 'zombie_requeue' },
    { claim_no: 2, tries: 2, state: 'zombie_requeue' },
    { claim_no: 3, tries: 3, state: 'failed', error_code: 'zombie' },
  ]);
  const plain = rows.filter(({ topic }) => topic === 'dish.plain');
  expect(plain.filter(({ state }) => state === 'dispatched')).toHaveLength(dishes.length - 1);
  expect(Math.max(...plain.map(({ tries }) => tries))).toBeLessThanOrEqual(2);
  expect(supervision.starts).toBeGreaterThanOrEqual(3);
}, 60_000);
