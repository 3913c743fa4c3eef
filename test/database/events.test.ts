// Typed events in a database: an invalid payload leaves the transaction intact, the output of the schema is stored, and
// two versions of an event are handled separately.

import { toStandardJsonSchema } from '@valibot/to-json-schema';
import { type } from 'arktype';
import * as v from 'valibot';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';

import { createOutbox, defineEvents, handler } from '../../src/index.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { attemptsOf, startRelay, untilPlaces } from '../support/relay.js';

const db = testDatabase();

async function storedPayload(id: string): Promise<unknown> {
  const { rows } = await db.query<{ payload: unknown }>(
    `SELECT payload FROM ${db.quoted}.messages WHERE id = $1`,
    [id],
  );
  return only(rows).payload;
}

async function messageCount(topic: string): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM ${db.quoted}.messages WHERE topic = $1`,
    [topic],
  );
  return only(rows).count;
}

describe('enqueue with events', () => {
  it('M1 an invalid payload inserts nothing, and the transaction continues', async () => {
    const events = defineEvents({ 'events.refused': z.object({ n: z.number() }) });
    const outbox = createOutbox({ schema: db.schema, events });
    await db.inTransaction(async (client) => {
      const wrong = { topic: 'events.refused', payload: { n: 'one' } } as never;
      await expect(outbox.enqueue(client, wrong)).rejects.toThrow(
        /^payload\.n of "events\.refused"/,
      );
      const right = { topic: 'events.refused', payload: { n: 1 } } as const;
      await expect(outbox.enqueueMany(client, [right, wrong])).rejects.toThrow(
        /^messages\[1\]\.payload\.n of/,
      );
      await outbox.enqueue(client, right);
    });
    expect(await messageCount('events.refused')).toBe(1);
  });

  const at = new Date('2026-01-31T08:00:00Z');

  it.each([
    [
      'zod: defaults, transforms, dates, and no unknown properties',
      z.object({
        plan: z.string().default('free'),
        size: z.string().transform((text) => text.length),
        at: z.date(),
        amount: z.bigint().transform(String),
      }),
      { size: 'four', at, amount: 2n ** 64n, secret: 'x' },
      { plan: 'free', size: 4, at: '2026-01-31T08:00:00.000Z', amount: '18446744073709551616' },
    ],
    [
      'valibot',
      toStandardJsonSchema(v.object({ n: v.optional(v.number(), 7), at: v.date() })),
      { at },
      { n: 7, at: '2026-01-31T08:00:00.000Z' },
    ],
    ['arktype', type({ n: 'string.numeric.parse', 'note?': 'string' }), { n: '12' }, { n: 12 }],
    [
      'an asynchronous schema',
      z.string().refine(async (text) => Promise.resolve(text !== '')),
      'a',
      'a',
    ],
    ['no payload', z.undefined(), undefined, null],
  ])('stores the output of the schema: %s', async (_what, schema, payload, stored) => {
    const events = defineEvents({ 'events.stored': schema });
    const outbox = createOutbox({ schema: db.schema, events });
    const message = { topic: 'events.stored', payload } as never;
    const { id } = await db.inTransaction((client) => outbox.enqueue(client, message));
    expect(await storedPayload(id)).toEqual(stored);
  });

  it('keeps every other field of a message', async () => {
    const events = defineEvents({ 'events.fields': z.string() });
    const outbox = createOutbox({ schema: db.schema, events });
    const { id } = await db.inTransaction((client) =>
      outbox.enqueue(client, {
        topic: 'events.fields',
        payload: 'a',
        key: 'k',
        tenantId: 't',
        headers: { h: '1' },
      }),
    );
    const { rows } = await db.query(
      `SELECT key, tenant_id, headers FROM ${db.quoted}.messages WHERE id = $1`,
      [id],
    );
    expect(rows).toEqual([
      { key: 'k', tenant_id: 't', headers: expect.objectContaining({ h: '1' }) as unknown },
    ]);
  });
});

describe('versions of an event', () => {
  const events = defineEvents({
    'member.joined': z.object({ name: z.string() }),
    'member.joined.v2': z.object({ first: z.string(), last: z.string() }),
  });
  const outbox = createOutbox({ schema: db.schema, events });

  it('coexist: each function gets its own version, and a consumer of one version gets only that one', async () => {
    const [seen, old]: string[][] = [[], []];
    await startRelay(db, {
      destinations: {
        members: events.handler({
          'member.joined': ({ payload }) => void seen?.push(payload.name),
          'member.joined.v2': ({ payload }) => void seen?.push(`${payload.first} ${payload.last}`),
        }),
        old: handler(({ topic }) => void old?.push(topic)),
      },
      routes: [
        { topic: 'member.*', to: 'members' },
        { topic: 'member.joined', to: 'old' },
      ],
    });
    await db.inTransaction((client) =>
      outbox.enqueueMany(client, [
        { topic: 'member.joined', payload: { name: 'Ada L.' } },
        { topic: 'member.joined.v2', payload: { first: 'Ada', last: 'Lovelace' } },
      ]),
    );
    await untilPlaces(db, 'members', { waiting: 0, leased: 0, delivered: 2 });
    await untilPlaces(db, 'old', { waiting: 0, leased: 0, delivered: 1 });
    expect(seen?.toSorted()).toEqual(['Ada L.', 'Ada Lovelace']);
    expect(old).toEqual(['member.joined']);
  });

  it('a version without a function is retried until there is one', async () => {
    const retry = { maxAttempts: 2, baseMs: 1, maxMs: 1 };
    await startRelay(db, {
      destinations: { behind: events.handler({ 'member.joined': () => {} }, { retry }) },
      routes: [{ topic: 'member.*', to: 'behind' }],
    });
    const { id } = await db.inTransaction((client) =>
      outbox.enqueue(client, {
        topic: 'member.joined.v2',
        payload: { first: 'Ada', last: 'Lovelace' },
      }),
    );
    await untilPlaces(db, 'behind', { waiting: 0, leased: 0, dead: 1 });
    const attempts = await attemptsOf(db, id, 'behind');
    expect(attempts.map(({ error_code }) => error_code)).toEqual(['no_handler', 'no_handler']);
  });
});
