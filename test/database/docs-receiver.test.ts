// Runs the example of a receiver with an inbox: an event that arrives twice is booked once.

import { randomBytes } from 'node:crypto';

import { Webhook } from 'standardwebhooks';
import { expect, onTestFinished, test } from 'vitest';

import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

test('M11 the example books an event once', async () => {
  const secret = `whsec_${randomBytes(32).toString('base64')}`;
  process.env['DATABASE_URL'] = db.url;
  process.env['WEBHOOK_SECRET'] = secret;
  await db.query('CREATE TABLE accounts (id text PRIMARY KEY, balance int NOT NULL)');
  await db.query("INSERT INTO accounts VALUES ('ada', 0)");
  const { POST, close } = await import('../../examples/receivers/inbox.js');
  onTestFinished(close);
  const [id, at, body] = ['evt_1', new Date(), '{"accountId": "ada", "amount": 10}'];
  const request = () =>
    new Request('http://127.0.0.1/', {
      method: 'POST',
      body,
      headers: {
        'webhook-id': id,
        'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
        'webhook-signature': new Webhook(secret).sign(id, at, body),
      },
    });
  expect([(await POST(request())).status, (await POST(request())).status]).toEqual([204, 204]);
  const { rows } = await db.query('SELECT balance FROM accounts');
  expect(rows).toEqual([{ balance: 10 }]);
});
