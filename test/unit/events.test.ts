// Typed events without a database: unusable definitions are refused, an invalid payload is refused before any query,
// and each message reaches the function of its event.

import { type } from 'arktype';
import * as v from 'valibot';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';

import { createOutbox, createRelay, defineEvents, MessageRefusedError } from '../../src/index.js';
import type { Message, Outbox } from '../../src/index.js';
import { nextVersion, versionOf } from '../../src/producer/events/event-definitions.js';
import { claimedMessage } from '../support/claimed-message.js';

const context = () => ({ signal: new AbortController().signal });

describe('definitions', () => {
  it.each([
    ['no object', null, /^events is null: give an object/],
    ['a list', [], /^events is \[\]: give an object/],
    ['no schema', { a: 'text' }, /^events\["a"\] is "text": give a Standard Schema/],
    ['a topic with a star', { 'a.*': z.string() }, /^events has the topic "a\.\*": use words/],
    ['a long topic', { ['a'.repeat(256)]: z.string() }, /at most 255 bytes/],
    ['no schema inside', { a: { schema: 1 } }, /^events\["a"\]\.schema is 1: give a Standard/],
    ['no JSON Schema beside it', { a: { schema: z.string() } }, /^events\["a"\]\.jsonSchema is/],
    ['an unknown field', { a: { schema: z.string(), name: 'b' } }, /name is not an option/],
  ])('with %s are refused', (_what, definitions, words) => {
    expect(() => defineEvents(definitions as never)).toThrow(words);
  });

  it('are copied: later changes have no effect', () => {
    const given: Record<string, z.ZodType> = { a: z.string() };
    const events = defineEvents(given);
    given['b'] = z.string();
    expect(Object.keys(events.definitions)).toEqual(['a']);
    expect(Object.isFrozen(events.definitions)).toBe(true);
  });

  it('must come from defineEvents', () => {
    for (const events of [{ a: z.string() }, z.string(), null, 'a']) {
      const make = () => createOutbox({ events: events as never });
      expect(make).toThrow(/^outbox\.events is .*: make it with defineEvents/);
    }
    const config = { destinations: {}, routes: [], events: {} as never };
    expect(() => createRelay(config)).toThrow(/^config\.events is \{\}: make it with defineEvents/);
  });
});

/** Records queries, and answers as if each had enqueued one message. */
function listeningClient() {
  const asked: unknown[][] = [];
  return {
    asked,
    query: (...call: unknown[]) => {
      asked.push(call);
      return Promise.resolve({ rows: [{ answer: '{"ids":["a"]}' }] });
    },
  };
}

async function refusalOf(outbox: Outbox, messages: readonly unknown[]) {
  const client = listeningClient();
  const error: unknown = await outbox
    .enqueueMany(client, messages as Message[], { autonomous: true })
    .catch((thrown: unknown) => thrown);
  expect(client.asked).toEqual([]);
  expect(error).toBeInstanceOf(MessageRefusedError);
  return error as MessageRefusedError;
}

describe('an invalid payload', () => {
  const fields = { userId: 1, address: { email: 7 } };

  it.each([
    ['zod', z.object({ userId: z.string(), address: z.object({ email: z.string() }) })],
    ['valibot', v.object({ userId: v.string(), address: v.object({ email: v.string() }) })],
    ['arktype', type({ userId: 'string', address: { email: 'string' } })],
  ])('is refused with the event, the path and the remedy: %s', async (_library, schema) => {
    const outbox = createOutbox({ events: defineEvents({ 'user.registered': schema }) }) as Outbox;
    const error = await refusalOf(outbox, [{ topic: 'user.registered', payload: fields }]);
    expect(['payload.userId', 'payload.address.email']).toContain(error.field);
    expect(error.message).toContain('of "user.registered" is refused by its schema: ');
    expect(error.message).toContain('payload.userId');
    expect(error.message).toContain('payload.address.email');
    expect(error.message).toMatch(/Send what the schema .* as user\.registered\.v2\.$/);
  });

  it('is refused for a whole batch, before any message is sent', async () => {
    const outbox = createOutbox({ events: defineEvents({ a: z.string() }) }) as Outbox;
    const error = await refusalOf(outbox, [
      { topic: 'a', payload: 'fits' },
      { topic: 'a', payload: 1 },
    ]);
    expect(error.field).toBe('messages[1].payload');
  });

  it('is refused by an asynchronous schema', async () => {
    const schema = z.string().refine(async (text) => Promise.resolve(text !== 'taken'), 'is taken');
    const outbox = createOutbox({ events: defineEvents({ a: schema }) }) as Outbox;
    const error = await refusalOf(outbox, [{ topic: 'a', payload: 'taken' }]);
    expect(error.message).toContain('payload of "a" is refused by its schema: is taken.');
    const client = listeningClient();
    await outbox.enqueue(client, { topic: 'a', payload: 'free' }, { autonomous: true });
    expect(client.asked).toHaveLength(1);
  });

  it('names ten problems at most, and the number of others', async () => {
    const issues = Array.from({ length: 12 }, (_none, index) => ({ message: `no ${index}` }));
    const schema = standard(() => ({ issues }));
    const error = await refusalOf(outboxOf(schema), [{ topic: 'a' }]);
    expect(error.message).toContain('no 9; and 2 more.');
    expect(error.message).not.toContain('no 10');
  });

  it.each([
    [
      'throws',
      () => {
        throw new Error('no connection');
      },
      /its schema failed: no connection/,
    ],
    ['rejects', () => Promise.reject(new Error('no answer')), /its schema failed: no answer/],
    ['answers nothing', () => undefined, /its schema answered undefined/],
    ['answers nonsense', () => ({ issues: 'many' }), /its schema answered \{"issues":"many"\}/],
  ])('is not accepted by a schema that %s', async (_what, validate, words) => {
    const error = await refusalOf(outboxOf(standard(validate)), [{ topic: 'a' }]);
    expect(error.message).toMatch(/^payload of "a" could not be checked/);
    expect(error.message).toMatch(words);
  });
});

function standard(validate: () => unknown) {
  return { '~standard': { version: 1, vendor: 'test', validate: validate as never } } as const;
}

const outboxOf = (schema: ReturnType<typeof standard>) =>
  createOutbox({ events: defineEvents({ a: schema }) }) as Outbox;

describe('a message', () => {
  const outbox = createOutbox({
    events: defineEvents({ a: z.unknown(), b: z.unknown() }),
  }) as Outbox;

  it.each(['c', 'constructor', undefined])(
    'of the topic %s, which is not an event, is refused',
    async (topic) => {
      const error = await refusalOf(outbox, [{ topic, payload: 1 }]);
      expect(error.field).toBe('topic');
      expect(error.message).toMatch(/is not one of the events: use a, b, add it to defineEvents/);
    },
  );

  it('that is null or undefined is refused', async () => {
    expect((await refusalOf(outbox, [null])).field).toBe('topic');
  });

  it('given as JSON text is refused, because no schema has checked it', async () => {
    const error = await refusalOf(outbox, [{ topic: 'a', payloadText: '{}' }]);
    expect(error.message).toMatch(
      /^payloadText of "a" cannot be checked by its schema: give payload/,
    );
  });

  it('keeps its other fields, and the rules for every message apply', async () => {
    const error = await refusalOf(outbox, [{ topic: 'a', payload: { n: 12n } }]);
    expect(error.message).toMatch(/^payload\.n is a BigInt/);
    expect((await refusalOf(outbox, [{ topic: 'a', topics: 'b' }])).field).toBe('topics');
  });
});

describe('events.handler', () => {
  const events = defineEvents({
    'user.registered': z.object({ email: z.string() }),
    'user.registered.v2': z.object({ address: z.object({ email: z.string() }) }),
  });

  it('gives each message to the function of its event', async () => {
    const seen: string[] = [];
    const destination = events.handler({
      'user.registered': ({ payload }) => void seen.push(`1 ${payload.email}`),
      'user.registered.v2': async ({ payload }) => {
        await Promise.resolve();
        seen.push(`2 ${payload.address.email}`);
      },
    });
    const first = claimedMessage({ topic: 'user.registered', payload: '{"email":"a"}' });
    const second = claimedMessage({
      topic: 'user.registered.v2',
      payload: '{"address":{"email":"b"}}',
    });
    const outcomes = [
      await destination.deliver(first, context()),
      await destination.deliver(second, context()),
    ];
    expect(outcomes).toMatchObject([{ kind: 'delivered' }, { kind: 'delivered' }]);
    expect(seen).toEqual(['1 a', '2 b']);
  });

  it('retries a message without a function, and reports it', async () => {
    const destination = events.handler({ 'user.registered': () => {} });
    for (const topic of ['user.registered.v2', 'constructor']) {
      const outcome = await destination.deliver(claimedMessage({ topic }), context());
      expect(outcome).toMatchObject({ kind: 'retry', code: 'no_handler' });
    }
  });

  it('parses a payload only when a function needs it', async () => {
    const destination = events.handler({ 'user.registered': () => {} });
    const message = claimedMessage({ topic: 'user.registered', payload: 'not JSON' });
    expect(await destination.deliver(message, context())).toMatchObject({ kind: 'delivered' });
  });

  it('accepts the settings of every destination', () => {
    expect(events.handler({}, { concurrency: 3 }).settings.concurrency).toBe(3);
    expect(() => events.handler({}, { concurency: 3 } as never).settings).toThrow(
      /concurency is not an option/,
    );
  });

  it.each([
    ['no object', null, /^events\.handler is null: give an object/],
    ['an unknown event', { a: () => {} }, /a function for "a", which is not one of the events/],
    [
      'no function',
      { 'user.registered': 1 },
      /^events\.handler\["user\.registered"\] is 1: give a/,
    ],
  ])('is refused with %s', (_what, handlers, words) => {
    expect(() => events.handler(handlers as never)).toThrow(words);
  });

  it('and is() distinguish the events of a batch', () => {
    const message = claimedMessage({ topic: 'user.registered', payload: '{"email":"a"}' });
    expect(events.is(message, 'user.registered')).toBe(true);
    expect(events.is(message, 'user.registered.v2')).toBe(false);
  });
});

describe('a version', () => {
  it.each([
    ['user.registered', 'user.registered', 1, 'user.registered.v2'],
    ['user.registered.v2', 'user.registered', 2, 'user.registered.v3'],
    ['user.registered.v10', 'user.registered', 10, 'user.registered.v11'],
    ['user.v0', 'user.v0', 1, 'user.v0.v2'],
    ['v2', 'v2', 1, 'v2.v2'],
  ])('is the end of the topic: %s', (topic, event, version, next) => {
    expect(versionOf(topic)).toEqual({ event, version });
    expect(nextVersion(topic)).toBe(next);
  });
});
