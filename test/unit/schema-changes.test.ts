// The changes between two JSON Schemas of a payload: each kind of change by example, in both directions, and different
// notations that are no change.

import { type } from 'arktype';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';

import { closed, object, text, told, whole } from '../support/schemas.js';

const card = object({ kind: { const: 'card' }, last4: text }, ['kind', 'last4'], closed);
const cash = object({ kind: { const: 'cash' } }, ['kind'], closed);

type Case = [what: string, before: unknown, after: unknown, told: string[]];

/** The second column lists the changes of the reverse direction. */
const cases: [...Case, string[]][] = [
  [
    'a property that is there or not',
    object({ a: text }),
    object({ a: text, b: text }),
    ['payload.b property_added'],
    ['!payload.b property_removed'],
  ],
  [
    'a required property that is there or not',
    object({}),
    object({ b: text }, ['b']),
    ['!payload.b property_required'],
    ['!payload.b property_removed'],
  ],
  [
    'a property that is required or not',
    object({ a: text }),
    object({ a: text }, ['a']),
    ['!payload.a property_required'],
    ['!payload.a property_optional'],
  ],
  [
    'a name that is required without being described',
    object({}),
    object({}, ['constructor']),
    ['!payload.constructor property_required'],
    ['!payload.constructor property_optional'],
  ],
  [
    'the type of a name that was required without being described',
    object({}, ['a']),
    object({ a: text }, ['a']),
    ['!payload.a type_narrowed', 'payload.a property_added'],
    ['!payload.a property_removed'],
  ],
  [
    'other properties',
    object({ a: text }),
    object({ a: text }, [], closed),
    ['!payload closed'],
    ['payload opened'],
  ],
  [
    'the type of other properties',
    object({}, [], { additionalProperties: { type: ['string', 'null'] } }),
    object({}, [], { additionalProperties: text }),
    ['!payload.* type_narrowed'],
    ['!payload.* type_widened'],
  ],
  [
    'a name among others of one type, with a type of its own',
    object({}, [], { additionalProperties: text }),
    object({ a: whole }, [], { additionalProperties: text }),
    ['!payload.a type_changed', 'payload.a property_added'],
    ['!payload.a property_removed'],
  ],
  [
    'a type',
    object({ a: text }),
    object({ a: { type: 'number' } }),
    ['!payload.a type_changed'],
    ['!payload.a type_changed'],
  ],
  [
    'null',
    { type: ['string', 'null'] },
    text,
    ['!payload type_narrowed'],
    ['!payload type_widened'],
  ],
  ['anything', {}, text, ['!payload type_narrowed'], ['!payload type_widened']],
  ['nothing', false, text, ['payload opened'], ['!payload closed']],
  [
    'whole numbers',
    { type: 'number' },
    whole,
    ['!payload type_narrowed'],
    ['!payload type_widened'],
  ],
  [
    'listed values',
    { type: 'string', enum: ['a', 'b'] },
    { enum: ['a'] },
    ['!payload value_removed'],
    ['payload value_added'],
  ],
  ['any value', text, { const: 'a' }, ['!payload value_removed'], ['payload value_added']],
  [
    'both booleans',
    { type: 'boolean' },
    { const: true },
    ['!payload value_removed'],
    ['payload value_added'],
  ],
  [
    'a value that is both listed and fixed',
    { enum: [1.5, 2] },
    { enum: [1.5, 2], const: 2 },
    ['!payload value_removed'],
    ['payload value_added'],
  ],
  [
    'a listed value that is not whole',
    { enum: [1, 1.5] },
    whole,
    ['!payload value_removed'],
    ['!payload value_removed'],
  ],
  ...(
    [
      [text, 'format', 'email'],
      [text, 'pattern', '^a'],
      [text, 'minLength', 1],
      [text, 'maxLength', 9],
      [whole, 'minimum', 0],
      [whole, 'maximum', 9],
      [{ type: 'number' }, 'exclusiveMinimum', 0],
      [{ type: 'number' }, 'exclusiveMaximum', 9],
      [{ type: 'number' }, 'multipleOf', 5],
      [{ type: 'array' }, 'minItems', 1],
      [{ type: 'array' }, 'maxItems', 9],
      [{ type: 'array' }, 'uniqueItems', true],
      [{ type: 'object' }, 'minProperties', 1],
      [{ type: 'object' }, 'maxProperties', 9],
    ] as const
  ).map(([base, keyword, value]): [...Case, string[]] => [
    keyword,
    base,
    { ...base, [keyword]: value },
    ['!payload limit_tightened'],
    ['payload limit_loosened'],
  ]),
  [
    'another format',
    { type: 'string', format: 'email' },
    { type: 'string', format: 'uri' },
    ['!payload limit_tightened'],
    ['!payload limit_tightened'],
  ],
  [
    'a limit that counts itself or not',
    { type: 'number', minimum: 0 },
    { type: 'number', exclusiveMinimum: 0 },
    ['!payload limit_tightened'],
    ['payload limit_loosened'],
  ],
  ['a limit of whole numbers', { ...whole, minimum: 1 }, { ...whole, exclusiveMinimum: 0 }, [], []],
  [
    'a multiple of a multiple',
    { type: 'number', multipleOf: 5 },
    { type: 'number', multipleOf: 10 },
    ['!payload limit_tightened'],
    ['payload limit_loosened'],
  ],
  [
    'items',
    { type: 'array', items: object({ a: text }) },
    { type: 'array', items: object({ a: whole }) },
    ['!payload[].a type_changed'],
    ['!payload[].a type_changed'],
  ],
  [
    'a tuple',
    { type: 'array', items: [text, text], additionalItems: false },
    { type: 'array', items: [text, whole], additionalItems: false },
    ['!payload[1] type_changed'],
    ['!payload[1] type_changed'],
  ],
  [
    'a longer tuple',
    { type: 'array', items: [text], additionalItems: false },
    { type: 'array', items: [text, whole], additionalItems: false },
    ['payload[1] opened'],
    ['!payload[1] closed'],
  ],
  [
    'alternatives',
    { oneOf: [card, cash] },
    { oneOf: [cash] },
    ['!payload shape_removed'],
    ['!payload shape_added'],
  ],
  [
    'a part of one of several alternatives',
    { oneOf: [card, cash] },
    { oneOf: [cash, object({ kind: { const: 'card' }, last4: whole }, ['kind', 'last4'], closed)] },
    ['!payload.last4 type_changed'],
    ['!payload.last4 type_changed'],
  ],
  [
    'the names of properties',
    { type: 'object', propertyNames: { enum: ['a', 'b'] } },
    { type: 'object', propertyNames: { enum: ['a'] } },
    ['!payload.(names) value_removed'],
    ['payload.(names) value_added'],
  ],
  [
    'what cannot be judged',
    { type: 'string', not: { const: 'a' } },
    { type: 'string', not: { const: 'b' } },
    ['!payload unjudged'],
    ['!payload unjudged'],
  ],
  [
    'a definition behind a reference that cannot be judged',
    { type: 'string', not: { $ref: '#/definitions/a' }, definitions: { a: { const: 'a' } } },
    { type: 'string', not: { $ref: '#/definitions/a' }, definitions: { a: { const: 'b' } } },
    ['!payload unjudged'],
    ['!payload unjudged'],
  ],
  [
    'a definition whose references stay as they are',
    object({ a: object({ b: { $ref: '#/definitions/x' } }) }, [], { definitions: { x: text } }),
    object({ a: object({ b: { $ref: '#/definitions/x' } }) }, [], { definitions: { x: whole } }),
    ['!payload.a.b type_changed'],
    ['!payload.a.b type_changed'],
  ],
  [
    'parts, one of which is closed and refuses what the other one has',
    object({ a: text, b: text }, [], closed),
    { type: 'object', allOf: [object({ a: text }, [], closed), object({ b: text })] },
    [
      '!payload unjudged',
      '!payload.a property_removed',
      '!payload.b property_removed',
      'payload opened',
    ],
    [
      '!payload unjudged',
      'payload.a property_added',
      'payload.b property_added',
      '!payload closed',
    ],
  ],
  [
    'a schema that contains itself',
    object({ name: text, next: { $ref: '#' } }),
    object({ name: whole, next: { $ref: '#' } }),
    ['!payload.name type_changed'],
    ['!payload.name type_changed'],
  ],
  [
    'the text about it',
    { type: 'string', title: 'A', description: 'a', default: 'a', examples: ['a'] },
    { type: 'string', title: 'B', description: 'b' },
    [],
    [],
  ],
];

describe('a change of', () => {
  it.each(cases)('%s is reported in both directions', (_what, before, after, forth, back) => {
    expect(told(before, after)).toEqual(forth);
    expect(told(after, before)).toEqual(back);
  });
});

describe('an equivalent notation is no change:', () => {
  it.each([
    [
      'a list of types or alternatives',
      { type: ['string', 'null'] },
      { anyOf: [text, { type: 'null' }] },
    ],
    ['a value or a list of one', { const: 'a' }, { type: 'string', enum: ['a'] }],
    ['literals or a list', { anyOf: [{ const: 'a' }, { const: 'b' }] }, { enum: ['b', 'a'] }],
    [
      'an explicit or an implied keyword',
      { type: 'object' },
      object({}, [], { additionalProperties: true }),
    ],
    [
      'a reference or the definition itself',
      { $ref: '#/definitions/a', definitions: { a: text } },
      text,
    ],
    [
      'parts or the whole',
      { allOf: [object({ a: text }), object({ b: text }, ['b'])] },
      object({ a: text, b: text }, ['b']),
    ],
    ['true or an empty schema', true, {}],
    ['alternatives in another order', { anyOf: [card, cash] }, { anyOf: [cash, card] }],
    ['an alternative that another one covers', { anyOf: [text, { ...text, minLength: 3 }] }, text],
  ])('%s', (_what, before, after) => {
    expect(told(before, after)).toEqual([]);
    expect(told(after, before)).toEqual([]);
  });

  it('one event in two libraries', () => {
    const schema = { target: 'draft-07' };
    const inZod = z.looseObject({
      n: z.number(),
      kind: z.enum(['a', 'b']),
      list: z.array(z.string()),
    });
    const inArktype = type({ n: 'number', kind: "'a'|'b'", list: 'string[]' });
    const before = inZod['~standard'].jsonSchema.output(schema);
    const after = inArktype['~standard'].jsonSchema.output(schema);
    expect(told(before, after)).toEqual([]);
  });
});
