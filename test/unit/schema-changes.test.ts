// What two JSON Schemas of a payload have to do with each other: each kind of change by example, and in general,
// judged by a validator: nothing that was allowed is refused without a breaking change that says so.

import { Ajv } from 'ajv';
import { type } from 'arktype';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';

import { resolvePointer } from '../../src/events/asyncapi.js';
import { schemaChanges } from '../../src/events/schema-changes.js';

const side = (schema: unknown) => ({
  schema,
  resolve: (reference: string) => resolvePointer(schema, reference),
});
const changes = (before: unknown, after: unknown) => schemaChanges(side(before), side(after));

/** `path change`, with a `!` before those that break. */
const told = (before: unknown, after: unknown) =>
  changes(before, after).map(
    ({ path, change, breaking }) => `${breaking ? '!' : ''}${path} ${change}`,
  );

const text = { type: 'string' };
const whole = { type: 'integer' };
const object = (properties: object, required: string[] = [], rest: object = {}) => ({
  type: 'object',
  properties,
  required,
  ...rest,
});
const closed = { additionalProperties: false };
const card = object({ kind: { const: 'card' }, last4: text }, ['kind', 'last4'], closed);
const cash = object({ kind: { const: 'cash' } }, ['kind'], closed);

type Case = [what: string, before: unknown, after: unknown, told: string[]];

/** The second column of what is told is for the way back. */
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
  it.each(cases)('%s is told, and so is the way back', (_what, before, after, forth, back) => {
    expect(told(before, after)).toEqual(forth);
    expect(told(after, before)).toEqual(back);
  });
});

describe('the same thing, written in another way, is no change:', () => {
  it.each([
    [
      'a list of types or alternatives',
      { type: ['string', 'null'] },
      { anyOf: [text, { type: 'null' }] },
    ],
    ['a value or a list of one', { const: 'a' }, { type: 'string', enum: ['a'] }],
    ['literals or a list', { anyOf: [{ const: 'a' }, { const: 'b' }] }, { enum: ['b', 'a'] }],
    ['what is said or follows', { type: 'object' }, object({}, [], { additionalProperties: true })],
    [
      'a definition or the thing itself',
      { $ref: '#/definitions/a', definitions: { a: text } },
      text,
    ],
    [
      'parts or the whole',
      { allOf: [object({ a: text }), object({ b: text }, ['b'])] },
      object({ a: text, b: text }, ['b']),
    ],
    ['nothing or everything', true, {}],
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

const names = fc.constantFrom('a', 'b');
const values = fc.constantFrom<unknown>(null, true, false, 0, 1, 1.5, 2, 5, '', 'a', 'ab', 'abc');

const { schema: schemas } = fc.letrec<{ schema: object; leaf: object }>((tie) => ({
  leaf: fc.oneof(
    fc.constant({}),
    fc.record({ type: fc.constantFrom('string', 'number', 'integer', 'boolean', 'null') }),
    fc.record({ type: fc.constant(['string', 'null']) }),
    fc.record({ enum: fc.uniqueArray(values, { minLength: 1, maxLength: 3 }) }),
    fc.record({ const: values }),
    fc.record(
      {
        type: fc.constant('string'),
        minLength: fc.nat(2),
        maxLength: fc.nat(3),
        pattern: fc.constantFrom('^a', 'b'),
      },
      { requiredKeys: ['type'] },
    ),
    fc.record(
      {
        type: fc.constantFrom('number', 'integer'),
        minimum: fc.nat(2),
        exclusiveMinimum: fc.nat(2),
        maximum: fc.nat(5),
        exclusiveMaximum: fc.nat(5),
        multipleOf: fc.constantFrom(1, 2, 5),
      },
      { requiredKeys: ['type'] },
    ),
  ),
  schema: fc.oneof(
    { maxDepth: 3, depthSize: 'small' },
    tie('leaf'),
    fc.record(
      {
        type: fc.constant('object'),
        properties: fc.dictionary(names, tie('schema'), { noNullPrototype: true }),
        required: fc.uniqueArray(names),
        additionalProperties: fc.oneof(fc.boolean(), tie('leaf')),
        minProperties: fc.nat(2),
      },
      { requiredKeys: ['type'] },
    ),
    fc.record(
      {
        type: fc.constant('array'),
        items: tie('schema'),
        minItems: fc.nat(2),
        maxItems: fc.nat(2),
        uniqueItems: fc.boolean(),
      },
      { requiredKeys: ['type'] },
    ),
    fc.record({ anyOf: fc.array(tie('schema'), { minLength: 1, maxLength: 3 }) }),
    fc.record({ allOf: fc.array(tie('schema'), { minLength: 1, maxLength: 2 }) }),
    fc.record({ not: tie('leaf') }),
  ),
}));

/** `c` is a name that no schema knows. */
const payloads = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, depthSize: 'small' },
    values,
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom('a', 'b', 'c'), tie('value'), { noNullPrototype: true }),
  ),
})).value;

const ajv = new Ajv({ strict: false });

/** A schema and what became of it: something else altogether, or mostly the same. */
const pairs = fc
  .tuple(schemas, schemas, fc.nat(20), fc.constantFrom('other', 'graft', 'relax', 'tighten'))
  .map(([schema, other, place, way]): [object, object] => {
    if (way === 'other') return [schema, other];
    const changed = way === 'graft' ? grafted(schema, other, place) : relaxed(schema, place);
    return way === 'tighten' ? [changed, schema] : [schema, changed];
  });

/** The schema with another one in the place of one of its parts. */
function grafted(schema: object, other: object, place: number): object {
  const inside = changedInside(schema, place, (child) => grafted(child, other, place + 1));
  return inside ?? (place % 2 === 0 ? other : { ...schema, ...other });
}

const limits = /^(min|max|exclusive|multiple|unique|pattern|additionalP|enum|not)/;

/** The schema without one of its limits, or without one of those of its parts. */
function relaxed(schema: object, place: number): object {
  const found = Object.keys(schema).filter((keyword) => limits.test(keyword));
  const dropped = found[place % Math.max(found.length, 1)];
  if (dropped === undefined)
    return changedInside(schema, place, (child) => relaxed(child, place + 1)) ?? schema;
  const { [dropped]: _gone, ...rest } = schema as Record<string, unknown>;
  return rest;
}

function changedInside(schema: object, place: number, change: (child: object) => object) {
  const { properties, items, anyOf } = schema as Record<string, object | undefined>;
  if (items) return { ...schema, items: change(items) };
  if (Array.isArray(anyOf)) {
    const index = place % anyOf.length;
    return { ...schema, anyOf: anyOf.with(index, change(anyOf[index] as object)) };
  }
  const [name, child] = Object.entries(properties ?? {})[0] ?? [];
  if (name === undefined) return undefined;
  return { ...schema, properties: { ...properties, [name]: change(child as object) } };
}

/** A name that became a property of its own was anything before: by custom that breaks nothing. */
const isCustom = ({ change }: { change: string }) => change === 'property_added';

describe('in general', () => {
  it('a schema is the same as itself, in whatever order it is written', () => {
    fc.assert(
      fc.property(schemas, (schema) => {
        expect(changes(schema, reversed(schema))).toEqual([]);
      }),
      { numRuns: 200 },
    );
  });

  it('what was allowed is still allowed if nothing that was told breaks', () => {
    let [judged, different] = [0, 0];
    fc.assert(
      fc.property(pairs, fc.array(payloads, { minLength: 20, maxLength: 40 }), (pair, given) => {
        const [before, after] = pair;
        const found = changes(before, after);
        if (found.some(({ breaking }) => breaking) || found.some(isCustom)) return;
        judged += 1;
        if (found.length > 0) different += 1;
        const [wasValid, isValid] = [ajv.compile(before), ajv.compile(after)];
        const refused = given.filter((value) => wasValid(value) && !isValid(value));
        expect(refused).toEqual([]);
        ajv.removeSchema(before).removeSchema(after);
      }),
      { numRuns: 600 },
    );
    // often enough to mean something
    expect(judged).toBeGreaterThan(60);
    expect(different).toBeGreaterThan(20);
  });

  it('a property that is added back and forth is added and removed', () => {
    fc.assert(
      fc.property(schemas, (schema) => {
        const [without, having] = [object({ a: text }), object({ a: text, d: schema })];
        expect(told(without, having)).toEqual(['payload.d property_added']);
        expect(told(having, without)).toEqual(['!payload.d property_removed']);
      }),
    );
  });
});

function reversed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reversed);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .toReversed()
      .map(([key, inner]) => [key, reversed(inner)]),
  );
}
