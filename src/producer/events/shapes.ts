// Shapes: a JSON Schema as the list of shapes that it allows, one JSON type each, so that two schemas can be compared
// however they are written. References are followed; `anyOf`, lists of types, `const` and plain literals become shapes;
// annotations are left out. Parts that cannot be analysed stay in `opaque` unchanged.

import { isObject } from './subschemas.js';

export type JsonType = 'array' | 'boolean' | 'null' | 'number' | 'object' | 'string';

export type Shape = {
  readonly type: JsonType;
  /** The allowed values, if they are listed. */
  readonly values: readonly unknown[] | undefined;
  /** A number that must be whole. */
  readonly whole: boolean;
  /** The keywords that apply to this type. */
  readonly keywords: Keywords;
  /** Keywords that can only be compared for equality. */
  readonly opaque: Keywords;
};

type Keywords = Readonly<Record<string, unknown>>;

/** Returns the target of a reference. */
export type Resolve = (reference: string) => unknown;

const keywordsOf: Readonly<Record<JsonType, readonly string[]>> = {
  array: ['additionalItems', 'items', 'maxItems', 'minItems', 'prefixItems', 'uniqueItems'],
  boolean: [],
  null: [],
  number: ['exclusiveMaximum', 'exclusiveMinimum', 'maximum', 'minimum', 'multipleOf'],
  object: [
    'additionalProperties',
    'maxProperties',
    'minProperties',
    'properties',
    'propertyNames',
    'required',
  ],
  string: ['format', 'maxLength', 'minLength', 'pattern'],
};
const types = Object.keys(keywordsOf) as JsonType[];

const opaqueOf: Readonly<Record<JsonType, readonly string[]>> = {
  array: ['contains'],
  boolean: [],
  null: [],
  number: ['format'],
  object: ['dependencies', 'dependentRequired', 'dependentSchemas', 'patternProperties'],
  string: ['contentEncoding', 'contentMediaType'],
};
const opaqueOfAll = ['$ref', 'allOf', 'anyOf', 'else', 'if', 'not', 'oneOf', 'then'];

/** Ends references that lead in a circle. */
const longestChain = 50;

/** An empty list means that nothing is allowed. */
export function shapesOf(schema: unknown, resolve: Resolve): Shape[] {
  return joined(flatten(schema, resolve, 0).flatMap((part) => shapesOfPart(part, resolve)));
}

/** Follows a reference; returns any other schema as it is. */
export function followed(schema: unknown, resolve: Resolve): unknown {
  let found = schema;
  for (let links = 0; links < longestChain; links += 1) {
    const { $ref } = (isObject(found) ? found : {}) as { $ref?: unknown };
    const target = typeof $ref === 'string' ? resolve($ref) : undefined;
    if (target === undefined) break;
    found = target;
  }
  return found;
}

/** A canonical text: equal schemas give equal texts. */
export function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) =>
    isObject(inner)
      ? Object.fromEntries(Object.entries(inner).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}

/** Removes references and alternatives at the top level, as far as possible. */
function flatten(schema: unknown, resolve: Resolve, depth: number): Keywords[] {
  if (schema === false) return [];
  if (!isObject(schema)) return [{}];
  if (depth > longestChain) return [schema];
  if ('$ref' in schema) {
    const found = followed(schema, resolve);
    return found === schema ? [schema] : flatten(found, resolve, depth + 1);
  }
  const { allOf, anyOf, oneOf, ...others } = schema;
  if (Array.isArray(allOf)) {
    const { allOf: _allOf, ...rest } = schema;
    const parts = allOf.map((part: unknown) => flatten(part, resolve, depth + 1));
    const merged = parts.reduce<Keywords | undefined>(
      (all, [only, ...more]) => (all && only && more.length === 0 ? merge(all, only) : undefined),
      rest,
    );
    return merged === undefined ? [schema] : flatten(merged, resolve, depth + 1);
  }
  const choices = anyOf ?? oneOf;
  if (!Array.isArray(choices) || (anyOf !== undefined && oneOf !== undefined)) return [schema];
  const parts = choices.flatMap((choice: unknown) => flatten(choice, resolve, depth + 1));
  const merged = parts.map((part) => merge(others, part));
  return merged.every((part) => part !== undefined) ? merged : [schema];
}

const silent =
  /^(\$comment|\$defs|\$id|\$schema|definitions|default|deprecated|description|examples|readOnly|title|writeOnly|x-.*)$/;

/** Merges two schemas that both apply; undefined if the result is not a single schema. */
function merge(a: Keywords, b: Keywords): Keywords | undefined {
  const result: Record<string, unknown> = { ...a };
  for (const [keyword, value] of Object.entries(b)) {
    const other = result[keyword];
    if (silent.test(keyword)) continue;
    if (other === undefined || canonical(other) === canonical(value)) result[keyword] = value;
    else if (keyword === 'required' && Array.isArray(other) && Array.isArray(value))
      result[keyword] = [...new Set([...(other as unknown[]), ...(value as unknown[])])];
    else if (keyword === 'properties' && isObject(other) && isObject(value)) {
      if (Object.keys(value).some((name) => Object.hasOwn(other, name))) return undefined;
      result[keyword] = { ...other, ...value };
    } else return undefined;
  }
  // additionalProperties counts only the properties beside it
  const closes = (one: Keywords, other: Keywords) =>
    one['additionalProperties'] !== undefined && other['properties'] !== undefined;
  return closes(a, b) || closes(b, a) ? undefined : result;
}

function shapesOfPart(part: Keywords, resolve: Resolve): Shape[] {
  const { type, enum: list } = part;
  const listed: unknown[] | undefined = Array.isArray(list) ? list : undefined;
  const isConstant = (value: unknown) => canonical(value) === canonical(part['const']);
  const values = 'const' in part ? (listed?.filter(isConstant) ?? [part['const']]) : listed;
  const named: unknown[] = type === undefined ? types : [type].flat();
  const isWhole = named.includes('integer') && !named.includes('number');
  return types.flatMap((each) => {
    const whole = each === 'number' && isWhole;
    if (!named.includes(each) && !whole) return [];
    const own = values?.filter(
      (value) => jsonType(value) === each && (!whole || Number.isInteger(value)),
    );
    if (own?.length === 0) return [];
    const opaque = chosen(part, [...opaqueOf[each], ...opaqueOfAll]);
    return [
      {
        type: each,
        values: own ?? (each === 'boolean' ? [true, false] : undefined),
        whole: whole && own === undefined,
        keywords: chosen(part, keywordsOf[each]),
        opaque: expanded(opaque, resolve, []) as Keywords,
      },
    ];
  });
}

function jsonType(value: unknown): JsonType {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'array' : (typeof value as JsonType);
}

function chosen(schema: Keywords, names: readonly string[]): Keywords {
  return Object.fromEntries(Object.entries(schema).filter(([keyword]) => names.includes(keyword)));
}

/** Replaces references by their targets, because a target may change while its reference stays. */
function expanded(value: unknown, resolve: Resolve, within: readonly string[]): unknown {
  if (Array.isArray(value)) return value.map((item) => expanded(item, resolve, within));
  if (!isObject(value)) return value;
  const { $ref } = value;
  if (typeof $ref === 'string' && !within.includes($ref)) {
    const found = resolve($ref);
    if (found !== undefined) return expanded(found, resolve, [...within, $ref]);
  }
  return Object.fromEntries(
    Object.entries(value).map(([keyword, inner]) => [keyword, expanded(inner, resolve, within)]),
  );
}

/** Joins shapes of one type that only list values. */
function joined(shapes: readonly Shape[]): Shape[] {
  const lists = new Map<JsonType, unknown[]>();
  const isList = ({ values, keywords, opaque }: Shape) =>
    values !== undefined && Object.keys(keywords).length + Object.keys(opaque).length === 0;
  for (const { type, values } of shapes.filter(isList))
    lists.set(type, [...(lists.get(type) ?? []), ...(values ?? [])]);
  const others = shapes.filter((shape) => !isList(shape));
  return [
    ...new Map(others.map((shape) => [canonical(shape), shape])).values(),
    ...[...lists].map(([type, values]) => ({
      type,
      values: [...new Map(values.map((value) => [canonical(value), value])).values()],
      whole: false,
      keywords: {},
      opaque: {},
    })),
  ];
}
