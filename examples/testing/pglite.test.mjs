// On PGlite, PostgreSQL in the process of the test: node --test examples/testing/pglite.test.mjs

import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';

import { PGlite } from '@electric-sql/pglite';
import { createTestKit, migrationSql } from 'waybill/testing';

import { configFor } from './config.mjs';
import { register } from './users.mjs';

const mails = [];
let db;
let waybill;

before(async () => {
  db = await PGlite.create();
  await db.exec(migrationSql('outbox'));
  await db.exec(`CREATE TABLE users
    (id serial PRIMARY KEY, email text NOT NULL UNIQUE, mails int NOT NULL DEFAULT 0)`);
});
after(() => db.close());

beforeEach(async () => {
  mails.length = 0;
  await db.query('BEGIN');
  const sendMail = (email) => mails.push(email);
  waybill = await createTestKit(db, configFor({ db, sendMail }));
});
afterEach(() => db.query('ROLLBACK'));

test('messages of a key, retries and delays work as on a server', async () => {
  await register(db, 'ada@example.com');
  await waybill.enqueued({ topic: 'user.registered', sequence: '1' });
  waybill.failNext('welcome', new Error('the mail server is down'), { times: 2 });
  await waybill.deliverAll({ skipDelays: true });
  assert.deepEqual(mails, ['ada@example.com', 'ada@example.com']);
});

test('a rollback leaves nothing behind', async () => {
  const { rows } = await db.query('SELECT count(*)::int AS messages FROM outbox.messages');
  assert.deepEqual(rows, [{ messages: 0 }]);
  assert.deepEqual(await waybill.messages(), []);
});

test('a mail that always fails becomes a dead letter', async () => {
  await register(db, 'ada@example.com');
  waybill.failNext('welcome', undefined, { times: 3 });
  await waybill.deliverAll({ skipDelays: true });
  const letters = await waybill.deadLetters();
  assert.deepEqual(
    letters.map(({ destination, tries }) => [destination, tries]),
    [['welcome', 3]],
  );
});
