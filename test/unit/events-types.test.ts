// The static types of typed events, with the real libraries. `npm run check:types` checks this file: a line that should
// not compile but does, or a wrong type, fails there.

import { type } from 'arktype';
import * as v from 'valibot';
import { describe, expectTypeOf, it } from 'vitest';
import { z } from 'zod';

import { batchHandler, createOutbox, defineConfig, defineEvents } from '../../src/index.js';
import type { EventMessage, EventPayload, Outbox } from '../../src/index.js';

const events = defineEvents({
  'user.registered': z.object({
    userId: z.number(),
    email: z.string().optional(),
    plan: z.enum(['free', 'paid']).default('free'),
    at: z.date(),
  }),
  'user.invited': v.object({ email: v.string(), note: v.nullable(v.string()) }),
  'user.invited.v2': type({ email: 'string', 'tags?': 'string[]' }),
  'user.counted': { schema: z.string().transform(Number), jsonSchema: { type: 'number' } },
  'cache.cleared': z.undefined(),
});
const outbox = createOutbox({ events });
const tx = { query: () => Promise.resolve({ rows: [] }) };
const at = new Date(0);

/** Compiled, and never run. */
const compiled = (_code: () => unknown) => undefined;

describe('enqueue', () => {
  it('accepts the input of the schema, before defaults and transforms', () => {
    compiled(() => outbox.enqueue(tx, { topic: 'user.registered', payload: { userId: 1, at } }));
    compiled(() => outbox.enqueue(tx, { topic: 'user.counted', payload: '12', key: 'a' }));
    compiled(() => outbox.enqueue(tx, { topic: 'cache.cleared', delayMs: 5 }));
    compiled(() =>
      outbox.enqueueMany(tx, [
        { topic: 'user.invited', payload: { email: 'a', note: null } },
        { topic: 'user.invited.v2', payload: { email: 'a', tags: ['b'] } },
      ]),
    );
  });

  it('refuses what the schema does not accept', () => {
    // @ts-expect-error a topic that is no event
    compiled(() => outbox.enqueue(tx, { topic: 'user.registred', payload: { userId: 1, at } }));
    // @ts-expect-error a property with another type
    compiled(() => outbox.enqueue(tx, { topic: 'user.registered', payload: { userId: 'x', at } }));
    // @ts-expect-error a property that is missing
    compiled(() => outbox.enqueue(tx, { topic: 'user.registered', payload: { at } }));
    // @ts-expect-error no payload
    compiled(() => outbox.enqueue(tx, { topic: 'user.invited.v2' }));
    // @ts-expect-error the payload of another event
    compiled(() => outbox.enqueue(tx, { topic: 'user.invited', payload: { userId: 1, at } }));
    // @ts-expect-error text that no schema sees
    compiled(() => outbox.enqueue(tx, { topic: 'cache.cleared', payloadText: '{}' }));
    compiled(() =>
      outbox.enqueueMany(tx, [
        { topic: 'cache.cleared' },
        // @ts-expect-error the same for each of a batch
        { topic: 'user.counted', payload: 12 },
      ]),
    );
  });

  it('has a type that can be named', () => {
    expectTypeOf(outbox).toEqualTypeOf<Outbox<EventMessage<typeof events>>>();
  });

  it('is unchanged without events', () => {
    const plain = createOutbox();
    expectTypeOf(plain).toEqualTypeOf<Outbox>();
    expectTypeOf(createOutbox({ schema: 'a' })).toEqualTypeOf<Outbox>();
    compiled(() => plain.enqueue(tx, { topic: 'anything', payload: { whatever: [1] } }));
    compiled(() => plain.enqueue(tx, { topic: 'anything', payloadText: '{}' }));
  });
});

type Payload<Topic extends keyof (typeof events)['definitions']> = EventPayload<
  typeof events,
  Topic
>;

describe('a handler', () => {
  it('gets the output of the schema, after its way through JSON', () => {
    expectTypeOf<Payload<'user.registered'>>().toEqualTypeOf<{
      userId: number;
      email?: string;
      plan: 'free' | 'paid';
      at: string;
    }>();
    expectTypeOf<Payload<'user.invited'>>().toEqualTypeOf<{ email: string; note: string | null }>();
    expectTypeOf<Payload<'user.invited.v2'>>().toEqualTypeOf<{ email: string; tags?: string[] }>();
    expectTypeOf<Payload<'user.counted'>>().toEqualTypeOf<number>();
    expectTypeOf<Payload<'cache.cleared'>>().toEqualTypeOf<null>();
  });

  it('has the type of its event, and the other fields of a message', () => {
    events.handler({
      'user.registered': (message, context) => {
        expectTypeOf(message.topic).toEqualTypeOf<'user.registered'>();
        expectTypeOf(message.payload.at).toEqualTypeOf<string>();
        expectTypeOf(message.id).toEqualTypeOf<string>();
        expectTypeOf(context.signal).toEqualTypeOf<AbortSignal>();
        // @ts-expect-error no such property
        void message.payload.name;
      },
    });
    compiled(() =>
      events.handler({
        // @ts-expect-error a topic that is no event
        'user.registred': () => {},
      }),
    );
  });

  it('of batches and of stream mode narrows the type by the topic', () => {
    batchHandler((messages) => {
      for (const message of messages) {
        // @ts-expect-error not known yet
        void message.payload.email;
        if (events.is(message, 'user.invited.v2'))
          expectTypeOf(message.payload.tags).toEqualTypeOf<string[] | undefined>();
      }
      return Promise.resolve();
    });
    // @ts-expect-error a topic that is no event
    compiled(() => events.is({ topic: 'a' }, 'user.registred'));
  });
});

const deep = defineEvents({
  deep: z.object({
    list: z.array(z.object({ at: z.date() })),
    pair: z.tuple([z.string(), z.number()]),
    byName: z.record(z.string(), z.number()),
    either: z.union([z.literal('a'), z.object({ n: z.null() })]),
    anything: z.unknown(),
    branded: z.string().brand<'Id'>(),
    amount: z.bigint(),
    required: z.union([z.string(), z.undefined()]),
  }),
});

describe('JSON', () => {
  it('is followed into lists, tuples, records, unions and brands', () => {
    type Deep = EventPayload<typeof deep, 'deep'>;
    expectTypeOf<Deep['list']>().toEqualTypeOf<{ at: string }[]>();
    expectTypeOf<Deep['pair']>().toEqualTypeOf<[string, number]>();
    expectTypeOf<Deep['byName']>().toEqualTypeOf<{ [x: string]: number }>();
    expectTypeOf<Deep['either']>().toEqualTypeOf<'a' | { n: null }>();
    expectTypeOf<Deep['anything']>().toEqualTypeOf<unknown>();
    expectTypeOf<Deep['branded']>().toExtend<string>();
    expectTypeOf<Deep['amount']>().toEqualTypeOf<never>();
    expectTypeOf<Deep['required']>().toEqualTypeOf<string | undefined>();
  });
});

describe('the configuration', () => {
  it('takes the events', () => {
    compiled(() => defineConfig({ destinations: {}, routes: [], events }));
    // @ts-expect-error schemas without defineEvents
    compiled(() => defineConfig({ destinations: {}, routes: [], events: { a: z.string() } }));
  });
});
