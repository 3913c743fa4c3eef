// Renders typed events as an AsyncAPI 3 document: per topic a channel with its message, and an operation by which the
// application sends it. Other parts of an existing document (info, servers, tags) are kept.

import { ConfigurationError, shown } from '../../core/errors.js';
import type { DefinedEvents } from './event-definitions.js';
import { jsonSchemaOf } from './json-schema.js';
import type { JsonSchema } from './json-schema.js';
import { followed } from './shapes.js';
import { isObject, subschemas } from './subschemas.js';

export type AsyncApiDocument = {
  readonly asyncapi: string;
  readonly info: unknown;
  readonly channels: Readonly<Record<string, Channel>>;
  readonly [field: string]: unknown;
};

type Channel = {
  readonly address: string;
  readonly messages: Readonly<Record<string, { readonly payload: JsonSchema }>>;
};

/** The document needs nothing of 3.1; an existing document keeps its version. */
const oldestVersion = '3.0.0';
const contentType = 'application/json';

export function asyncApiDocument(
  { definitions }: DefinedEvents,
  earlier: Partial<AsyncApiDocument> = {},
): AsyncApiDocument {
  const described = Object.entries(definitions)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([topic, definition]) => [topic, jsonSchemaOf(topic, definition)] as const);
  const { asyncapi: version, info = { title: 'Events', version: '1.0.0' }, ...others } = earlier;
  return {
    ...others,
    asyncapi: version?.startsWith('3.') ? version : oldestVersion,
    info,
    defaultContentType: contentType,
    channels: Object.fromEntries(
      described.map(([topic, schema]) => [
        topic,
        {
          address: topic,
          messages: {
            [topic]: { name: topic, contentType, payload: placed(schema, payloadPointer(topic)) },
          },
        },
      ]),
    ),
    operations: Object.fromEntries(
      described.map(([topic]) => [
        `send.${topic}`,
        {
          action: 'send',
          channel: { $ref: `#/channels/${escaped(topic)}` },
          messages: [{ $ref: messagePointer(topic) }],
        },
      ]),
    ),
  };
}

/** The payload schema of each event in a document, in place or behind references into its components. */
export function payloadsOf(document: unknown, where: string): Map<string, JsonSchema> {
  const { asyncapi: version, channels } = (document ?? {}) as Partial<AsyncApiDocument>;
  if (typeof version !== 'string' || !version.startsWith('3.') || !isObject(channels))
    throw new ConfigurationError(
      `${where} is not an AsyncAPI 3 document: write one with waybill events asyncapi --output ${where}`,
    );
  const found = (value: unknown, what: string) => {
    const target = followed(value, (reference) => resolvePointer(document, reference));
    if (isObject(target) && !('$ref' in target)) return target;
    throw new ConfigurationError(
      `${where} cannot be compared: ${what} is ${shown(target)}. Give an object, or a reference to one in the same file`,
    );
  };
  return new Map(
    Object.entries(channels).map(([name, value]) => {
      const { address, messages } = found(value, `channels["${name}"]`);
      const payloads = Object.entries(messages ?? {}).map(([message, described]) =>
        payloadOf(found(described, `channels["${name}"].messages["${message}"]`)),
      );
      return [
        typeof address === 'string' ? address : name,
        payloads.length > 1 ? { anyOf: payloads } : (payloads[0] ?? {}),
      ];
    }),
  );
}

/** A payload in another format than the document's is wrapped, beside the name of that format. */
function payloadOf({ payload = {} }: Readonly<Record<string, unknown>>): JsonSchema {
  const { schemaFormat, schema } = payload as JsonSchema;
  return (schemaFormat === undefined ? payload : schema) as JsonSchema;
}

/** The target of a reference inside this document, or undefined. */
export function resolvePointer(document: unknown, reference: string): unknown {
  if (!/^#(?:[^%]|%[0-9A-Fa-f]{2})*$/.test(reference)) return undefined;
  const [, ...parts] = decodeURIComponent(reference)
    .split('/')
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
  return parts.reduce<unknown>(
    (value, part) =>
      typeof value === 'object' && value !== null && Object.hasOwn(value, part)
        ? (value as Record<string, unknown>)[part]
        : undefined,
    document,
  );
}

const messagePointer = (topic: string) => `#/channels/${escaped(topic)}/messages/${escaped(topic)}`;
const payloadPointer = (topic: string) => `${messagePointer(topic)}/payload`;

function escaped(part: string): string {
  return encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1')).replaceAll(
    '%7E',
    '~',
  );
}

/** Rewrites references from the schema's own root to its place in the document. */
function placed(schema: JsonSchema, pointer: string): JsonSchema {
  const { $schema: _dialect, $id: _id, ...keywords } = schema;
  return withReferences(keywords, pointer);
}

function withReferences(schema: JsonSchema, pointer: string): JsonSchema {
  const { $ref } = schema;
  const own = typeof $ref === 'string' && /^#(\/|$)/.test($ref);
  return {
    ...subschemas(schema, (child) => withReferences(child, pointer)),
    ...(own && { $ref: `${pointer}${$ref.slice(1)}` }),
  };
}
