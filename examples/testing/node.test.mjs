// With the runner of Node: node --test examples/testing/node.test.mjs

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';

import pg from 'pg';
import { createTestKit } from 'waybill/testing';

import { configFor } from './config.mjs';
import { register } from './users.mjs';

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
let mails;
let waybill;

before(() => client.connect());
after(() => client.end());

beforeEach(async () => {
  mails = [];
  await client.query('BEGIN');
  const sendMail = (email, subject) => mails.push(`${subject} to ${email}`);
  waybill = await createTestKit(client, configFor({ db: client, sendMail }));
});
afterEach(() => client.query('ROLLBACK'));

test('a registration says so', async () => {
  await register(client, 'ada@example.com');
  await waybill.enqueued({ topic: 'user.registered', payload: { email: 'ada@example.com' } });
  await waybill.notEnqueued({ topic: 'user.deleted' });
});

test('the user gets a mail at once, and another one a day later', async () => {
  const id = await register(client, 'ada@example.com');
  await waybill.deliverAll();
  assert.deepEqual(mails, ['user.registered to ada@example.com']);
  await waybill.advance(86_400_000);
  await waybill.deliverAll();
  assert.deepEqual(mails.slice(1), ['user.reminded to ada@example.com']);
  const { rows } = await client.query('SELECT mails FROM users WHERE id = $1', [id]);
  assert.deepEqual(rows, [{ mails: 2 }]);
});

test('the CRM would be told', async () => {
  await register(client, 'ada@example.com');
  await waybill.deliverAll();
  const [sent] = waybill.recorded('crm');
  assert.equal(sent.payload.email, 'ada@example.com');
});
