// One failure does not affect the rest: a lease that cannot be ended, a very long code, a retention of null, a move
// there and back, and unusual database defaults.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { resolveDatabaseOptions } from '../../src/database/connection.js';
import { connectDirectly } from '../../src/database/direct-connection.js';
import { resolveRetention } from '../../src/relay/upkeep/retention.js';
import { handler } from '../../src/destinations/handler.js';
import { reject } from '../../src/core/outcome.js';
import { defineDestination } from '../support/destinations.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { deadLettersOf, send, startRelay, untilPlaces } from '../support/relay.js';
import { expire, reap, settle } from '../support/settling.js';

const db = testDatabase();

describe('the reaper', () => {
  it('P12 M7 frees the other leases when one lease cannot be ended', async () => {
    const [broken, sound] = await Promise.all([makeQueue(db), makeQueue(db)]);
    await broken.enqueueOne();
    const bad = await broken.claimOne();
    await sound.enqueue(3);
    const good = await sound.claim();
    // a message of a day for which nothing can be recorded
    await db.query(
      `UPDATE ${db.quoted}.leases SET message_ids = ARRAY[${db.quoted}.id_at('2001-01-01')] WHERE id = $1`,
      [bad.leaseId],
    );
    await expire(db, bad);
    await expire(db, good);
    expect(await reap(db)).toBe(3);
    const { rows } = await db.query(`SELECT * FROM ${db.quoted}.claim($1, $2)`, [
      broken.name,
      randomUUID(),
    ]);
    expect(rows).toEqual([]);
    await db.query(`DELETE FROM ${db.quoted}.leases WHERE id = $1`, [bad.leaseId]);
  });
});

it('P4 a very long code is shortened, and its neighbours are recorded as delivered', async () => {
  await startRelay(db, {
    destinations: {
      wordy: handler((message) =>
        message.payload === 'bad'
          ? reject({ code: 'ж'.repeat(2000), remoteCode: 'ж'.repeat(2000) })
          : undefined,
      ),
    },
  });
  await send(db, [{ topic: 'wordy' }, { topic: 'wordy', payload: 'bad' }, { topic: 'wordy' }]);
  await untilPlaces(db, 'wordy', { delivered: 2, dead: 1, leased: 0 });
  expect(only(await deadLettersOf(db, 'wordy'))).toMatchObject({ error_code: 'ж'.repeat(100) });
});

it('N5 C9 a retention of null keeps dead letters for ever', async () => {
  const queue = await makeQueue(db);
  const id = await queue.enqueueOne();
  await queue.kill(id);
  const { rows } = await db.query(`SELECT ${db.quoted}.prune_dead_letters(NULL) AS pruned`);
  expect(rows).toEqual([{ pruned: 0 }]);
  expect(await queue.status(id)).toMatchObject({ status: 'dead' });
});

it('P4 C9 attempts are never kept for a shorter time than messages', () => {
  expect(() => resolveRetention({ messagesDays: 30, attemptsDays: 1 })).toThrow(
    /retention.attemptsDays is 1: give at least retention.messagesDays \(30\)/,
  );
  expect(() => resolveRetention({ messagesDays: null, attemptsDays: 30 })).toThrow(/for ever/);
  expect(resolveRetention({ messagesDays: null })).toMatchObject({ attemptsDays: null });
  expect(resolveRetention({ messagesDays: 90 })).toMatchObject({ attemptsDays: 90 });
  expect(resolveRetention({ messagesDays: null, attemptsDays: null })).toMatchObject({
    attemptsDays: null,
  });
});

it('P4 C9 the attempts of a day stay as long as its messages, whatever their own retention says', async () => {
  await db.query(`SELECT ${db.quoted}.make_partitions(p_from => current_date - 20)`);
  for (const messagesFor of ['100 days', null]) {
    const { rows } = await db.query(
      `SELECT DISTINCT in_use, statement FROM ${db.quoted}.expired_partitions($1, '7 days') WHERE partition LIKE 'attempts%'`,
      [messagesFor],
    );
    expect(rows).toEqual([{ in_use: 'messages of that day are kept', statement: null }]);
  }
});

it('M5 a delivery that is moved away and back is still pending, and its claim numbers continue', async () => {
  const queue = await makeQueue(db);
  await defineDestination(db, 'elsewhere');
  const id = await queue.enqueueOne();
  await settle(db, await queue.claimOne(), [{ id, outcome: 'retry', retryAfterMs: 0 }]);
  const move = (from: string, to: string) =>
    db.query(`SELECT ${db.quoted}.move_deliveries($1, $2)`, [from, to]);
  await move(queue.name, 'elsewhere');
  await move('elsewhere', queue.name);
  expect(await queue.status(id)).toMatchObject({ status: 'pending', tries: 0, claim_no: 2 });
  expect((await queue.claimOne()).rows).toMatchObject([{ claim_no: 3 }]);
  expect(await queue.status(id)).toMatchObject({ status: 'processing' });
});

it('M5 a delivery that is moved away and back beside a batch in flight is pending again', async () => {
  const [here, elsewhere] = await Promise.all([makeQueue(db), makeQueue(db)]);
  const [failed = '', slow = ''] = await here.enqueue(2);
  const claim = await here.claim();
  expect(claim.ids).toEqual([failed, slow]);
  await settle(db, claim, [{ id: failed, outcome: 'retry', retryAfterMs: 0 }]);
  for (const [from, to] of [
    [here, elsewhere],
    [elsewhere, here],
  ])
    await db.query(`SELECT ${db.quoted}.move_deliveries($1, $2)`, [from?.name, to?.name]);
  expect(await here.claimOne()).toMatchObject({ id: failed, row: { claim_no: 3 } });
});

it('M6 unusual defaults of the database change nothing for the relay', async () => {
  const name = new URL(db.url).pathname.slice(1);
  await db.query(`ALTER DATABASE ${name} SET default_transaction_isolation = 'serializable'`);
  await db.query(`ALTER DATABASE ${name} SET datestyle = 'SQL, DMY'`);
  const created: Date[] = [];
  await startRelay(db, {
    destinations: { strange: handler((message) => void created.push(message.createdAt)) },
  });
  await send(db, [{ topic: 'strange' }]);
  await untilPlaces(db, 'strange', { delivered: 1, waiting: 0, leased: 0 });
  expect(Math.abs(Date.now() - (created[0]?.getTime() ?? 0))).toBeLessThan(60_000);
  const client = await connectDirectly(resolveDatabaseOptions({ url: db.url }));
  const { rows } = await client.query('SHOW default_transaction_isolation');
  expect(rows).toEqual([{ default_transaction_isolation: 'read committed' }]);
  await client.end();
});
