// Finds the subschemas of a JSON Schema of draft 07. Everything else (`enum`, `default`, `examples`) is data, and a
// `$ref` in there is a plain value.

import type { JsonSchema } from './json-schema.js';

const single = [
  'additionalItems',
  'additionalProperties',
  'contains',
  'else',
  'if',
  'items',
  'not',
  'propertyNames',
  'then',
];
const lists = ['allOf', 'anyOf', 'items', 'oneOf', 'prefixItems'];
const named = ['$defs', 'definitions', 'dependencies', 'patternProperties', 'properties'];

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns the schema with each direct subschema changed. */
export function subschemas(schema: JsonSchema, change: (child: JsonSchema) => unknown): JsonSchema {
  const changed = (value: unknown) => (isObject(value) ? change(value) : value);
  return Object.fromEntries(
    Object.entries(schema).map(([keyword, value]) => {
      if (named.includes(keyword) && isObject(value)) {
        const entries = Object.entries(value).map(([name, child]) => [name, changed(child)]);
        return [keyword, Object.fromEntries(entries)];
      }
      if (lists.includes(keyword) && Array.isArray(value)) return [keyword, value.map(changed)];
      return [keyword, single.includes(keyword) ? changed(value) : value];
    }),
  );
}
