// Examples of typed events for customers: given ones are kept, others are made from the schema, and they fit it.

import { toStandardJsonSchema } from '@valibot/to-json-schema';
import { Ajv } from 'ajv';
import { type } from 'arktype';
import * as v from 'valibot';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';

import { offeredEvents } from '../../src/features/endpoints/offered-events.js';
import { defineEvents } from '../../src/index.js';
import { jsonSchemaOf } from '../../src/producer/events/json-schema.js';

const Tree = z.object({
  name: z.string(),
  get children() {
    return z.array(Tree);
  },
});

const events = defineEvents({
  'a.given': z
    .object({ n: z.number() })
    .describe('What it means.')
    .meta({ examples: [{ n: 42 }] }),
  'a.made': z.object({
    id: z.uuid(),
    email: z.email().optional(),
    at: z.date(),
    kind: z.enum(['one', 'two']),
    count: z.int().min(5),
    share: z.number().max(0.5),
    code: z.string().min(6).max(8),
    tags: z.array(z.string()),
    nested: z.object({ flag: z.boolean(), none: z.null() }),
    either: z.union([z.null(), z.literal('x')]),
    usual: z.string().default('usual'),
  }),
  'a.tree': Tree,
  'b.valibot': toStandardJsonSchema(
    v.pipe(v.object({ url: v.pipe(v.string(), v.url()) }), v.description('From valibot.')),
  ),
  'b.arktype': type({ id: 'number.integer > 3', 'note?': 'string' }),
  'c.undescribed': z.object({ id: z.bigint() }),
  'c.nothing': z.undefined(),
});

describe('the example of', () => {
  const described = offeredEvents(events).filter(({ topic }) => topic !== 'c.undescribed');
  it.each(described)('W5 $topic fits its schema', ({ topic, example }) => {
    const definition = events.definitions[topic as keyof typeof events.definitions];
    const { $schema: _schema, ...schema } = jsonSchemaOf(topic, definition);
    const validate = new Ajv({ strict: false, validateFormats: false }).compile(schema);
    expect([validate(example), validate.errors, example]).toEqual([true, null, example]);
  });
});

it('W5 a description and an example are those of the schema, if it has them', () => {
  const [given] = offeredEvents(events);
  expect(given).toEqual({ topic: 'a.given', description: 'What it means.', example: { n: 42 } });
  expect(offeredEvents(events, ['b.valibot'])).toEqual([
    { topic: 'b.valibot', description: 'From valibot.', example: { url: 'https://example.com/' } },
  ]);
});

it('W5 an event that cannot be described is offered without an example', () => {
  expect(offeredEvents(events, ['c.undescribed'])).toEqual([
    { topic: 'c.undescribed', description: null },
  ]);
});

it('W5 topics limit the events as in a route', () => {
  const topics = (...wanted: string[]) => offeredEvents(events, wanted).map(({ topic }) => topic);
  expect(topics('a.*')).toEqual(['a.given', 'a.made', 'a.tree']);
  expect(topics('a.made', 'b.*')).toEqual(['a.made', 'b.arktype', 'b.valibot']);
  expect(topics('a')).toEqual([]);
  expect(topics('*')).toHaveLength(7);
  expect(offeredEvents(undefined)).toEqual([]);
});
