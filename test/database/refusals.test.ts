// What enqueue refuses, in TypeScript and in SQL alike: the error names the field, the value and the remedy, and
// nothing is inserted.

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
    `SELECT ((SELECT count(*) FROM ${db.quoted}.messages) + (SELECT count(*) FROM ${db.quoted}.deliveries)
           + (SELECT count(*) FROM ${db.quoted}.dedupe_keys) + (SELECT count(*) FROM ${db.quoted}.unrouted_messages))::int AS count`,
  );
  return only(rows).count;
}

type Refusal = { what: string; message: object; field: string; says: RegExp };

const long = (length: number): string => 'x'.repeat(length);

/** Both sides refuse these, with errors that match the same pattern. */
const refusals: Refusal[] = [
  { what: 'no topic', message: {}, field: 'topic', says: /topic is empty: name what happened/ },
  { what: 'an empty topic', message: { topic: '' }, field: 'topic', says: /topic is empty: name/ },
  ...['a b', 'user.', '.user', 'a..b', 'user.*', '*', 'ü', "a'b", 'line\n'].map((topic) => ({
    what: `the topic ${JSON.stringify(topic)}`,
    message: { topic },
    field: 'topic',
    says: /topic ".+" is malformed: use words/s,
  })),
  {
    what: 'a topic of 256 bytes',
    message: { topic: long(256) },
    field: 'topic',
    says: /topic "x+.*is malformed.*at most 255 bytes/,
  },
  {
    what: 'a malformed namespace',
    message: { topic: 't', namespace: 'my shop' },
    field: 'namespace',
    says: /namespace "my shop" is malformed: use words/,
  },
  {
    what: 'an empty tenant',
    message: { topic: 't', tenantId: '' },
    field: 'tenantId',
    says: /tenantId "" must have 1 to 255 bytes/,
  },
  {
    what: 'a tenant of 256 bytes in fewer characters',
    message: { topic: 't', tenantId: 'ü'.repeat(128) },
    field: 'tenantId',
    says: /tenantId "ü+.*must have 1 to 255 bytes/,
  },
  {
    what: 'an empty key',
    message: { topic: 't', key: '' },
    field: 'key',
    says: /key "" must have 1 to 512 bytes/,
  },
  {
    what: 'a key of 513 bytes',
    message: { topic: 't', key: long(513) },
    field: 'key',
    says: /key "x+.*must have 1 to 512 bytes/,
  },
  {
    what: 'an empty dedupe key',
    message: { topic: 't', dedupeKey: '' },
    field: 'dedupeKey',
    says: /dedupeKey "" must have 1 to 1024 bytes/,
  },
  {
    what: 'a dedupe key of 1025 bytes',
    message: { topic: 't', dedupeKey: long(1025) },
    field: 'dedupeKey',
    says: /dedupeKey "x+.*must have 1 to 1024 bytes/,
  },
  {
    what: 'half an aggregate',
    message: { topic: 't', aggregateId: '7' },
    field: 'aggregateType',
    says: /aggregateType and aggregateId belong together: give both or neither/,
  },
  {
    what: 'an empty aggregate id',
    message: { topic: 't', aggregateType: 'order', aggregateId: '' },
    field: 'aggregateId',
    says: /aggregateId "" must have 1 to 255 bytes/,
  },
  {
    what: 'headers that are a list',
    message: { topic: 't', headers: ['a'] },
    field: 'headers',
    says: /headers \["a"\] must be an object whose values are strings/,
  },
  {
    what: 'a header that is a number',
    message: { topic: 't', headers: { size: 7 } },
    field: 'headers.size',
    says: /headers.*7.*must be (a string|an object whose values are strings)/,
  },
  {
    what: 'a delay and a time',
    message: { topic: 't', delayMs: 1, availableAt: '2030-01-01T00:00:00Z' },
    field: 'delayMs',
    says: /delayMs and availableAt exclude each other: give one/,
  },
  {
    what: 'a negative delay',
    message: { topic: 't', delayMs: -1 },
    field: 'delayMs',
    says: /delayMs -1 must be a number between 0 and ten years/,
  },
  {
    what: 'a delay of eleven years',
    message: { topic: 't', delayMs: 346_896_000_000 },
    field: 'delayMs',
    says: /delayMs 3.* must be a number between 0 and ten years/,
  },
  {
    what: 'a time in the year 12000',
    message: { topic: 't', availableAt: '+012000-01-01T00:00:00Z' },
    field: 'availableAt',
    says: /availableAt .*(is in the year 12000: give one from 1 to 9999|is not a date)/,
  },
  ...['soon', '2030-02-30T00:00:00Z x', '+999999999-01-01T00:00:00Z'].map((availableAt) => ({
    what: `the time ${availableAt}`,
    message: { topic: 't', availableAt },
    field: 'availableAt',
    says: /availableAt "(soon|2030-02-30T00:00:00Z x|\+999999999-01-01T00:00:00Z)" is not a date: give .*ISO 8601 text/,
  })),
  {
    what: 'a delay that is a text',
    message: { topic: 't', delayMs: 'soon' },
    field: 'delayMs',
    says: /delayMs "soon" must be a number between 0 and ten years/,
  },
  {
    what: 'a delay beyond all intervals',
    message: { topic: 't', delayMs: 1e300 },
    field: 'delayMs',
    says: /delayMs 1e\+300 must be a number between 0 and ten years/,
  },
  {
    what: 'a payload above the limit',
    message: { topic: 't', payload: long(1024 * 1024) },
    field: 'payload',
    says: /payload has 1048578 bytes, the limit is 1048576: .*raise (maxPayloadBytes of the outbox|payload_bytes in)/,
  },
];

const tenantRule: Refusal[] = ['order-1', 'acme', 'acme2/order-1', 'ACME/order-1'].map(
  (dedupeKey) => ({
    what: `the dedupe key ${dedupeKey} of the tenant acme`,
    message: { topic: 't', tenantId: 'acme', dedupeKey },
    field: 'dedupeKey',
    says: /dedupeKey ".+" must begin with the tenantId and a slash: "acme\/(…|\.\.\.)"/,
  }),
);

async function refusedByTypeScript({ message, field, says }: Refusal): Promise<void> {
  const before = await stored();
  await db.inTransaction(async (client) => {
    const error: unknown = await outbox
      .enqueue(client, message as Message)
      .catch((e: unknown) => e);
    expect(error).toBeInstanceOf(MessageRefusedError);
    expect(error).toMatchObject({ field, code: 'message_refused' });
    expect((error as Error).message).toMatch(says);
    // the transaction was not touched
    expect((await client.query('SELECT 1')).rowCount).toBe(1);
  });
  expect(await stored()).toBe(before);
}

async function refusedBySql({ message, says }: Refusal): Promise<void> {
  const before = await stored();
  const good = { topic: queue.topic, dedupeKey: 'good' };
  for (const batch of [[message], [good, message], [message, good]]) {
    const enqueued = db.query(`SELECT * FROM ${db.quoted}.enqueue_many($1::text::jsonb)`, [
      JSON.stringify(batch),
    ]);
    await expect(enqueued).rejects.toMatchObject({
      code: '22023',
      message: expect.stringMatching(says) as string,
      hint: 'Nothing was enqueued.',
    });
  }
  expect(await stored()).toBe(before);
}

describe('refused by both sides', () => {
  it.each(refusals)('M2 the TypeScript function refuses $what', refusedByTypeScript);
  it.each(refusals)('M2 the SQL function refuses $what', refusedBySql);
  it.each(tenantRule)('M4 the TypeScript function refuses $what', refusedByTypeScript);
  it.each(tenantRule)('M4 the SQL function refuses $what', refusedBySql);

  it('M4 a dedupe key that begins with the tenant and a slash is accepted, compared exactly', async () => {
    const tenantId = '0190a3c4-5b6d-7e8f-9a0b-1c2d3e4f5a6b';
    const [id] = await queue.enqueue(1, { tenantId, dedupeKey: `${tenantId}/1` });
    const { rows } = await db.query<{ tenant_id: string }>(
      `SELECT tenant_id FROM ${db.quoted}.messages WHERE id = $1`,
      [id],
    );
    expect(only(rows).tenant_id).toBe(tenantId);
    await refusedBySql({
      what: 'another case',
      message: { topic: 't', tenantId, dedupeKey: `${tenantId.toUpperCase()}/1` },
      field: 'dedupeKey',
      says: /must begin with the tenantId/,
    });
  });
});
