// The AsyncAPI document of typed events: it is valid by the official JSON Schema of AsyncAPI 3.0.0, its references
// resolve, and its payloads describe the stored form.

import specs from '@asyncapi/specs';
import { toStandardJsonSchema } from '@valibot/to-json-schema';
import { Ajv } from 'ajv';
import { type } from 'arktype';
import * as v from 'valibot';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';

import {
  asyncApiDocument,
  payloadsOf,
  resolvePointer,
} from '../../src/producer/events/asyncapi.js';
import { eventChanges } from '../../src/producer/events/changes.js';
import { defineEvents } from '../../src/index.js';

const isAsyncApi = new Ajv({ strict: false, validateFormats: false, allErrors: true }).compile(
  specs.schemasWithoutId['3.0.0'] as object,
);

function problemsOf(document: unknown) {
  isAsyncApi(structuredClone(document));
  return isAsyncApi.errors ?? [];
}

const Tree = z.object({
  name: z.string(),
  get children() {
    return z.array(Tree);
  },
});

const events = defineEvents({
  'user.registered': z.object({
    userId: z.int(),
    email: z.email(),
    at: z.date(),
    plan: z.enum(['free', 'paid']).default('free'),
    note: z.string().nullable().optional(),
    id: z.string().meta({ id: 'Identifier' }),
  }),
  'user.registered.v2': toStandardJsonSchema(
    v.object({ userId: v.number(), at: v.optional(v.date()) }),
  ),
  'user.invited': type({ email: 'string.email', 'at?': 'Date', kind: "'a'|'b'" }),
  'tree/grown:fast': Tree,
  'user.counted': {
    schema: z.string().transform((text) => text.length),
    jsonSchema: { type: 'integer', minimum: 0, examples: [{ $ref: '#/none' }] },
  },
});

const document = asyncApiDocument(events);
const payload = (topic: string) => payloadsOf(document, 'the document').get(topic);

describe('the document', () => {
  it('is valid AsyncAPI 3.0.0', () => {
    expect(problemsOf(document)).toEqual([]);
    // an invalid document would be reported
    expect(problemsOf({ ...document, operations: { a: { action: 'shout' } } })).not.toEqual([]);
    expect(problemsOf({ ...document, channels: { a: { messages: [] } } })).not.toEqual([]);
  });

  it('has a channel, a message and an operation for each event, in a stable order', () => {
    const topics = Object.keys(events.definitions).toSorted();
    expect(Object.keys(document.channels)).toEqual(topics);
    const operations = document['operations'] as Record<
      string,
      { action: string; channel: { $ref: string }; messages: { $ref: string }[] }
    >;
    expect(Object.keys(operations)).toHaveLength(topics.length);
    for (const topic of topics) {
      const { action, channel, messages } = operations[`send.${topic}`] ?? {};
      expect(action).toBe('send');
      expect(resolvePointer(document, channel?.$ref ?? '')).toMatchObject({ address: topic });
      expect(messages?.map(({ $ref }) => resolvePointer(document, $ref))).toMatchObject([
        { name: topic, contentType: 'application/json' },
      ]);
    }
  });

  it('keeps a newer version of the format', () => {
    expect(asyncApiDocument(events, { asyncapi: '3.1.0' }).asyncapi).toBe('3.1.0');
  });

  it('keeps what an author added beside channels and operations', () => {
    const earlier = {
      asyncapi: '2.6.0',
      info: { title: 'Shop', version: '7.1.0' },
      servers: { production: { host: 'example.com', protocol: 'kafka' } },
      channels: {},
    };
    const written = asyncApiDocument(events, earlier);
    expect(written).toMatchObject({ ...document, info: earlier.info, servers: earlier.servers });
    expect(problemsOf(written)).toEqual([]);
  });
});

describe('a payload', () => {
  it('is described as it is stored: defaults filled in, dates as text', () => {
    expect(payload('user.registered')).toMatchObject({
      type: 'object',
      properties: {
        at: { type: 'string', format: 'date-time' },
        plan: { enum: ['free', 'paid'] },
      },
      required: ['userId', 'email', 'at', 'plan', 'id'],
    });
    expect(payload('user.registered.v2')).toMatchObject({
      properties: { at: { type: 'string', format: 'date-time' } },
      required: ['userId'],
    });
    expect(payload('user.invited')).toMatchObject({
      properties: { at: { type: 'string', format: 'date-time' }, kind: { enum: ['a', 'b'] } },
      required: ['email', 'kind'],
    });
  });

  it.each([
    ['zod', z.object({ a: z.string() }).optional()],
    ['valibot', toStandardJsonSchema(v.optional(v.object({ a: v.string() })))],
    ['a tree', Tree.optional()],
  ])('that is optional may be null, because it is stored as null: %s', (_what, schema) => {
    const written = asyncApiDocument(defineEvents({ a: schema }));
    expect(problemsOf(written)).toEqual([]);
    expect(payloadsOf(written, 'it').get('a')).toMatchObject({ anyOf: [{}, { type: 'null' }] });
    const always = asyncApiDocument(defineEvents({ a: z.object({ a: z.string() }) }));
    expect(eventChanges(always, 'it', written)[0]).toMatchObject({ breaking: true });
  });

  it.each([
    ['that is left out always is null', z.undefined(), { type: 'null' }],
    ['that has a default is never null', z.string().default('a'), { type: 'string', default: 'a' }],
    ['that may have any value may be null already', z.unknown(), {}],
  ])('%s', (_what, schema, described) => {
    const written = asyncApiDocument(defineEvents({ a: schema }));
    expect(payloadsOf(written, 'it').get('a')).toEqual(described);
  });

  it('has references to its own parts', () => {
    const { properties } = payload('tree/grown:fast') as {
      properties: { children: { items: { $ref: string } } };
    };
    expect(resolvePointer(document, properties.children.items.$ref)).toBe(
      payload('tree/grown:fast'),
    );
    const { id } = (payload('user.registered') as { properties: { id: { $ref: string } } })
      .properties;
    expect(resolvePointer(document, id.$ref)).toMatchObject({ type: 'string' });
  });

  it('is the one given beside the schema; data in it is not taken for a reference', () => {
    expect(payload('user.counted')).toEqual({
      type: 'integer',
      minimum: 0,
      examples: [{ $ref: '#/none' }],
    });
  });

  it('that cannot be described is refused with the event and the remedy', () => {
    const unmade = { '~standard': { version: 1, vendor: 'own', validate: () => ({}) } } as const;
    const cases = {
      'valibot alone': [v.object({}), /its schema \(of valibot\) offers no JSON Schema/],
      'a custom schema': [unmade, /its schema \(of own\) offers no JSON Schema/],
      'a transform of zod': [z.string().transform(Number), /zod says: transform cannot be/],
      'a BigInt of zod': [z.object({ n: z.bigint() }), /zod says: bigint cannot be/],
      'a BigInt of arktype': [type({ n: 'bigint' }), /arktype says: domain cannot be/],
      'a transform of valibot': [
        toStandardJsonSchema(v.pipe(v.string(), v.transform(Number))),
        /valibot says: .*transform/,
      ],
    } as const;
    for (const [what, [schema, words]] of Object.entries(cases)) {
      const write = () => asyncApiDocument(defineEvents({ 'user.left': schema }));
      expect(write, what).toThrow(words);
      expect(write, what).toThrow(
        /^events\["user\.left"\] cannot be described: .*\{ schema, jsonSchema \}/,
      );
    }
  });
});

describe('a document by another tool', () => {
  const text = { type: 'string' };
  const payloadsIn = (channel: unknown, components: object = {}) =>
    payloadsOf({ asyncapi: '3.0.0', channels: { a: channel }, components }, 'old.json');

  it('may have its payloads in place, with a format, behind references, or several in a channel', () => {
    const components = {
      channels: { A: { address: 'b', messages: { m: { $ref: '#/components/messages/M' } } } },
      messages: { M: { payload: text } },
    };
    const formatted = { schemaFormat: 'application/schema+json;version=draft-07', schema: text };
    expect(payloadsIn({ messages: { m: { payload: text } } })).toEqual(new Map([['a', text]]));
    expect(payloadsIn({ messages: { m: { payload: formatted } } }).get('a')).toEqual(text);
    const behind = payloadsIn({ $ref: '#/components/channels/A' }, components);
    expect(behind).toEqual(new Map([['b', text]]));
    const two = payloadsIn({
      messages: { m: { payload: text }, n: { payload: { type: 'null' } } },
    });
    expect(two.get('a')).toEqual({ anyOf: [text, { type: 'null' }] });
    expect(payloadsIn({ address: null })).toEqual(new Map([['a', {}]]));
  });

  it.each([
    [null, /channels\["a"\] is null\. Give an object/],
    [{ $ref: '#/components/none' }, /channels\["a"\] is \{"\$ref":"#\/components\/none"\}/],
    [
      { messages: { m: { $ref: 'other.json#/m' } } },
      /channels\["a"\]\.messages\["m"\] is \{"\$ref"/,
    ],
  ])('is refused if it cannot be read: %j', (channel, words) => {
    expect(() => payloadsIn(channel)).toThrow(/^old\.json cannot be compared: /);
    expect(() => payloadsIn(channel)).toThrow(words);
  });
});

const noChannels = { asyncapi: '3.0.0', channels: null };

describe('a file that is not an AsyncAPI 3 document', () => {
  it.each([null, {}, { asyncapi: '2.6.0', channels: {} }, { asyncapi: '3.0.0' }, noChannels])(
    'is refused: %j',
    (given) => {
      expect(() => payloadsOf(given, 'old.json')).toThrow(
        /^old\.json is not an AsyncAPI 3 document/,
      );
    },
  );
});
