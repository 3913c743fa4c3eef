// JSON Schemas of payloads, in few words, and what is told of the way from one to another.

import { resolvePointer } from '../../src/events/asyncapi.js';
import { schemaChanges } from '../../src/events/schema-changes.js';

const side = (schema: unknown) => ({
  schema,
  resolve: (reference: string) => resolvePointer(schema, reference),
});
export const changes = (before: unknown, after: unknown) =>
  schemaChanges(side(before), side(after));

/** `path change`, with a `!` before those that break. */
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
