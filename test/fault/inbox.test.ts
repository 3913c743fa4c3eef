// Relays are killed while they deliver payments to a consumer that books them in its own database, so payments arrive
// twice. With the inbox the balance is exact; without it, it is wrong.

import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';

import { createOutbox } from '../../src/producer/outbox.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';
import { Child } from './crash/child-process.js';

type Said = { started?: string; hanging?: number };
type Books = { balance: number; arrivals: number; messages: number; arrived: number };

const shop = testDatabase();
const bank = testDatabase();
const payments = Array.from({ length: 120 }, (_, index) => ({
  topic: 'payment.received',
  payload: { amount: index + 1 },
}));
const total = payments.reduce((sum, { payload }) => sum + payload.amount, 0);
const kills = 3;
const running = new Set<Child<Said>>();
let directory: string;

beforeAll(() => {
  directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-inbox-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

beforeEach(async () => {
  await bank.query(`
    DROP TABLE IF EXISTS accounts, arrivals;
    CREATE TABLE accounts (balance int NOT NULL);
    CREATE TABLE arrivals (message_id uuid NOT NULL, amount int NOT NULL);
    INSERT INTO accounts VALUES (0)`);
});
afterEach(async () => {
  await Promise.all([...running].map((child) => child.kill()));
  running.clear();
});

function startRelay(withInbox: boolean, hangAfter: number | null) {
  const said: Said = {};
  const child = new Child<Said>(
    'bank-relay.mjs',
    {
      shopUrl: shop.url,
      bankUrl: bank.url,
      withInbox,
      hangAfter,
      relay: { leaseMs: 1000, reapMs: 100, fallbackPollMs: 100 },
    },
    path.join(directory, 'relay.err'),
    (words) => void Object.assign(said, words),
  );
  running.add(child);
  const until = (word: keyof Said) =>
    waitFor(
      () => {
        if (child.hasEnded) throw new Error(`the relay ended:\n${child.lastWords()}`);
        return said[word];
      },
      { what: `a relay to say ${word}`, timeoutMs: 60_000 },
    );
  return { child, until };
}

/** Sends all payments, kills relays meanwhile, and waits until the last relay has delivered everything. */
async function killAndDeliver(withInbox: boolean): Promise<Books> {
  const first = startRelay(withInbox, 10);
  await first.until('started');
  await shop.inTransaction((client) => createOutbox().enqueueMany(client, payments));
  for (let n = 0, relay = first; n < kills; n += 1) {
    if (n > 0) relay = startRelay(withInbox, 10);
    await relay.until('hanging');
    await relay.child.kill();
    running.delete(relay.child);
  }
  await startRelay(withInbox, null).until('started');
  await waitFor(
    async () => {
      const { rows } = await shop.query<{ left: number }>(
        `SELECT ((SELECT count(*) FROM outbox.deliveries) + (SELECT count(*) FROM outbox.leases))::int AS left`,
      );
      return only(rows).left === 0;
    },
    { what: 'everything to be delivered', timeoutMs: 60_000 },
  );
  const { rows: dead } = await shop.query('SELECT error_code FROM outbox.dead_letters');
  expect(dead).toEqual([]);
  const { rows } = await bank.query<Books>(
    `SELECT balance, count(*)::int AS arrivals, count(DISTINCT message_id)::int AS messages, sum(amount)::int AS arrived
       FROM accounts, arrivals GROUP BY balance`,
  );
  return only(rows);
}

test('M11 with the inbox the balance is exact, although relays are killed and payments arrive twice', async () => {
  const { balance, arrivals, messages } = await killAndDeliver(true);
  expect(messages).toBe(payments.length);
  expect(arrivals - messages, 'duplicates').toBeGreaterThanOrEqual(kills);
  expect(balance).toBe(total);
}, 120_000);

test('M11 without the inbox the same kills make the balance wrong', async () => {
  const { balance, arrivals, messages, arrived } = await killAndDeliver(false);
  expect(arrivals - messages, 'duplicates').toBeGreaterThanOrEqual(kills);
  expect(balance).toBe(arrived);
  expect(balance).toBeGreaterThan(total);
}, 120_000);
