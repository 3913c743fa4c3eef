// Every connection of Waybill has the session limits, hostile names and values are only data, and the outcome and its
// code decide whether a failure is final, never its text.

import { describe, expect, it } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { connectDirectly } from '../../src/database/direct-connection.js';
import { handler } from '../../src/destinations/handler.js';
import { reject, retry } from '../../src/core/outcome.js';
import { createOutbox } from '../../src/producer/outbox.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { deadLettersOf, send, startRelay, untilPlaces } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

const showLimits = `SELECT current_setting('statement_timeout') AS statement, current_setting('lock_timeout') AS lock,
  current_setting('idle_in_transaction_session_timeout') AS idle`;

describe('session limits', () => {
  it.each([
    { given: {}, shown: { statement: '30s', lock: '10s', idle: '1min' } },
    {
      given: { statementTimeoutMs: 5000, lockTimeoutMs: 700, idleInTransactionTimeoutMs: 9000 },
      shown: { statement: '5s', lock: '700ms', idle: '9s' },
    },
  ])('N10 every connection has the configured limits: $shown', async ({ given, shown }) => {
    const options = resolveDatabaseOptions({ url: db.url, schema: db.schema, ...given });
    const database = new Database(options, { connections: 1, applicationName: 'test' });
    expect(await database.query('show', showLimits)).toEqual([shown]);
    await database.close();
    const client = await connectDirectly(options);
    const { rows } = await client.query(showLimits);
    expect(rows).toEqual([shown]);
    await client.end();
  });

  it('N10 a statement that takes longer than its limit is cancelled by the server', async () => {
    const options = resolveDatabaseOptions({ url: db.url, statementTimeoutMs: 100 });
    const database = new Database(options, { connections: 1, applicationName: 'test' });
    await expect(database.query('sleep', 'SELECT pg_sleep(20)')).rejects.toMatchObject({
      code: '57014',
    });
    expect(await database.query('go on', 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
    await database.close();
  });
});

it('a direct connection ends with the pool, even during a query', async () => {
  const options = resolveDatabaseOptions({ url: db.url, schema: db.schema });
  const database = new Database(options, { connections: 1, applicationName: 'test' });
  const sleeping = database.directly('waybill direct', (query) =>
    query('sleep', 'SELECT pg_sleep(20)'),
  );
  const ended = sleeping.catch((error: unknown) => error);
  await waitFor(
    async () => {
      const { rows } = await db.query(
        `SELECT FROM pg_stat_activity WHERE application_name = 'waybill direct' AND query LIKE '%pg_sleep%'`,
      );
      return rows.length > 0;
    },
    { what: 'the direct connection to sleep' },
  );
  await database.close();
  expect(await ended).toMatchObject({ message: expect.stringMatching(/terminated/) as unknown });
});

it('N11 values that look like SQL are stored as they are, and nothing else happens', async () => {
  const hostile = `'); DROP TABLE ${db.quoted}.messages; --`;
  const message = {
    topic: 'hostile.values',
    tenantId: hostile,
    key: hostile,
    dedupeKey: `${hostile}/1`,
    aggregateType: hostile,
    aggregateId: hostile,
    headers: { [hostile]: hostile },
    payload: { [hostile]: hostile },
  };
  const id = await db.inTransaction(async (client) => {
    const enqueued = await createOutbox({ schema: db.schema }).enqueue(client, message);
    return enqueued.id;
  });
  const { rows } = await db.query(
    `SELECT topic, tenant_id AS "tenantId", key, dedupe_key AS "dedupeKey", aggregate_type AS "aggregateType",
            aggregate_id AS "aggregateId", headers, payload FROM ${db.quoted}.messages WHERE id = $1`,
    [id],
  );
  expect(rows).toEqual([message]);
  await expect(
    db.query(`SELECT * FROM ${db.quoted}.claim($1, gen_random_uuid())`, [hostile]),
  ).rejects.toThrow(/destination .* does not exist/);
});

it('P10 the outcome decides whether a failure is final, whatever the text says; a throw is retried', async () => {
  const quickly = { retry: { maxAttempts: 2, baseMs: 1, maxMs: 1 } };
  await startRelay(db, {
    destinations: {
      final: handler(
        () => reject({ code: 'gone', message: 'temporary, please try again' }),
        quickly,
      ),
      again: handler(
        () => retry({ code: 'busy', message: 'fatal: 400 never send this again' }),
        quickly,
      ),
      thrown: handler(() => {
        throw new Error('permanent failure 410');
      }, quickly),
    },
  });
  await send(db, [{ topic: 'final' }, { topic: 'again' }, { topic: 'thrown' }]);
  for (const name of ['final', 'again', 'thrown']) await untilPlaces(db, name, { dead: 1 });
  expect(only(await deadLettersOf(db, 'final'))).toMatchObject({
    reason: 'rejected',
    error_code: 'gone',
    tries: 1,
  });
  expect(only(await deadLettersOf(db, 'again'))).toMatchObject({
    reason: 'exhausted',
    error_code: 'busy',
    tries: 2,
  });
  expect(only(await deadLettersOf(db, 'thrown'))).toMatchObject({
    reason: 'exhausted',
    error_code: 'thrown',
    tries: 2,
  });
});

it('C1 P2 a destination whose id needs more than two bytes is delivered to, blocks its keys and is listed', async () => {
  await db.query(`ALTER TABLE ${db.quoted}.destinations ALTER COLUMN id RESTART WITH 2000000000`);
  const received: string[] = [];
  await startRelay(db, {
    destinations: {
      late: handler(
        ({ id, sequence }) => {
          if (sequence === '2') return reject({ code: 'no' });
          received.push(id);
          return undefined;
        },
        { whenDead: 'block' },
      ),
    },
    routes: [{ topic: 'late', to: 'late' }],
  });
  const ids = await send(
    db,
    ['1', '2', '3'].map(() => ({ topic: 'late', key: 'k' })),
  );
  await untilPlaces(db, 'late', { delivered: 1, dead: 1, waiting: 1 });
  expect(received).toEqual([ids[0]]);
  expect(await deadLettersOf(db, 'late')).toMatchObject([{ message_id: ids[1] }]);
});
