// Arguments of the tools of `waybill mcp`: the JSON Schema that the model sees, and the check of what it gives.

import { ConfigurationError, shown } from '../core/errors.js';
import { checkOptions, integer, optional, text } from '../core/options.js';
import { timeOf } from '../core/time.js';
import { isUuid } from '../core/uuid.js';
import type { Tool } from '../features/feature.js';
import type { PayloadFilter } from '../listing/payload-filter.js';

export type { Tool, ToolContext } from '../features/feature.js';

export type Kind<T> = (name: string, value: unknown) => T;
export type Argument<T> = { schema: object; check: Kind<T> };
type Arguments = Record<string, Argument<unknown>>;
type Values<A extends Arguments> = { [Name in keyof A]: ReturnType<A[Name]['check']> };

export const word = (description: string): Argument<string | undefined> => ({
  schema: { type: 'string', description },
  check: optional(text({ meaning: 'a text' })),
});

export const neededWord = (description: string): Argument<string> => ({
  schema: { type: 'string', description },
  check: text({ meaning: 'a text' }),
});

export const messageId: Argument<string> = {
  schema: { type: 'string', format: 'uuid', description: 'the id of the message' },
  check: (name, value) =>
    typeof value === 'string' && isUuid(value)
      ? value
      : refused(name, value, 'give a message id: a UUID'),
};

export const time = (description: string): Argument<Date | undefined> => ({
  schema: { type: 'string', format: 'date-time', description },
  check: optional(
    (name, value) =>
      timeOf(value) ?? refused(name, value, 'give a time such as 2026-01-31T08:00:00Z'),
  ),
});

/** Filter by fields of the payload. Refused without --payloads, because a client could guess payloads with it. */
export const payloadFilter = (mayRead: boolean): Argument<PayloadFilter | undefined> => ({
  schema: {
    type: 'object',
    additionalProperties: { type: 'string' },
    description: `with these values in the payload, such as {"orderId": "4711"}${mayRead ? '' : '; only if the server was started with --payloads'}`,
  },
  check: optional((name, value) => {
    if (!mayRead) refused(name, value, 'start waybill mcp with --payloads');
    const fields = Object.entries(typeof value === 'object' && value !== null ? value : {});
    if (fields.length === 0 || !fields.every(([, wanted]) => typeof wanted === 'string'))
      refused(name, value, 'give an object of texts, such as {"orderId": "4711"}');
    return Object.fromEntries(fields);
  }),
});

/** What lists are filtered by, and how long they are. */
export const filters = {
  destination: word('at this destination'),
  topic: word('of this topic'),
  tenantId: word('of this tenant'),
  errorCode: word('that failed with this code'),
  limit: {
    schema: { type: 'integer', minimum: 1, maximum: 200, default: 20 },
    check: integer({ min: 1, max: 200, default: 20 }),
  },
};

/** One message, and one of its destinations or all of them. */
export const oneMessage = {
  id: messageId,
  destination: word('only at this destination (default: at all)'),
};

export function refused(name: string, value: unknown, allowed: string): never {
  throw new ConfigurationError(`${name} is ${shown(value)}: ${allowed}`);
}

/** Makes a tool that checks its arguments. */
export function tool<A extends Arguments>(
  named: Pick<Tool, 'name' | 'description'> & { changes?: boolean },
  args: A,
  run: (values: Values<A>) => Promise<unknown>,
): Tool {
  const entries = Object.entries(args);
  const kinds = Object.fromEntries(entries.map(([key, { check }]) => [key, check]));
  return {
    changes: false,
    ...named,
    inputSchema: {
      type: 'object',
      properties: Object.fromEntries(entries.map(([key, { schema }]) => [key, schema])),
      required: entries.filter(([, argument]) => isNeeded(argument)).map(([key]) => key),
      additionalProperties: false,
    },
    run: (values) => run(checkOptions('arguments', values, kinds) as Values<A>),
  };
}

/** An argument that must be given is one whose check refuses undefined. */
function isNeeded({ check }: Argument<unknown>): boolean {
  try {
    check('', undefined);
    return false;
  } catch {
    return true;
  }
}

/** Without the values that were not given. */
export function given<T extends object>(
  values: T,
): { [Name in keyof T]?: Exclude<T[Name], undefined> } {
  return Object.fromEntries(
    Object.entries(values).filter(([, value]) => value !== undefined),
  ) as never;
}
