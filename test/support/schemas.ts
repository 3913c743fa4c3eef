// Short notations for JSON Schemas of payloads, and for the changes from one schema to another.

import { resolvePointer } from '../../src/producer/events/asyncapi.js';
import { schemaChanges } from '../../src/producer/events/schema-changes.js';

const side = (schema: unknown) => ({
  schema,
  resolve: (reference: string) => resolvePointer(schema, reference),
});
export const changes = (before: unknown, after: unknown) =>
  schemaChanges(side(before), side(after));

/** `path change`, with a `!` before breaking changes. */
export const told = (before: unknown, after: unknown) =>
  changes(before, after).map(
    ({ path, change, breaking }) => `${breaking ? '!' : ''}${path} ${change}`,
  );

export const text = { type: 'string' };
export const whole = { type: 'integer' };
export const object = (properties: object, required: string[] = [], rest: object = {}) => ({
  type: 'object',
  properties,
  required,
  ...rest,
});
export const closed = { additionalProperties: false };
