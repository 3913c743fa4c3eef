// The detail of one destination beside many dead letters of others: what it reads does not depend on them.

import { expect, it } from 'vitest';

import { readDestination } from '../../src/listing/destination-detail.js';
import { makeQueue } from '../support/outbox.js';
import { pagesOf } from '../support/pages.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

it('W5 a destination without dead letters is read by index beside many dead letters of others', async () => {
  const none = await makeQueue(db);
  const others = [await makeQueue(db), await makeQueue(db), await makeQueue(db)];
  // in the order of their deaths, as relays write them: that makes the index by age look cheap
  await db.query(
    `INSERT INTO ${db.quoted}.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason)
     SELECT ${db.quoted}.new_id(), ($1::int[])[1 + n % 3], now() - (60000 - n) * interval '1 second', 1, 1, 'rejected'
       FROM generate_series(1, 60000) n`,
    [others.map(({ id }) => id)],
  );
  await db.query(`ANALYZE ${db.quoted}.dead_letters`);
  const { answer, pages } = await pagesOf(db, (database) => readDestination(database, none.name));
  expect(answer).toMatchObject({ name: none.name, dead: 0, lastError: null });
  expect(pages).toBeLessThan(1000);
});
