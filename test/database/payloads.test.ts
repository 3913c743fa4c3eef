// Contents that JSON or PostgreSQL cannot carry are refused before any query, so the caller's transaction stays usable.

import { beforeAll, describe, expect, it } from 'vitest';

import { createOutbox, MessageRefusedError } from '../../src/index.js';
import type { Message, Outbox } from '../../src/index.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
let outbox: Outbox;
let queue: Queue;

beforeAll(async () => {
  outbox = createOutbox({ schema: db.schema });
  queue = await makeQueue(db);
});

async function stored(): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM ${db.quoted}.messages`,
  );
  return only(rows).count;
}

async function expectRefused(message: object, field: string, says: RegExp): Promise<void> {
  const before = await stored();
  await db.inTransaction(async (client) => {
    const error: unknown = await outbox
      .enqueue(client, message as Message)
      .catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(MessageRefusedError);
    expect(error).toMatchObject({ field });
    expect((error as Error).message).toMatch(says);
    // the transaction was not touched
    expect((await client.query('SELECT 1')).rowCount).toBe(1);
  });
  expect(await stored()).toBe(before);
}

const mebibyte = 1024 * 1024;

const circular: Record<string, unknown> = {};
circular['self'] = circular;

const unfit: { what: string; payload: unknown; field: string; says: RegExp }[] = [
  { what: 'NUL', payload: { a: 'x\u0000y' }, field: 'payload', says: /NUL.*remove it/ },
  { what: 'NUL in a name', payload: { 'a\u0000': 1 }, field: 'payload', says: /NUL/ },
  { what: 'a lone high surrogate', payload: ['\ud83d'], field: 'payload', says: /surrogate pair/ },
  { what: 'a lone low surrogate', payload: ['\udd00x'], field: 'payload', says: /surrogate pair/ },
  { what: 'NaN', payload: { a: [1, Number.NaN] }, field: 'payload.a[1]', says: /NaN.*finite/ },
  { what: 'Infinity', payload: Infinity, field: 'payload', says: /Infinity.*finite/ },
  { what: 'a BigInt', payload: { a: 1n }, field: 'payload.a', says: /BigInt \(1\).*as text/ },
  {
    what: 'an Invalid Date',
    payload: [new Date('x')],
    field: 'payload[0]',
    says: /Invalid Date: send/,
  },
  { what: 'a function', payload: { f: it }, field: 'payload.f', says: /not JSON: send/ },
  { what: 'a Map', payload: { m: new Map() }, field: 'payload.m', says: /Map.*as an object/ },
];

describe('contents', () => {
  it.each(unfit)('M2 a payload with $what is refused with its path', async (unfitting) => {
    const message = { topic: 't', payload: unfitting.payload };
    await expectRefused(message, unfitting.field, unfitting.says);
  });

  it('M2 a circular payload is refused, and the transaction continues', async () => {
    await db.inTransaction(async (client) => {
      const refused = outbox.enqueue(client, { topic: 't', payload: circular });
      await expect(refused).rejects.toThrow(/payload.*refers to itself: flatten it/);
      await client.query('SELECT 1');
    });
  });

  it.each(['tenantId', 'key', 'dedupeKey', 'aggregateId'])(
    'M2 NUL in the %s is refused, and the transaction continues',
    async (field) => {
      const message = { topic: 't', aggregateType: 'order', aggregateId: '1', [field]: 'a\u0000b' };
      await expectRefused(message, field, /NUL character/);
    },
  );

  it('M2 an unknown field is refused by name', async () => {
    const message = { topic: 't', tenant_id: 'acme' };
    await expectRefused(message, 'tenant_id', /tenant_id is not a field.*tenantId/);
  });

  it('M2 one bad message refuses the whole batch, and is named by its index', async () => {
    const before = await stored();
    await db.inTransaction(async (client) => {
      const batch = [{ topic: queue.topic }, { topic: 'not good' }];
      await expect(outbox.enqueueMany(client, batch)).rejects.toMatchObject({
        code: 'message_refused',
        field: 'messages[1].topic',
        message: expect.stringMatching(/^messages\[1\]\.topic "not good" is malformed/) as string,
      });
    });
    expect(await stored()).toBe(before);
  });

  it('M2 NUL in the name of a header is refused, and the transaction continues', async () => {
    const name = 'a\u0000b';
    const message = { topic: 't', headers: { [name]: 'x' } };
    await expectRefused(message, `headers.${name}`, /NUL character/);
  });

  it('M2 a time that PostgreSQL cannot store is refused, and the transaction continues', async () => {
    const message = { topic: 't', availableAt: new Date(8.64e15) };
    await expectRefused(message, 'availableAt', /availableAt/);
  });

  it('M2 headers that are a Map are refused instead of being lost', async () => {
    const message = { topic: 't', headers: new Map([['a', 'b']]) };
    await expectRefused(message, 'headers', /must be an object whose values are strings/);
  });
});

describe('a payload as text', () => {
  it.each([
    ['a number beyond numeric', '{"a": 1e200000}', /the number 1e200000.*send it as a string/],
    ['a fraction beyond numeric', '[1e-20000]', /the number 1e-20000.*send it as a string/],
    ['20,000 levels', `${'['.repeat(20_000)}${']'.repeat(20_000)}`, /nested deeper than 200/],
  ])('M2 with %s is refused, and the transaction continues', async (_what, payloadText, says) => {
    await expectRefused({ topic: 't', payloadText }, 'payloadText', says);
  });

  it('M2 a number is refused exactly when PostgreSQL cannot store it', async () => {
    const zeros = (count: number) => '0'.repeat(count);
    const exponents =
      '1e131071 1e131072 12e131070 12e131071 0.1e131072 1.25e131071 1e200000 1e-16383 1e-16384 1.5e-16382 1.5e-16383 -1e-200000';
    const numbers = [
      ...exponents.split(' '),
      `1${zeros(131_071)}`,
      `1${zeros(131_072)}`,
      `0.${zeros(16_382)}1`,
      `0.${zeros(16_383)}1`,
    ];
    const large = createOutbox({ schema: db.schema, maxPayloadBytes: mebibyte });
    const disagreed: string[] = [];
    for (const payloadText of numbers) {
      const fits = await db.query('SELECT $1::jsonb', [payloadText]).then(
        () => true,
        (error: { code: string }) => error.code !== '22003',
      );
      const taken = await db
        .inTransaction((client) => large.enqueue(client, { topic: queue.topic, payloadText }))
        .then(
          () => true,
          (error: unknown) => !(error instanceof MessageRefusedError),
        );
      if (fits !== taken) disagreed.push(`${payloadText.slice(0, 20)} ${fits} ${taken}`);
    }
    expect(disagreed).toEqual([]);
  });

  it('M2 that is short only because of its exponents is measured in its written-out form', async () => {
    const payloadText = `[${Array.from({ length: 9 }, () => '1e130000').join(',')}]`;
    await expectRefused({ topic: 't', payloadText }, 'payload', /payload has 117\d{4} bytes/);
  });
});

describe('nesting', () => {
  const nested = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`;

  it('M2 200 levels are accepted by both sides, and 201 are refused by both', async () => {
    const sql = `SELECT ${db.quoted}.enqueue($1, $2)`;
    await db.inTransaction(async (client) => {
      await outbox.enqueue(client, { topic: queue.topic, payloadText: nested(200) });
      await outbox.enqueue(client, {
        topic: queue.topic,
        payload: JSON.parse(nested(200)) as unknown,
      });
      await client.query(sql, [queue.topic, nested(200)]);
    });
    const says = /is nested deeper than 200 levels/;
    await expectRefused({ topic: 't', payloadText: nested(201) }, 'payloadText', says);
    const payload = JSON.parse(nested(201)) as unknown;
    await expectRefused({ topic: 't', payload }, `payload${'[0]'.repeat(200)}`.slice(0, 60), says);
    for (const deep of [nested(201), `${'{"a":'.repeat(201)}1${'}'.repeat(201)}`, nested(5000)])
      await expect(db.query(sql, [queue.topic, deep])).rejects.toMatchObject({
        code: '22023',
        message: 'payload is nested deeper than 200 levels: flatten it, or send it as a string',
        hint: 'Nothing was enqueued.',
      });
  });
});
