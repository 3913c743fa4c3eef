// JSON Schema (draft 07) of an event's stored payload: of its schema's output, not of its input. It comes from the
// schema itself, if its library implements Standard JSON Schema (`~standard.jsonSchema`), or is given beside it. A
// payload that cannot be described is an error with the event's name: a document that says "anything" would hide
// changes.

import { ConfigurationError, errorText } from '../../core/errors.js';
import { schemaOf } from './event-definitions.js';
import type { EventDefinition } from './event-definitions.js';
import { isSchema, readAnswer } from '../../core/standard-schema.js';
import type { StandardSchema } from '../../core/standard-schema.js';

export type JsonSchema = { readonly [keyword: string]: unknown };

const target = 'draft-07';

/** The stored form of a Date. */
const dateTime = { type: 'string', format: 'date-time' };

/** Types that zod would reject too, if it were not told to continue because of dates. */
const notJson = new Set(
  'bigint custom function map nan set symbol transform undefined void'.split(' '),
);

/** Types of a missing payload. */
const nothing = new Set(['undefined', 'void']);

/** Dates are stored as text; each library needs its own option for that. */
const libraryOptions: Readonly<Record<string, object>> = {
  zod: {
    unrepresentable: 'any',
    override({ zodSchema, jsonSchema, path }: ZodPart) {
      const { type } = zodSchema.def;
      if (type === 'date') Object.assign(jsonSchema, dateTime);
      else if (path.length === 0 && nothing.has(type)) Object.assign(jsonSchema, { type: 'null' });
      else if (notJson.has(type)) throw new Error(`${type} cannot be represented in JSON Schema`);
    },
  },
  arktype: {
    fallback: {
      date: () => dateTime,
      default({ code }: { code: string }) {
        throw new Error(`${code} cannot be represented in JSON Schema`);
      },
    },
  },
  valibot: {
    overrideSchema: ({ valibotSchema }: { valibotSchema: { type: string } }) =>
      valibotSchema.type === 'date' ? dateTime : undefined,
  },
};

type ZodPart = {
  readonly zodSchema: { readonly def: { readonly type: string } };
  readonly jsonSchema: object;
  readonly path: readonly unknown[];
};

type Converter = { output?: (options: object) => unknown } | undefined;

export function jsonSchemaOf(topic: string, definition: EventDefinition): JsonSchema {
  if (!isSchema(definition)) return definition.jsonSchema;
  const standard = schemaOf(definition)['~standard'];
  const { vendor } = standard;
  const { jsonSchema } = standard as { jsonSchema?: Converter };
  if (typeof jsonSchema?.output !== 'function') {
    throw undescribed(topic, `its schema (of ${vendor}) offers no JSON Schema`);
  }
  let answer: unknown;
  try {
    answer = jsonSchema.output({ target, libraryOptions: libraryOptions[vendor] });
  } catch (error) {
    throw undescribed(topic, `${vendor} says: ${errorText(error)}`, error);
  }
  if (typeof answer !== 'object' || answer === null)
    throw undescribed(topic, `its schema (of ${vendor}) gave no JSON Schema`);
  return takesNothing(standard) ? orNull(answer as JsonSchema) : (answer as JsonSchema);
}

/** A missing payload is stored as null, which no library knows. An asynchronous schema cannot be checked here. */
function takesNothing(standard: StandardSchema['~standard']): boolean {
  try {
    const result: unknown = standard.validate(undefined);
    if (result instanceof Promise) result.catch(() => undefined);
    const answer = readAnswer(result);
    return answer !== undefined && 'value' in answer && answer.value === undefined;
  } catch {
    return false;
  }
}

function orNull(schema: JsonSchema): JsonSchema {
  // an empty description includes null
  if (schema['type'] === 'null' || Object.keys(schema).every((name) => name === '$schema'))
    return schema;
  const { $schema, $defs, definitions, ...rest } = schema;
  // the targets of references stay at their place
  const around = { $schema, $defs, definitions };
  const kept = Object.entries(around).filter(([, value]) => value !== undefined);
  return { ...Object.fromEntries(kept), anyOf: [rest, { type: 'null' }] };
}

function undescribed(topic: string, why: string, cause?: unknown): ConfigurationError {
  const wrapped = 'for valibot toStandardJsonSchema(schema) of @valibot/to-json-schema';
  return new ConfigurationError(
    `events["${topic}"] cannot be described: ${why}. Use a schema that can say what it makes (${wrapped}), or give { schema, jsonSchema } with a JSON Schema of draft 07 for what is stored`,
    { cause },
  );
}
