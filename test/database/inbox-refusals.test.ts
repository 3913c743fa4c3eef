// What the inbox refuses, in TypeScript and in SQL, and who may call it. Nothing is recorded, and the error names the
// field, its value and the remedy.

import { randomUUID } from 'node:crypto';

import pg from 'pg';
import { describe, expect, it } from 'vitest';

import { createInbox, NoTransactionError } from '../../src/index.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
const inbox = createInbox({ schema: db.schema });

describe('refusals', () => {
  it('M11 a pool, a client outside a transaction and an unknown object are refused, and nothing is recorded', async () => {
    const received = { consumer: 'billing', messageId: randomUUID() };
    const client = await db.connect();
    const work = () => {
      throw new Error('the work was done');
    };
    for (const handle of [db.pool, client, {} as pg.Client]) {
      await expect(inbox.process(handle, received, work)).rejects.toThrow(NoTransactionError);
      await expect(
        inbox.processMany(handle, { consumer: 'billing' }, [], work),
      ).rejects.toMatchObject({ code: 'no_transaction' });
    }
    await expect(inbox.process(client, received, work)).rejects.toThrow(/inbox .* Run BEGIN/);
    expect(
      await db.inTransaction((begun) => inbox.process(begun, received, () => {})),
    ).toMatchObject({ processed: true });
  });

  it('M11 a refusal leaves the transaction usable', async () => {
    await db.inTransaction(async (client) => {
      const unnamed = { consumer: '', messageId: randomUUID() };
      await expect(inbox.process(client, unnamed, () => {})).rejects.toMatchObject({
        code: 'message_refused',
        field: 'consumer',
      });
      await client.query('SELECT 1');
    });
  });

  it.each([
    [/messageId is missing/, {}],
    [/messageId .* and dedupeKey "a" exclude/, { messageId: randomUUID(), dedupeKey: 'a' }],
    [/dedupeKey "" must have 1 to 1024/, { dedupeKey: '' }],
    [/dedupeKey "x+" must have 1 to 1024/, { dedupeKey: 'x'.repeat(1025) }],
    [/namespace "" must/, { dedupeKey: 'a', namespace: '' }],
    [/tenantId "" must/, { dedupeKey: 'a', tenantId: '' }],
    [/key "" must/, { dedupeKey: 'a', key: '' }],
    [/sequence 1 needs a key/, { dedupeKey: 'a', sequence: 1 }],
    [/sequence 0 must be 1 or more/, { dedupeKey: 'a', key: 'k', sequence: 0 }],
    [/previousSequence 1 needs a sequence/, { dedupeKey: 'a', key: 'k', previousSequence: 1 }],
    [
      /previousSequence 5 must be from 0 to below/,
      { dedupeKey: 'a', key: 'k', sequence: 5, previousSequence: 5 },
    ],
    [/previousSequence -1 must/, { dedupeKey: 'a', key: 'k', sequence: 5, previousSequence: -1 }],
    [
      /dedupekey is not a field of a received message: use messageId/,
      { dedupeKey: 'a', dedupekey: 'b' },
    ],
    [/messages\[1\] null is not an object: give \{"messageId"/, null],
    [/messages\[1\] \["a"\] is not an object/, ['a']],
    [/messages\[1\] 5 is not an object/, 5],
    [/messageId "order-1" is not a UUID: give .* or a dedupeKey/, { messageId: 'order-1' }],
    [
      /sequence "two" is not a whole number: give the one that came/,
      { dedupeKey: 'a', key: 'k', sequence: 'two' },
    ],
    [
      /previousSequence 1.5 is not a whole number/,
      { dedupeKey: 'a', key: 'k', sequence: 2, previousSequence: 1.5 },
    ],
    [/sequence 10+ is not a whole number/, { dedupeKey: 'a', key: 'k', sequence: 1e30 }],
  ])('M11 SQL refuses: %s', async (problem, message) => {
    const begun = db.query(`SELECT * FROM ${db.quoted}.inbox_begin_many('sql', $1)`, [
      JSON.stringify([{ dedupeKey: 'good' }, message]),
    ]);
    await expect(begun).rejects.toMatchObject({
      code: '22023',
      message: expect.stringMatching(problem) as unknown,
      hint: 'Nothing was recorded.',
    });
    const { rows } = await db.query(`SELECT FROM ${db.quoted}.inbox WHERE consumer = 'sql'`);
    expect(rows).toEqual([]);
  });

  it.each([
    ["''", /consumer "" must have 1 to 255/],
    ['NULL', /consumer null must .*: name who processes the messages/],
    [`repeat('x', 256)`, /consumer "x+" must/],
  ])('M11 SQL refuses the consumer %s', async (consumer, problem) => {
    await expect(
      db.query(`SELECT * FROM ${db.quoted}.inbox_begin(${consumer}, dedupe_key => 'a')`),
    ).rejects.toThrow(problem);
  });

  it('M11 SQL refuses anything but a list', async () => {
    for (const messages of ['{}', '"a"', 'null', null])
      await expect(
        db.query(`SELECT * FROM ${db.quoted}.inbox_begin_many('sql', $1)`, [messages]),
      ).rejects.toThrow(`messages ${messages ?? 'null'} is not a list: give a JSON array such as`);
  });
});

describe('in SQL', () => {
  it('M11 a consumer with only the right to call it can use it', async () => {
    const role = `consumer_${randomUUID().slice(0, 8)}`;
    const { rows: functions } = await db.query<{ signature: string }>(
      `SELECT p.oid::regprocedure::text AS signature FROM pg_proc p
        WHERE p.pronamespace = $1::text::regnamespace AND p.proname = 'inbox_begin'`,
      [db.quoted],
    );
    await db.query(`CREATE ROLE ${role} LOGIN; GRANT USAGE ON SCHEMA ${db.quoted} TO ${role};
      GRANT EXECUTE ON FUNCTION ${only(functions).signature} TO ${role}`);
    const url = new URL(db.url);
    url.username = role;
    const client = new pg.Client({ connectionString: url.href });
    await client.connect();
    try {
      const begin = async () => {
        const { rows } = await client.query<{ is_new: boolean }>(
          `SELECT is_new FROM ${db.quoted}.inbox_begin('sql', dedupe_key => 'granted')`,
        );
        return only(rows).is_new;
      };
      expect([await begin(), await begin()]).toEqual([true, false]);
      await expect(client.query(`SELECT FROM ${db.quoted}.inbox`)).rejects.toMatchObject({
        code: '42501',
      });
    } finally {
      await client.end();
      await db.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    }
  });

  it('M11 a message that is forgotten while it is compared is a serialization failure', async () => {
    const client = await db.connect();
    const begin = () =>
      client.query(`SELECT is_new FROM ${db.quoted}.inbox_begin('pruned', dedupe_key => 'old')`);
    await begin();
    await client.query(`
      CREATE FUNCTION pg_temp.prune() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN DELETE FROM ${db.quoted}.inbox WHERE consumer = 'pruned'; RETURN NULL; END $$;
      BEGIN;
      CREATE TRIGGER prune AFTER INSERT ON ${db.quoted}.inbox EXECUTE FUNCTION pg_temp.prune()`);
    await expect(begin()).rejects.toMatchObject({ code: '40001' });
    await client.query('ROLLBACK');
  });
});
