// One route of the HTTP API: its path, who may use it, what it takes, what it does. The server, the description in
// OpenAPI and the test of who may do what are all made from these, so they cannot differ.

import { ConfigurationError, shown } from '../errors.js';
import type { Access, Scope } from '../database/tokens.js';
import type { Database } from '../database/connection.js';
import { checkJsonText } from '../model/json-text.js';
import { timeOf } from '../model/time.js';
import { isUuid } from '../model/uuid.js';
import type { Shared } from './shared.js';
import type { ReadFrom } from '../database/replica.js';

export type Parameter = {
  readonly in: 'path' | 'query' | 'body';
  readonly description: string;
  /** As JSON Schema. */
  readonly schema: Record<string, unknown>;
  readonly required: boolean;
  /** Refuses what it cannot be, naming the field. */
  readonly read: (name: string, value: unknown) => unknown;
};

/** Where an answer comes from, where there is a replica. */
export type Source = {
  readonly from: ReadFrom;
  /** How old it may be; null from the primary. */
  readonly ageMs: number | null;
  /** Why the replica is not asked; null if it is. */
  readonly reason: string | null;
};

export type RouteRequest = {
  readonly database: Database;
  /** Null: there is no replica. */
  readonly source: Source | null;
  readonly access: Access;
  /** By name, checked. */
  readonly values: Readonly<Record<string, unknown>>;
  /** For answers that are the same whoever asks. */
  readonly shared: Shared;
};

export type Route = {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** `/api/messages/{id}` */
  readonly path: string;
  readonly scope: Scope;
  /** A token that is limited to a tenant may use it: it looks at `access.tenantId`. */
  readonly forTenants?: true;
  readonly summary: string;
  readonly parameters: Readonly<Record<string, Parameter>>;
  /** Not from the replica, although it is a GET: it tells of the primary itself, or of changes under way. */
  readonly on?: 'primary';
  readonly answer: (request: RouteRequest) => Promise<unknown>;
};

/** The one place that decides which database a route works on: what only reads may be answered by a replica. */
export function mayReadReplica({ method, on }: Pick<Route, 'method' | 'on'>): boolean {
  return method === 'GET' && on !== 'primary';
}

/** An answer that is not a success; everything else that is thrown is a mistake of ours. */
export class HttpProblem extends Error {
  readonly status: 400 | 401 | 403 | 404 | 409 | 413 | 415 | 429 | 503;

  constructor(status: HttpProblem['status'], message: string) {
    super(message);
    this.status = status;
  }
}

export type Place = { in?: Parameter['in']; required?: true; description: string };

function parameter(
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

export function uuids(place: Place, max: number): Parameter {
  const schema = {
    type: 'array',
    items: { type: 'string', format: 'uuid' },
    minItems: 1,
    maxItems: max,
  };
  return parameter(place, schema, (name, value: unknown) =>
    // none is not the same as no filter: whoever found nothing must not get everything
    Array.isArray(value) && value.length > 0 && value.length <= max && value.every(isUuid)
      ? (value as string[])
      : refuse(name, value, `give a list of 1 to ${max} UUIDs`),
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

/** Any JSON but null, kept as text. */
export function jsonText(place: Place): Parameter {
  return parameter(place, {}, (name, value) =>
    value === null
      ? refuse(name, value, 'give JSON')
      : checkJsonText(name, JSON.stringify(value)).text,
  );
}

/** Checks what came against what the route takes; unknown names are refused. */
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
        throw new ConfigurationError(
          `${name} is not a parameter here: use ${names.join(', ') || 'none'}`,
        );
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
