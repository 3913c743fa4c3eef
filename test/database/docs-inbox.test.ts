// Runs the example of the inbox as a reader would: the built command line delivers payments to a consumer whose
// accounts are in another database, and then delivers each of them again.

import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { expect, test } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { createOutbox } from '../../src/index.js';
import { cli, runNode } from '../support/cli.js';
import { testDatabase } from '../support/postgres.js';

const shop = testDatabase();
const bank = testDatabase();
const example = path.resolve('examples/first-steps/inbox.config.mjs');

test('M11 the example books each payment once, in its own database', async () => {
  const environment = { DATABASE_URL: shop.url, BANK_DATABASE_URL: bank.url };
  // the examples use the default schema, whatever the schema of this project is
  for (const { url } of [shop, bank]) await migrateUp({ url });
  await bank.query(`
    CREATE TABLE accounts (id text PRIMARY KEY, balance int NOT NULL);
    CREATE TABLE reports (payments int NOT NULL);
    INSERT INTO accounts VALUES ('ada', 0);
    INSERT INTO reports VALUES (0)`);
  const drain = () => cli(['drain', '--config', example, '--json'], { environment });
  // the first run defines the routes
  await drain();
  const payments = [10, 20, 30].map((amount) => ({
    topic: 'payment.received',
    payload: { accountId: 'ada', amount },
  }));
  const sent = await shop.inTransaction((client) => createOutbox().enqueueMany(client, payments));
  expect(await drain()).toMatchObject({ code: 0 });

  const messages = sent.map(({ id }, index) => ({ id, payload: payments[index]?.payload }));
  const again = `
    import { book, report } from ${JSON.stringify(pathToFileURL(example).href)};
    const messages = ${JSON.stringify(messages)};
    for (const message of messages) await book(message);
    await report(messages);`;
  const { code, stdout, stderr } = await runNode(['--input-type=module', '-e', again], {
    environment,
  }).ended();
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout).toBe(sent.map(({ id }) => `${id} was booked before\n`).join(''));
  const { rows } = await bank.query('SELECT balance, payments FROM accounts, reports');
  expect(rows).toEqual([{ balance: 60, payments: 3 }]);
});
