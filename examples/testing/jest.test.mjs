// With Jest, which needs a flag for modules: NODE_OPTIONS=--experimental-vm-modules npx jest jest.test.mjs

import { afterAll, afterEach, beforeAll, beforeEach, expect, jest, test } from '@jest/globals';
import pg from 'pg';
import { createTestKit } from 'waybill/testing';

import { configFor } from './config.mjs';
import { register } from './users.mjs';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const sendMail = jest.fn();
let waybill;

// the application commits, so the tests have a database of their own
beforeAll(async () => {
  const config = configFor({ db: pool, sendMail });
  waybill = await createTestKit(pool, config, { ownDatabase: true });
});
beforeEach(() => waybill.reset());
afterEach(() => pool.query('DELETE FROM users'));
afterAll(() => pool.end());

async function registerAndCommit(email) {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    await register(client, email);
    await client.query('COMMIT');
  } finally {
    client.release();
  }
}

test('each registration is told once', async () => {
  await registerAndCommit('ada@example.com');
  await registerAndCommit('eve@example.com');
  const payload = { userId: expect.any(Number), email: expect.stringMatching(/@example.com$/) };
  await waybill.enqueued({ topic: 'user.registered', payload }, { count: 2 });
  expect(await waybill.deliverAll()).toMatchObject({ succeeded: 4, waiting: 2 });
  expect(waybill.recorded('crm')).toHaveLength(2);
});

test('an error of a handler fails the test, unless it is expected', async () => {
  sendMail.mockRejectedValueOnce(new Error('the mail server is down'));
  await registerAndCommit('ada@example.com');
  await expect(waybill.deliverAll()).rejects.toThrow('the mail server is down');
  await waybill.deliverAll({ skipDelays: true });
  expect(sendMail).toHaveBeenCalledWith('ada@example.com', 'user.registered');
});
