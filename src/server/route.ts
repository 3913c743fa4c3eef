// Route of the HTTP API: its path, required scope, parameters and handler. The server, the OpenAPI description and the
// access test are made from the same routes, so they cannot differ.

import { ConfigurationError, shown } from '../core/errors.js';
import type { Access, Scope } from './access.js';
import type { Database } from '../database/connection.js';
import { checkJsonText } from '../core/json-text.js';
import { timeOf } from '../core/time.js';
import { isUuid } from '../core/uuid.js';
import type { SharedAnswers } from './response-cache.js';
import type { ReadFrom } from '../features/replicas/replica.js';

export type Parameter = {
  readonly in: 'path' | 'query' | 'body';
  readonly description: string;
  /** The JSON Schema of the parameter. */
  readonly schema: Record<string, unknown>;
  readonly required: boolean;
  /** Refuses an invalid value, naming the field. */
  readonly read: (name: string, value: unknown) => unknown;
};

/** Which database an answer comes from, if there is a replica. */
export type Source = {
  readonly from: ReadFrom;
  /** The maximum age of the data; null from the primary. */
  readonly ageMs: number | null;
  /** Why the replica is not used; null if it is. */
  readonly reason: string | null;
};

export type RouteRequest = {
  readonly database: Database;
  /** Null if there is no replica. */
  readonly source: Source | null;
  readonly access: Access;
  /** The checked parameters by name. */
  readonly values: Readonly<Record<string, unknown>>;
  /** Does something when the changes of the request are committed. */
  readonly afterwards: (work: () => void) => void;
  /** Cache for answers that do not depend on the client. */
  readonly shared: SharedAnswers;
};

export type Route = {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  /** `/api/messages/{id}` */
  readonly path: string;
  readonly scope: Scope;
  /** Allows tokens that are limited to a tenant. The route must then apply `access.tenantId`. */
  readonly forTenants?: true;
  /** Allows tenant tokens too. */
  readonly forTenantTokens?: true;
  /** Takes an `Idempotency-Key`: the route may then run in a transaction, so it uses no other database handle. */
  readonly takesKey?: true;
  readonly summary: string;
  /** What the answer holds, in a line. */
  readonly returns: string;
  /** When the route itself refuses; the server refuses invalid requests, tokens and values for all routes. */
  readonly errors?: Readonly<Partial<Record<HttpProblem['status'], string>>>;
  readonly parameters: Readonly<Record<string, Parameter>>;
  /** What to do instead of giving this unknown parameter; undefined: use one of the others. */
  readonly remedyFor?: (name: string) => string | undefined;
  /** Reads from the primary although it is a GET, because it shows the primary itself or changes in progress. */
  readonly on?: 'primary';
  readonly answer: (request: RouteRequest) => Promise<unknown>;
};

/** The one place that decides which database a route uses: a replica may answer requests that only read. */
export function mayReadReplica({ method, on }: Pick<Route, 'method' | 'on'>): boolean {
  return method === 'GET' && on !== 'primary';
}

/** An error response. Any other error that is thrown is a bug. */
export class HttpProblem extends Error {
  readonly status: 400 | 401 | 403 | 404 | 409 | 413 | 415 | 422 | 429 | 503;

  constructor(status: HttpProblem['status'], message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.status = status;
  }
}

export type Place = { in?: Parameter['in']; required?: true; description: string };

/** A parameter with its own check; the other kinds are made with it. */
export function parameter(
  { in: place = 'query', required, description }: Place,
  schema: Record<string, unknown>,
  read: Parameter['read'],
): Parameter {
  return { in: place, required: required ?? place === 'path', description, schema, read };
}

function refuse(name: string, value: unknown, remedy: string): never {
  throw new ConfigurationError(`${name} is ${shown(value)}: ${remedy}`);
}

export function text(place: Place, maxLength = 1024): Parameter {
  return parameter(place, { type: 'string', maxLength }, (name, value) =>
    typeof value === 'string' && value !== '' && value.length <= maxLength && !value.includes('\0')
      ? value
      : refuse(name, value, `give text of 1 to ${maxLength} characters`),
  );
}

export function word(place: Place, words: readonly string[]): Parameter {
  return parameter(place, { type: 'string', enum: words }, (name, value) =>
    typeof value === 'string' && words.includes(value)
      ? value
      : refuse(name, value, `give ${words.join(', ')}`),
  );
}

export function uuid(place: Place): Parameter {
  return parameter(place, { type: 'string', format: 'uuid' }, (name, value) =>
    isUuid(value) ? value : refuse(name, value, 'give a UUID'),
  );
}

/** Parameters of a list that is read page by page. */
export const pageParameters = {
  limit: wholeNumber({ description: 'about this many; 50 if not given' }, { min: 1, max: 500 }),
  next: text({ description: '`next` of the previous page' }, 64),
};

export function uuids(place: Place, max: number): Parameter {
  const schema = {
    type: 'array',
    items: { type: 'string', format: 'uuid' },
    minItems: 1,
    maxItems: max,
  };
  return parameter(place, schema, (name, value: unknown) =>
    // an empty list is an error: a client that found no ids must not get all messages
    Array.isArray(value) && value.length > 0 && value.length <= max && value.every(isUuid)
      ? (value as string[])
      : refuse(name, value, `give a list of 1 to ${max} UUIDs`),
  );
}

/** A list of texts; `max` is the largest number of them. */
export function texts(place: Place, max: number, maxLength = 1024): Parameter {
  const schema = {
    type: 'array',
    items: { type: 'string', minLength: 1, maxLength },
    minItems: 1,
    maxItems: max,
  };
  const isText = (value: unknown): boolean =>
    typeof value === 'string' && value !== '' && value.length <= maxLength && !value.includes('\0');
  return parameter(place, schema, (name, value: unknown) =>
    Array.isArray(value) && value.length > 0 && value.length <= max && value.every(isText)
      ? (value as string[])
      : refuse(name, value, `give a list of 1 to ${max} texts of 1 to ${maxLength} characters`),
  );
}

export function time(place: Place): Parameter {
  return parameter(place, { type: 'string', format: 'date-time' }, (name, value) => {
    return timeOf(value) ?? refuse(name, value, 'give a time such as 2026-01-31T08:00:00Z');
  });
}

export function wholeNumber(place: Place, range: { min: number; max: number }): Parameter {
  const schema = { type: 'integer', minimum: range.min, maximum: range.max };
  return parameter(place, schema, (name, value) => {
    const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
    return typeof number === 'number' &&
      Number.isInteger(number) &&
      number >= range.min &&
      number <= range.max
      ? number
      : refuse(name, value, `give a whole number from ${range.min} to ${range.max}`);
  });
}

export function fraction(place: Place, range: { min: number; max: number }): Parameter {
  const schema = { type: 'number', minimum: range.min, maximum: range.max };
  return parameter(place, schema, (name, value) =>
    typeof value === 'number' && value >= range.min && value <= range.max
      ? value
      : refuse(name, value, `give a number from ${range.min} to ${range.max}`),
  );
}

export function truth(place: Place): Parameter {
  return parameter(place, { type: 'boolean' }, (name, value) =>
    typeof value === 'boolean' ? value : refuse(name, value, 'give true or false'),
  );
}

/** Any JSON except null, kept as text. */
export function jsonText(place: Place): Parameter {
  return parameter(place, {}, (name, value) =>
    value === null
      ? refuse(name, value, 'give JSON')
      : checkJsonText(name, JSON.stringify(value)).text,
  );
}

/** Checks the request against the parameters of the route; refuses unknown names. */
export function readValues(
  route: Route,
  given: Record<Parameter['in'], Record<string, unknown>>,
): Record<string, unknown> {
  const values: Record<string, unknown> = {};
  for (const place of ['path', 'query', 'body'] as const) {
    for (const [name, value] of Object.entries(given[place])) {
      const known = Object.hasOwn(route.parameters, name) ? route.parameters[name] : undefined;
      if (known?.in !== place) {
        const names = Object.entries(route.parameters)
          .filter(([, other]) => other.in === place)
          .map(([other]) => other);
        const remedy = route.remedyFor?.(name) ?? `use ${names.join(', ') || 'none'}`;
        throw new ConfigurationError(`${name} is not a parameter here: ${remedy}`);
      }
      values[name] = known.read(name, value);
    }
  }
  for (const [name, { required, description }] of Object.entries(route.parameters)) {
    if (required && values[name] === undefined)
      throw new ConfigurationError(`${name} is missing: ${description}`);
  }
  return values;
}
