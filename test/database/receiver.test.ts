// A receiver with an inbox: each event is processed once, in the transaction of the handler, however often it arrives.

import { randomBytes, randomUUID } from 'node:crypto';

import type pg from 'pg';
import { Webhook } from 'standardwebhooks';
import { expect, it } from 'vitest';

import { createReceiver } from '../../src/receiver/index.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
const secret = `whsec_${randomBytes(32).toString('base64')}`;

function request(id: string): Request {
  const [at, body] = [new Date(), '{"amount":10}'];
  const signature = new Webhook(secret).sign(id, at, body);
  const timestamp = String(Math.floor(at.getTime() / 1000));
  return new Request('http://127.0.0.1/', {
    method: 'POST',
    body,
    headers: {
      'webhook-id': id,
      'webhook-timestamp': timestamp,
      'webhook-signature': signature,
    },
  });
}

const inTransaction = <Value>(work: (tx: pg.PoolClient) => Promise<Value>) =>
  db.inTransaction(work);

it.each([
  ['a UUID, as Waybill sends', randomUUID()],
  ['any other text', 'evt_17'],
])('processes an event once whose id is %s', async (_what, id) => {
  const table = `bookings_${randomBytes(4).toString('hex')}`;
  await db.query(`CREATE TABLE ${table} (amount int)`);
  let failures = 1;
  const receive = createReceiver<pg.PoolClient>({
    secrets: secret,
    onError: () => {},
    inbox: { consumer: table, inTransaction, schema: db.schema },
  }).toFetch(async (event, tx) => {
    const { amount } = event.payload as { amount: number };
    await tx.query(`INSERT INTO ${table} VALUES ($1)`, [amount]);
    failures -= 1;
    if (failures === 0) throw new Error('after the insert');
  });
  const statuses: number[] = [];
  for (let n = 0; n < 3; n += 1) statuses.push((await receive(request(id))).status);
  const together = await Promise.all([receive(request(id)), receive(request(id))]);
  expect([...statuses, ...together.map(({ status }) => status)]).toEqual([500, 204, 204, 204, 204]);
  const { rows } = await db.query(`SELECT amount FROM ${table}`);
  expect(rows).toEqual([{ amount: 10 }]);
});

it('answers 500 if the handler has caught an error that failed its transaction', async () => {
  const receive = createReceiver<pg.PoolClient>({
    secrets: secret,
    onError: () => {},
    inbox: { consumer: 'careless', inTransaction, schema: db.schema },
  }).toFetch((_event, tx) => tx.query('SELECT 1/0').catch(() => {}));
  expect((await receive(request('evt_18'))).status).toBe(500);
});
