// The test kit, as applications use it: in a transaction that is rolled back after each test, on real claims.

import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { pathToFileURL } from 'node:url';

import type pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

import {
  batchHandler,
  createOutbox,
  defineConfig,
  handler,
  pause,
  reject,
  release,
  retry,
  webhook,
} from '../../src/index.js';
import type { ClaimedMessage, Config, DestinationSettings, Message } from '../../src/index.js';
import { configText } from '../../src/init/templates.js';
import { createTestKit } from '../../src/testing/index.js';
import type { TestKit } from '../../src/testing/index.js';
import { temporaryDirectory } from '../support/cli.js';
import { endpointsOf } from '../support/endpoints.js';
import { loopback, serve } from '../support/relay-partner.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
const ownDatabase = { ownDatabase: true };
const outbox = createOutbox({ schema: db.schema });

let client: pg.Client;
let calls: string[] = [];

beforeEach(async () => {
  calls = [];
  client = await db.connect();
  await client.query('BEGIN');
});

afterEach(async () => {
  await client.query('ROLLBACK');
  await client.end();
});

const noted = (message: ClaimedMessage): void => {
  const { name = message.topic } = message.payload as { name?: string };
  calls.push(`${name}, try ${message.tries}`);
};

const configOf = (destinations: Config['destinations']): Config =>
  defineConfig({
    database: { schema: db.schema },
    destinations,
    routes: Object.keys(destinations).map((to) => ({ topic: 'user.*', to })),
  });

const welcome = (settings: DestinationSettings = {}, handle = noted): Config =>
  configOf({ welcome: handler(handle, settings) });

const enqueue = (message: Partial<Message> = {}) =>
  outbox.enqueue(client, { topic: 'user.registered', payload: {}, ...message });

const failureOf = async (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'nothing failed',
    (error: Error) => error.message,
  );

describe('enqueued', () => {
  let kit: TestKit;
  beforeEach(async () => {
    kit = await createTestKit(client, undefined, { schema: db.schema });
  });

  test('X4 finds a message of this transaction by some of its fields, and returns it', async () => {
    await enqueue({
      topic: 'user.registered',
      key: 'user-1',
      tenantId: 'acme',
      headers: { source: 'web', language: 'en' },
      payload: { userId: 1, address: { city: 'London', zip: 'N1' }, tags: ['a', 'b'] },
    });
    const message = await kit.enqueued({
      topic: 'user.registered',
      key: /^user-/,
      headers: { source: 'web' },
      payload: {
        userId: expect.any(Number) as number,
        address: { city: 'London' },
        tags: (tags: string[]) => tags.length === 2,
      },
    });
    expect(message).toMatchObject({
      tenantId: 'acme',
      sequence: '1',
      payload: { address: { zip: 'N1' } },
    });
    await kit.notEnqueued({ topic: 'user.deleted' });
    await expect(kit.enqueued({ payload: { tags: ['a'] } })).rejects.toThrow('payload.tags');
    await expect(kit.enqueued({ payload: { nickname: 'ada' } })).rejects.toThrow('is missing');
  });

  test('X4 says what was looked for, what was there, and what comes nearest', async () => {
    await enqueue({ topic: 'order.placed', payload: { email: 'ada@example.com' } });
    await enqueue({ key: 'u-1', payload: { userId: 1, email: 'eve@example.com' } });
    const failure = await failureOf(
      kit.enqueued({ topic: 'user.registered', payload: { userId: 1, email: 'ada@example.com' } }),
    );
    expect(failure).toBe(`no message was enqueued with
  topic: "user.registered"
  payload: { userId: 1, email: "ada@example.com" }

Enqueued in this transaction, 2 in all:
  1. order.placed  { email: "ada@example.com" }
  2. user.registered  key "u-1"  { email: "eve@example.com", userId: 1 }

Nearest is number 2, which differs in
  payload.email: expected "ada@example.com", was "eve@example.com"`);
  });

  test('X4 counts, and refuses a message that was not expected', async () => {
    expect(await failureOf(kit.enqueued({ topic: 'user.registered' }))).toContain(
      'Nothing was enqueued in this transaction.',
    );
    await enqueue();
    await enqueue();
    await kit.enqueued({ topic: 'user.registered' }, { count: 2 });
    expect(await failureOf(kit.enqueued({ topic: 'user.registered' }, { count: 1 }))).toContain(
      '2 messages fit, and 1 were expected',
    );
    expect(await failureOf(kit.notEnqueued({ topic: 'user.registered' }))).toContain(
      '2 were enqueued',
    );
    expect(await kit.messages()).toHaveLength(2);
  });

  test('X4 a misspelt field is refused, because it would fit every message', async () => {
    await enqueue();
    await expect(kit.enqueued({ playload: {} } as never)).rejects.toThrow(
      'enqueued.playload is not an option',
    );
    await expect(kit.enqueued({}, { cuont: 2 } as never)).rejects.toThrow('cuont');
  });

  test('X4 knows nothing of other transactions', async () => {
    await db.inTransaction((other) => outbox.enqueue(other, { topic: 'user.other' }));
    expect(await kit.messages()).toEqual([]);
    await db.query(`DELETE FROM ${db.quoted}.messages; DELETE FROM ${db.quoted}.unrouted_messages`);
  });
});

describe('deliverAll', () => {
  test('X4 calls the handlers in the transaction of the test, and what they enqueue as well', async () => {
    const kit = await createTestKit(
      client,
      configOf({
        welcome: handler(async (message) => {
          noted(message);
          if (message.topic === 'user.registered') await enqueue({ topic: 'user.welcomed' });
        }),
      }),
    );
    await enqueue();
    expect(await kit.deliverAll()).toEqual({
      processed: 2,
      succeeded: 2,
      failed: 0,
      released: 0,
      waiting: 0,
      nextDueMs: null,
    });
    expect(calls).toEqual(['user.registered, try 1', 'user.welcomed, try 1']);
    const outside = await db.query(`SELECT FROM ${db.quoted}.messages`);
    expect(outside.rowCount).toBe(0);
  });

  test('X4 retries are due when the clock has advanced, and the last one makes a dead letter', async () => {
    const kit = await createTestKit(client, welcome({ retry: { delaysMs: [60_000, 3_600_000] } }));
    kit.failNext('welcome', undefined, { times: 3 });
    await enqueue({ payload: { name: 'ada' } });
    const first = await kit.deliverAll();
    expect(first).toMatchObject({ failed: 1, waiting: 1 });
    expect(first.nextDueMs).toBeGreaterThan(50_000);
    expect(await kit.deliverAll()).toMatchObject({ processed: 0 });
    await kit.advance(60_000);
    expect(await kit.deliverAll()).toMatchObject({ failed: 1, waiting: 1 });
    await kit.advance(3_500_000);
    expect(await kit.deliverAll()).toMatchObject({ processed: 0 });
    await kit.advance(100_000);
    expect(await kit.deliverAll()).toMatchObject({ failed: 1, waiting: 0, nextDueMs: null });
    expect(await kit.deadLetters()).toMatchObject([
      { destination: 'welcome', reason: 'exhausted', tries: 3, code: 'test_failure' },
    ]);
    expect(await kit.deadLetters({ payload: { name: 'eve' } })).toEqual([]);
    await expect(kit.deadLetters({ error: 'x' } as never)).rejects.toThrow(
      'deadLetters.error is not an option',
    );
    expect(calls).toEqual([]);
  });

  test('X4 skipDelays goes through all retries and delays without waiting', async () => {
    const kit = await createTestKit(client, welcome());
    kit.failNext('welcome', new Error('smtp is down'), { times: 2 });
    await enqueue({ payload: { name: 'soon' } });
    await enqueue({ payload: { name: 'later' }, delayMs: 86_400_000 });
    const started = performance.now();
    expect(await kit.deliverAll({ skipDelays: true })).toMatchObject({ succeeded: 2, failed: 2 });
    expect(performance.now() - started).toBeLessThan(20_000);
    expect(calls).toEqual(['soon, try 3', 'later, try 1']);
    const { rows } = await client.query(
      `SELECT state, error_code, error_message FROM ${db.quoted}.attempt_log WHERE error_code IS NOT NULL`,
    );
    expect(rows).toHaveLength(2);
    expect(rows[0]).toMatchObject({ state: 'retryable', error_code: 'thrown' });
  });

  test('X4 the messages of a key keep their order behind a retry', async () => {
    const kit = await createTestKit(client, welcome({ retry: { delaysMs: [1000] } }));
    kit.failNext('welcome');
    for (const name of ['one', 'two', 'three']) await enqueue({ key: 'k', payload: { name } });
    await enqueue({ key: 'other', payload: { name: 'free' } });
    expect(await kit.deliverAll()).toMatchObject({ failed: 1, succeeded: 1, waiting: 3 });
    expect(calls).toEqual(['free, try 1']);
    await kit.advance(1000);
    expect(await kit.deliverAll()).toMatchObject({ succeeded: 3, waiting: 0 });
    expect(calls.slice(1)).toEqual(['one, try 2', 'two, try 1', 'three, try 1']);
  });

  test('X4 a key that a dead letter blocks waits, also when delays are skipped', async () => {
    const kit = await createTestKit(client, welcome({ whenDead: 'block' }));
    kit.failNext('welcome', reject({ code: 'bad_address' }));
    for (const name of ['one', 'two']) await enqueue({ key: 'k', payload: { name } });
    expect(await kit.deliverAll({ skipDelays: true })).toMatchObject({
      failed: 1,
      waiting: 1,
      nextDueMs: null,
    });
    expect(await kit.deadLetters({ code: 'bad_address' })).toHaveLength(1);
  });

  test('X4 outcomes of handlers count as in a relay', async () => {
    const outcomes = [release(), retry({ code: 'busy', afterMs: 5000 }), undefined];
    const kit = await createTestKit(
      client,
      configOf({
        welcome: handler((message) => {
          noted(message);
          return outcomes.shift();
        }),
      }),
    );
    await enqueue({ payload: { name: 'a' } });
    expect(await kit.deliverAll()).toMatchObject({ released: 1, waiting: 1 });
    await kit.advance(1000);
    const busy = await kit.deliverAll();
    expect(busy).toMatchObject({ failed: 1 });
    expect(busy.nextDueMs).toBeGreaterThan(4000);
    expect(await kit.deliverAll({ skipDelays: true })).toMatchObject({ succeeded: 1 });
    expect(calls).toEqual(['a, try 1', 'a, try 1', 'a, try 2']);
  });

  test('X4 a pause keeps the messages until reset', async () => {
    const kit = await createTestKit(client, welcome());
    kit.failNext('welcome', pause({ code: 'not_authorized' }));
    await enqueue();
    expect(await kit.deliverAll({ skipDelays: true })).toMatchObject({ released: 1, waiting: 1 });
    await kit.reset();
    await enqueue();
    expect(await kit.deliverAll()).toMatchObject({ succeeded: 1 });
  });

  test('X4 a batch handler gets many messages, and failNext fails the first of them', async () => {
    const sizes: number[] = [];
    const kit = await createTestKit(
      client,
      configOf({
        report: batchHandler(
          async (messages) => {
            sizes.push(messages.length);
            await Promise.resolve();
          },
          { batchSize: 3 },
        ),
      }),
    );
    for (let n = 0; n < 5; n++) await enqueue();
    kit.failNext('report');
    expect(await kit.deliverAll()).toMatchObject({ succeeded: 4, failed: 1 });
    expect(sizes).toEqual([2, 2]);
  });

  test('X4 a guard and classify decide as in a relay', async () => {
    const kit = await createTestKit(
      client,
      welcome({
        guard: (message) =>
          (message.payload as { name: string }).name === 'bad' ? { code: 'refused' } : undefined,
        classify: { busy: 'reject' },
      }),
    );
    await enqueue({ payload: { name: 'bad' } });
    await enqueue({ payload: { name: 'good' } });
    kit.failNext('welcome', retry({ code: 'busy' }));
    expect(await kit.deliverAll()).toMatchObject({ failed: 2, waiting: 0 });
    const codes = (await kit.deadLetters()).map(({ code }) => String(code));
    expect(codes.toSorted()).toEqual(['busy', 'guard_refused']);
  });

  test('X4 destinations other than handlers record instead of sending', async () => {
    const kit = await createTestKit(
      client,
      configOf({
        welcome: handler(noted),
        crm: webhook({ url: 'http://127.0.0.1:1/', allowedNetworks: loopback }),
      }),
    );
    await enqueue({ key: 'k', headers: { source: 'web' }, payload: { name: 'ada' } });
    expect(await kit.deliverAll()).toMatchObject({ succeeded: 2 });
    expect(kit.recorded('crm')).toMatchObject([
      {
        destination: 'crm',
        topic: 'user.registered',
        key: 'k',
        headers: { source: 'web' },
        payload: { name: 'ada' },
        tries: 1,
      },
    ]);
    expect(kit.recorded()).toHaveLength(1);
    expect(() => kit.recorded('welcome')).toThrow('welcome records nothing');
    await kit.reset();
    expect(kit.recorded('crm')).toEqual([]);
  });

  test('X4 send makes a destination really send', async () => {
    const bodies: string[] = [];
    const { url } = await serve((request, response) => {
      void text(request).then((body) => {
        bodies.push(body);
        response.end();
      });
    });
    const config = configOf({ crm: webhook({ url, allowedNetworks: loopback }) });
    const kit = await createTestKit(client, config, { send: ['crm'] });
    await enqueue({ payload: { name: 'ada' } });
    expect(await kit.deliverAll()).toMatchObject({ succeeded: 1 });
    expect(bodies).toHaveLength(1);
    expect(bodies[0]).toContain('ada');
    expect(() => kit.recorded('crm')).toThrow('crm records nothing');
    await expect(createTestKit(client, config, { send: ['crn'] })).rejects.toThrow(
      'there is no destination "crn"',
    );
  });

  test('X4 customers’ endpoints record too, under their own names', async () => {
    const kit = await createTestKit(client, welcome());
    await endpointsOf(db).add(client, {
      name: 'acme-hook',
      url: 'https://example.com/hook',
      tenantId: 'acme',
      topics: ['user.*'],
    });
    await enqueue({ tenantId: 'acme', payload: { name: 'ada' } });
    expect(await kit.deliverAll()).toMatchObject({ succeeded: 2 });
    expect(kit.recorded('acme-hook')).toMatchObject([
      { destination: 'acme-hook', tenantId: 'acme' },
    ]);
  });

  test('X4 a destination that reads the log is left out', async () => {
    const kit = await createTestKit(
      client,
      configOf({ welcome: handler(noted), search: handler(noted, { mode: 'stream' }) }),
    );
    await enqueue();
    expect(await kit.deliverAll()).toMatchObject({ succeeded: 1 });
    expect(() => kit.failNext('search')).toThrow('use welcome');
  });
});

test('X4 the configuration of waybill init works with the kit as the guide says', async () => {
  const file = path.join(temporaryDirectory(), 'waybill.config.mjs');
  const waybill = pathToFileURL(path.resolve('dist/index.js')).href;
  writeFileSync(file, configText.replace(`'waybill'`, `'${waybill}'`));
  const { configFor, default: config } = (await import(file)) as {
    configFor: (parts: { print: (...text: unknown[]) => void }) => Config;
    default: Config;
  };
  expect(Object.keys(config.destinations)).toEqual(['welcome']);
  const printed: unknown[] = [];
  const print = (_text: unknown, payload: unknown) => void printed.push(payload);
  const kit = await createTestKit(client, configFor({ print }), { schema: db.schema });
  await enqueue({ payload: { email: 'ada@example.com' } });
  await kit.deliverAll();
  expect(printed).toEqual([{ email: 'ada@example.com' }]);
});

describe('misuse', () => {
  test('X4 unknown options are refused', async () => {
    const kit = await createTestKit(client, welcome());
    const misspelt = { time: 2 } as object;
    expect(() => kit.failNext('welcome', undefined, misspelt)).toThrow(
      'failNext.time is not an option: use times',
    );
    await expect(kit.enqueued({}, misspelt)).rejects.toThrow(
      'enqueued.time is not an option: use count',
    );
  });

  test('X4 an error of a handler rejects deliverAll, and is a failed try', async () => {
    const cause = new Error('smtp is down');
    const kit = await createTestKit(
      client,
      welcome({ retry: { delaysMs: [1000] } }, () => {
        throw cause;
      }),
    );
    await enqueue();
    await enqueue();
    const failure = await kit.deliverAll().catch((error: unknown) => error);
    expect(failure).toMatchObject({ name: 'TestKitError', code: 'test_kit', cause });
    expect(String(failure)).toMatch(
      /the handler of welcome threw at user\.registered \(message [0-9a-f-]+, try 1\): smtp is down\./,
    );
    // the second message was given back
    expect(await kit.deliverAll({ catchErrors: true })).toMatchObject({ failed: 1, waiting: 2 });
    expect(await kit.deliverAll({ catchErrors: true, skipDelays: true })).toMatchObject({
      failed: 2,
      waiting: 0,
    });
    expect(await kit.deadLetters()).toHaveLength(2);
  });

  test('X4 failed SQL of a handler does not end the transaction of the test', async () => {
    const kit = await createTestKit(
      client,
      configOf({
        welcome: handler(async () => {
          await client.query('SELECT 1 / 0');
        }),
      }),
    );
    await enqueue();
    await expect(kit.deliverAll()).rejects.toThrow('division by zero');
    await kit.enqueued({ topic: 'user.registered' });
  });

  test('X4 a handler that ends the transaction of the test is named', async () => {
    const kit = await createTestKit(
      client,
      configOf({
        welcome: handler(async () => {
          await client.query('ROLLBACK');
        }),
      }),
    );
    await enqueue();
    await expect(kit.deliverAll()).rejects.toThrow(
      'the handler of welcome has ended the transaction of the test',
    );
  });

  test('X4 deliveries that never end are cut off', async () => {
    const kit = await createTestKit(
      client,
      configOf({
        welcome: handler(async () => {
          await enqueue();
        }),
      }),
    );
    await enqueue();
    await expect(kit.deliverAll({ maxDeliveries: 20 })).rejects.toThrow(
      /has made 20 deliveries, and more are due.*user\.registered to welcome, try 1/,
    );
  });

  test('X4 unknown destinations, failures and options are refused', async () => {
    const kit = await createTestKit(client, welcome());
    expect(() => kit.failNext('welcom')).toThrow(
      'there is no destination "welcom" to deliver to: use welcome',
    );
    expect(() => kit.failNext('welcome', 'x' as never)).toThrow('failNext got "x"');
    expect(() => kit.failNext('welcome', undefined, { times: 0 })).toThrow('failNext.times is 0');
    await expect(kit.advance(-1)).rejects.toThrow('advance is -1');
    await expect(kit.deliverAll({ skipDelay: true } as never)).rejects.toThrow('skipDelay');
    const bare = await createTestKit(client, undefined, { schema: db.schema });
    await expect(bare.deliverAll()).rejects.toThrow('give createTestKit your configuration');
  });

  test('X4 a kit of an ended transaction is refused', async () => {
    const kit = await createTestKit(client, welcome());
    await client.query('ROLLBACK');
    await client.query('BEGIN');
    await expect(kit.enqueued({})).rejects.toThrow('has ended: create one for each test');
  });

  test('X4 a client outside a transaction is refused', async () => {
    await client.query('ROLLBACK');
    for (const handle of [client, db.pool])
      await expect(createTestKit(handle, welcome())).rejects.toThrow(
        'this client is in no transaction: run BEGIN before createTestKit',
      );
    await expect(createTestKit({} as never)).rejects.toThrow(
      '{} is not a database client that Waybill knows',
    );
  });

  test('X4 definitions that cannot be stored, because of another transaction, are refused', async () => {
    const other = await db.connect();
    await other.query('BEGIN');
    await outbox.enqueue(other, { topic: 'nobody.wants.it' });
    const config = { ...welcome(), application: 'new-one' };
    const renamed = {
      ...config,
      destinations: { other: handler(noted) },
      routes: [{ topic: 'user.*', to: 'other' }],
    };
    await expect(createTestKit(client, renamed)).rejects.toThrow(
      'store them once before the tests',
    );
    await other.query('ROLLBACK');
  });

  test('X4 another isolation level is refused before it breaks the transaction', async () => {
    await client.query('ROLLBACK');
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await expect(createTestKit(client, welcome())).rejects.toThrow('READ COMMITTED only');
  });

  test('X4 a message that another transaction commits meanwhile is refused, and no handler gets it', async () => {
    const committed = await createTestKit(db.pool, welcome(), ownDatabase);
    const kit = await createTestKit(
      client,
      configOf({
        welcome: handler(async (message) => {
          noted(message);
          const foreign = { topic: 'user.registered', payload: { name: 'foreign' } };
          await db.inTransaction((other) => outbox.enqueue(other, foreign));
        }),
      }),
    );
    await enqueue({ payload: { name: 'own' } });
    await expect(kit.deliverAll()).rejects.toThrow(
      /(a delivery of another transaction is|deliveries of other transactions are) pending in this database/,
    );
    expect(calls).toEqual(['own, try 1']);
    await client.query('ROLLBACK');
    await client.query('BEGIN');
    expect(await committed.messages()).toMatchObject([{ payload: { name: 'foreign' } }]);
    await committed.reset();
  });

  test('X4 pending deliveries of others are refused instead of being delivered', async () => {
    const config = welcome();
    const committed = await createTestKit(db.pool, config, ownDatabase);
    await db.inTransaction((other) => outbox.enqueue(other, { topic: 'user.registered' }));
    const kit = await createTestKit(client, config);
    await enqueue();
    await expect(kit.deliverAll()).rejects.toThrow('a delivery of another transaction is pending');
    await client.query('ROLLBACK');
    await client.query('BEGIN');
    await committed.reset();
    const clean = await createTestKit(client, config);
    await enqueue();
    expect(await clean.deliverAll()).toMatchObject({ succeeded: 1 });
  });
});

describe('outside a transaction', () => {
  test('X4 the kit works on all messages, and reset removes them', async () => {
    const kit = await createTestKit(
      db.pool,
      welcome({ retry: { delaysMs: [60_000] } }),
      ownDatabase,
    );
    await kit.reset();
    const send = (name: string) =>
      db.inTransaction((other) =>
        outbox.enqueue(other, { topic: 'user.registered', key: 'k', payload: { name } }),
      );
    await send('one');
    await send('two');
    kit.failNext('welcome');
    expect(await kit.deliverAll()).toMatchObject({ failed: 1, waiting: 2 });
    expect(await kit.deliverAll({ skipDelays: true })).toMatchObject({ succeeded: 2, waiting: 0 });
    expect(calls).toEqual(['one, try 2', 'two, try 1']);
    await kit.enqueued({ payload: { name: 'two' }, sequence: '2' });
    await kit.reset();
    expect(await kit.messages()).toEqual([]);
    await send('three');
    await kit.enqueued({ payload: { name: 'three' }, sequence: '1' });
    await kit.reset();
  });

  test('X4 deliveries that another transaction holds are an error, and not an endless loop', async () => {
    const kit = await createTestKit(db.pool, welcome(), ownDatabase);
    await db.inTransaction((other) => outbox.enqueue(other, { topic: 'user.registered' }));
    await client.query(`SELECT FROM ${db.quoted}.deliveries FOR UPDATE`);
    await expect(kit.deliverAll({ skipDelays: true })).rejects.toThrow(
      'those that are due cannot be claimed: another transaction holds them',
    );
    await client.query('ROLLBACK');
    await kit.reset();
  });

  test('X4 tests with stored definitions do not wait for each other', async () => {
    const config = welcome();
    await createTestKit(db.pool, config, ownDatabase);
    await createTestKit(client, config);
    const other = await db.connect();
    await other.query(`BEGIN; SET LOCAL lock_timeout = '2s'`);
    const kit = await createTestKit(other, config);
    await outbox.enqueue(other, { topic: 'user.registered', key: 'k', payload: {} });
    expect(await kit.deliverAll()).toMatchObject({ succeeded: 1 });
    await other.query('ROLLBACK');
  });

  test('X4 it is refused while a relay runs, whose messages it would take', async () => {
    await db.query(
      `SELECT ${db.quoted}.heartbeat(gen_random_uuid(), 'worker-7', '0.2.0', 'x', '{}', '{}', '{}', 'default', NULL, false)`,
    );
    await expect(createTestKit(db.pool, welcome(), ownDatabase)).rejects.toThrow(
      'relays run on this database (worker-7)',
    );
    await createTestKit(client, welcome());
    await db.query(`DELETE FROM ${db.quoted}.relays`);
  });

  test('X4 it is refused where a relay has worked, which may be asleep', async () => {
    await db.query(`SELECT ${db.quoted}.take_sample()`);
    await expect(createTestKit(db.pool, welcome(), ownDatabase)).rejects.toThrow(
      'a relay has worked on this database',
    );
    await createTestKit(client, welcome());
    await db.query(`DELETE FROM ${db.quoted}.samples`);
  });
});
