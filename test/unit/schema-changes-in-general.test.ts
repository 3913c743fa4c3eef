// Schema changes as properties, checked with a validator: no formerly valid value becomes invalid unless a breaking
// change is reported.

import { Ajv } from 'ajv';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { changes, object, text, told } from '../support/schemas.js';

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

/** A schema and its successor: a different schema, or mostly the same one. */
const pairs = fc
  .tuple(schemas, schemas, fc.nat(20), fc.constantFrom('other', 'graft', 'relax', 'tighten'))
  .map(([schema, other, place, way]): [object, object] => {
    if (way === 'other') return [schema, other];
    const changed = way === 'graft' ? grafted(schema, other, place) : relaxed(schema, place);
    return way === 'tighten' ? [changed, schema] : [schema, changed];
  });

/** The schema with one of its parts replaced by another schema. */
function grafted(schema: object, other: object, place: number): object {
  const inside = changedInside(schema, place, (child) => grafted(child, other, place + 1));
  return inside ?? (place % 2 === 0 ? other : { ...schema, ...other });
}

const limits = /^(min|max|exclusive|multiple|unique|pattern|additionalP|enum|not)/;

/** The schema without one limit of its own or of one of its parts. */
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

/** A name that becomes a declared property accepted any value before: by convention this breaks nothing. */
const isCustom = ({ change }: { change: string }) => change === 'property_added';

describe('in general', () => {
  it('a schema equals itself, in whatever order it is written', () => {
    fc.assert(
      fc.property(schemas, (schema) => {
        expect(changes(schema, reversed(schema))).toEqual([]);
      }),
      { numRuns: 200 },
    );
  });

  it('what was valid stays valid if no breaking change is reported', () => {
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

  it('a property added in one direction is removed in the other', () => {
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
