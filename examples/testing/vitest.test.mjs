// With Vitest: npx vitest run --root examples/testing

import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import { createTestKit } from 'waybill/testing';

import { configFor } from './config.mjs';
import { register } from './users.mjs';

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
const sendMail = vi.fn();
let waybill;

beforeAll(() => client.connect());
afterAll(() => client.end());

beforeEach(async () => {
  sendMail.mockReset();
  await client.query('BEGIN');
  waybill = await createTestKit(client, configFor({ db: client, sendMail }));
});
afterEach(() => client.query('ROLLBACK'));

test('a mail that fails is tried again after a minute, and after an hour', async () => {
  await register(client, 'ada@example.com');
  waybill.failNext('welcome', new Error('the mail server is down'), { times: 2 });
  expect(await waybill.deliverAll()).toMatchObject({ failed: 1 });
  await waybill.advance(60_000);
  expect(await waybill.deliverAll()).toMatchObject({ failed: 1 });
  await waybill.advance(3_600_000);
  expect(await waybill.deliverAll()).toMatchObject({ succeeded: 1 });
  expect(sendMail).toHaveBeenCalledTimes(1);
});

test('a mail that always fails becomes a dead letter', async () => {
  await register(client, 'ada@example.com');
  waybill.failNext('welcome', undefined, { times: 3 });
  await waybill.deliverAll({ skipDelays: true });
  expect(await waybill.deadLetters()).toMatchObject([
    { destination: 'welcome', reason: 'exhausted', tries: 3 },
  ]);
});

test('an address that cannot be right is not tried again', async () => {
  await register(client, 'ada');
  await waybill.deliverAll();
  const letters = await waybill.deadLetters({ code: 'bad_address' });
  expect(letters).toMatchObject([{ topic: 'user.registered', tries: 1 }]);
  expect(sendMail).not.toHaveBeenCalled();
});
