// What a replay refuses, with the field, its value and the remedy; and how it reports messages that retention has
// removed. A day from which a step has just replayed a message is not removed meanwhile.

import { describe, expect, it, onTestFinished } from 'vitest';

import { defineDestination } from '../support/destinations.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { planReplay, startReplay, step } from '../support/replays.js';
import { oldMessage, partitionDays, pruneNow } from '../support/retention.js';

const db = testDatabase();

describe('a replay is refused', () => {
  it.each([
    ['an unknown destination', 'nowhere', {}, 'destination "nowhere" does not exist'],
    [
      'an end before the start',
      'known',
      { since: '2026-01-02T00:00:00Z', until: '2026-01-01T00:00:00Z' },
      'since is 2026-01-02 00:00:00+00, and until is 2026-01-01 00:00:00+00: give an earlier since',
    ],
    [
      'a rate of zero',
      'known',
      { per_second: 0 },
      'per_second is 0: give a whole number from 1 to 1000000',
    ],
    [
      'an empty list of ids',
      'known',
      { ids: [] },
      'ids is empty: give at least one id, or another filter',
    ],
    ['a destination that reads with a cursor', 'reader', {}, 'which reads the log with a cursor'],
    ['one that left the configuration', 'gone', {}, 'is in no configuration file any more'],
  ])('to begin with %s', async (_what, destination, fields, message) => {
    await defineDestination(db, 'known');
    await defineDestination(db, 'gone');
    await db.query(`UPDATE ${db.quoted}.destinations SET configured = false WHERE name = 'gone'`);
    await defineDestination(db, 'reader');
    await db.query(`SELECT ${db.quoted}.define_cursor('reader')`);
    // a cursor without a reader keeps every day
    onTestFinished(async () => void (await db.query(`DELETE FROM ${db.quoted}.cursors`)));
    await expect(startReplay(db, destination, fields)).rejects.toThrow(message);
  });

  it('M5 an endpoint gets no message of another tenant, and a removed one gets nothing', async () => {
    const id = await defineDestination(db, 'endpoint-1');
    await db.query(
      `INSERT INTO ${db.quoted}.endpoints (destination_id, url, topics, tenant_id, secrets)
       VALUES ($1, 'https://example.org', '{*}', 'acme', '[]')`,
      [id],
    );
    await expect(startReplay(db, 'endpoint-1')).rejects.toThrow(
      'tenant_id is null, and endpoint-1 is an endpoint of the tenant acme: give that tenant',
    );
    await expect(startReplay(db, 'endpoint-1', { tenant_id: 'other' })).rejects.toThrow(
      'tenant_id is other, and endpoint-1 is an endpoint of the tenant acme',
    );
    await startReplay(db, 'endpoint-1', { tenant_id: 'acme' });
    await db.query(
      `UPDATE ${db.quoted}.endpoints SET removed_at = now() WHERE destination_id = $1`,
      [id],
    );
    await expect(startReplay(db, 'endpoint-1', { tenant_id: 'acme' })).rejects.toThrow(
      'was removed',
    );
  });

  it('an unknown replay is not found', async () => {
    for (const call of ['replay_step(0)', 'resume_replay(0)', 'cancel_replay(0)'])
      await expect(db.query(`SELECT ${db.quoted}.${call}`)).rejects.toMatchObject({
        code: 'P0002',
        message: 'replay "0" does not exist',
      });
  });
});

describe('retention', () => {
  async function delivered(daysAgo: number, destinationId: number): Promise<string> {
    const id = await oldMessage(db, daysAgo);
    await db.query(
      `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
       VALUES ($1, $2, 1, 1, 'dispatched', now())`,
      [id, destinationId],
    );
    return id;
  }

  it('M5 keeps a day from which a running step replays a message', async () => {
    const queue = await makeQueue(db);
    const id = await delivered(12, queue.id);
    const { replay_id: replay } = await startReplay(db, queue.name, { ids: [id] });
    const client = await db.connect();
    await client.query('BEGIN');
    expect(await step(db, replay, 10, client)).toMatchObject({ replayed: 1 });
    await pruneNow(db, { messagesDays: 7 });
    expect(await partitionDays(db, 'messages')).toContain(12);
    await client.query('COMMIT');
    const claim = await queue.claimOne();
    expect(claim.row).toMatchObject({ message_id: id, topic: 'old' });
  });

  it('M5 removed messages cannot be replayed, and the plan says so', async () => {
    const queue = await makeQueue(db);
    const expired = await delivered(20, queue.id);
    const kept = await delivered(3, queue.id);
    expect(await planReplay(db, queue.name, { ids: [expired, kept] })).toMatchObject({
      messages: '2',
      expired: 0,
      kept_since: null,
    });
    await pruneNow(db, { messagesDays: 7 });
    expect(await planReplay(db, queue.name, { ids: [expired, kept] })).toMatchObject({
      messages: '1',
      expired: 1,
    });
    const { rows } = await db.query<{ day: Date }>(
      `SELECT min(day)::timestamp AT TIME ZONE 'UTC' AS day FROM ${db.quoted}.partition_bounds($1::regclass)`,
      [`${db.quoted}.messages`],
    );
    const { day } = only(rows);
    const since = (at: Date) => ({ since: at.toISOString() });
    expect(await planReplay(db, queue.name)).toMatchObject({ messages: '1', kept_since: day });
    expect(await planReplay(db, queue.name, since(day))).toMatchObject({ kept_since: null });
    expect(await planReplay(db, queue.name, since(new Date(day.getTime() - 1)))).toMatchObject({
      kept_since: day,
    });
  });
});
