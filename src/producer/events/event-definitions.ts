// Definitions of events: a schema for each topic, of any library that implements Standard Schema. A message is checked
// before it is enqueued, and the schema's output is stored. Versions of an event are topics: `user.registered.v2`
// stands beside `user.registered`, so routes, webhooks and CloudEvents distinguish them without further support.

import { ConfigurationError, errorText, MessageRefusedError, shown } from '../../core/errors.js';
import type { JsonOf } from '../../core/json-of.js';
import { namePattern } from '../../core/message.js';
import type { Message } from '../../core/message.js';
import { checkOptions, refuse } from '../../core/options.js';
import { isSchema, readAnswer } from '../../core/standard-schema.js';
import type { SchemaAnswer, StandardSchema } from '../../core/standard-schema.js';

/** A schema, or a schema with the JSON Schema of its output, if its library cannot produce that. */
export type EventDefinition =
  | StandardSchema
  | { readonly schema: StandardSchema; readonly jsonSchema: Readonly<Record<string, unknown>> };

export type EventDefinitions = Readonly<Record<string, EventDefinition>>;

/** The result of `defineEvents`, as far as code needs it that only checks or describes messages. */
export type DefinedEvents<D extends EventDefinitions = EventDefinitions> = {
  readonly definitions: D;
};

type TypesOf<D> = D extends StandardSchema
  ? NonNullable<D['~standard']['types']>
  : D extends { readonly schema: infer S extends StandardSchema }
    ? NonNullable<S['~standard']['types']>
    : never;

/** A message of one of these events, as `enqueue` takes it. */
export type EventMessage<E extends DefinedEvents> = MessageOf<E['definitions']>;

type MessageOf<D extends EventDefinitions> = {
  [Topic in keyof D & string]: Omit<Message, 'topic' | 'payload' | 'payloadText'> & {
    topic: Topic;
  } & (undefined extends TypesOf<D[Topic]>['input']
      ? { payload?: TypesOf<D[Topic]>['input'] }
      : { payload: TypesOf<D[Topic]>['input'] });
}[keyof D & string];

/** The payload as it arrives: the schema's output after its way through JSON. */
export type EventPayload<E extends DefinedEvents, Topic extends keyof E['definitions']> = Arrived<
  TypesOf<E['definitions'][Topic]>['output']
>;

/** A missing payload is stored as null. */
type Arrived<Output> =
  | JsonOf<Exclude<Output, undefined>>
  | (undefined extends Output ? null : never);

const shownIssues = 10;
const longestTopicBytes = 255;

/** Checks all definitions and returns a copy. */
export function checkDefinitions<D extends EventDefinitions>(definitions: D): D {
  if (typeof definitions !== 'object' || definitions === null || Array.isArray(definitions))
    refuse('events', definitions, "give an object such as { 'user.registered': z.object({ … }) }");
  for (const [topic, definition] of Object.entries(definitions)) {
    if (!namePattern.test(topic) || Buffer.byteLength(topic) > longestTopicBytes) {
      throw new ConfigurationError(
        `events has the topic ${shown(topic)}: use words of letters, digits, _ and -, joined by . : or /, at most ${longestTopicBytes} bytes`,
      );
    }
    const where = `events[${JSON.stringify(topic)}]`;
    if (isSchema(definition)) continue;
    if (typeof definition !== 'object' || definition === null)
      refuse(where, definition, 'give a Standard Schema, for example z.object({ … }) of zod');
    checkOptions(where, definition, {
      schema: (name: string, value: unknown) =>
        isSchema(value) ? value : refuse(name, value, 'give a Standard Schema'),
      jsonSchema: (name: string, value: unknown) =>
        typeof value === 'object' && value !== null && !Array.isArray(value)
          ? value
          : refuse(name, value, 'give a JSON Schema (draft 07) as an object'),
    });
  }
  return Object.freeze({ ...definitions });
}

/** Option kind: the result of `defineEvents`. */
export function eventsKind(name: string, value: unknown): DefinedEvents | undefined {
  if (value === undefined) return undefined;
  const { definitions } = (value ?? {}) as { definitions?: unknown };
  if (typeof definitions !== 'object' || definitions === null)
    refuse(name, value, 'make it with defineEvents({ … })');
  return { definitions: checkDefinitions(definitions as EventDefinitions) };
}

export function schemaOf(definition: EventDefinition): StandardSchema {
  return isSchema(definition) ? definition : definition.schema;
}

/** Returns the messages with their schemas' outputs as payloads; throws if one does not fit. */
export async function checkEvent(
  { definitions }: DefinedEvents,
  message: Message,
): Promise<Message> {
  const { topic, payload, payloadText } = (message ?? {}) as Partial<Message>;
  const definition =
    typeof topic === 'string' && Object.hasOwn(definitions, topic) ? definitions[topic] : undefined;
  if (definition === undefined) {
    throw new MessageRefusedError(
      'topic',
      `${shown(topic)} is not one of the events: use ${Object.keys(definitions).join(', ')}, add it to defineEvents, or enqueue it with an outbox without events`,
    );
  }
  if (payloadText !== undefined) {
    throw new MessageRefusedError(
      'payloadText',
      `of "${topic}" cannot be checked by its schema: give payload, or enqueue it with an outbox without events`,
    );
  }
  const answer = await ask(schemaOf(definition), topic as string, payload);
  if (!('value' in answer)) throw refusal(topic as string, answer.issues);
  return { ...message, payload: answer.value };
}

async function ask(
  schema: StandardSchema,
  topic: string,
  payload: unknown,
): Promise<NonNullable<SchemaAnswer>> {
  let result: unknown;
  try {
    result = await schema['~standard'].validate(payload);
  } catch (error) {
    throw new MessageRefusedError(
      'payload',
      `of "${topic}" could not be checked, its schema failed: ${errorText(error)}`,
      { cause: error },
    );
  }
  const answer = readAnswer(result);
  if (answer !== undefined) return answer;
  throw new MessageRefusedError(
    'payload',
    `of "${topic}" could not be checked, its schema answered ${shown(result)}: give a Standard Schema`,
  );
}

function refusal(
  topic: string,
  issues: readonly { readonly path: readonly string[]; readonly message: string }[],
): MessageRefusedError {
  const field = (path: readonly string[]) => ['payload', ...path].join('.');
  const [first, ...others] = issues.slice(0, shownIssues);
  const rest = others.map(({ path, message }) => `; ${field(path)}: ${message}`).join('');
  const more = issues.length > shownIssues ? `; and ${issues.length - shownIssues} more` : '';
  return new MessageRefusedError(
    field(first?.path ?? []),
    `of "${topic}" is refused by its schema: ${first?.message ?? 'it does not say why'}${rest}${more}. ` +
      `Send what the schema of the event allows, or define the new shape beside it, as ${nextVersion(topic)}.`,
  );
}

/** `user.registered.v2` is version 2 of `user.registered`; without a number it is version 1. */
export function versionOf(topic: string): { event: string; version: number } {
  const [, event, version] = /^(.+)\.v([1-9]\d{0,5})$/.exec(topic) ?? [];
  return event === undefined ? { event: topic, version: 1 } : { event, version: Number(version) };
}

export function nextVersion(topic: string): string {
  const { event, version } = versionOf(topic);
  return `${event}.v${version + 1}`;
}
