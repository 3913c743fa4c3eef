// Drizzle: the application opens its own transaction, which becomes a savepoint in that of the test.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';

import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import pg from 'pg';
import { defineConfig, handler } from 'waybill';
import { createOutbox } from 'waybill/producer';
import { createTestKit } from 'waybill/testing';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 2 });
after(() => pool.end());

const outbox = createOutbox();

/** The tested code: it gets the database handle, so a test can pass its transaction. */
async function register(db, email) {
  await db.transaction(async (tx) => {
    await tx.execute(sql`INSERT INTO users (email) VALUES (${email})`);
    await outbox.enqueue(tx, { topic: 'user.registered', payload: { email } });
  });
}

async function rolledBack(run) {
  const undo = new Error('undo');
  const work = drizzle(pool).transaction(async (tx) => {
    await run(tx);
    throw undo;
  });
  await assert.rejects(work, undo);
}

test('a new user gets a mail', async () => {
  await rolledBack(async (tx) => {
    const mails = [];
    const config = defineConfig({
      destinations: { welcome: handler(({ payload }) => void mails.push(payload.email)) },
      routes: [{ topic: 'user.*', to: 'welcome' }],
    });
    const waybill = await createTestKit(tx, config);
    await register(tx, 'ada@example.com');
    await waybill.deliverAll();
    assert.deepEqual(mails, ['ada@example.com']);
  });
});
