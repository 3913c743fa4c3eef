// Payload filter: finds messages by values of fields in their payloads. Payloads have no index, so the filter is checked
// on the candidates of a list, a bounded number of bytes at a time. The values are compared in the database.

import { ConfigurationError, shown } from '../core/errors.js';
import type { Database } from '../database/connection.js';

/** The wanted value by field, such as `customer.email`: names joined by dots. All of them must match. */
export type PayloadFilter = Readonly<Record<string, string>>;

export const mostPayloadFields = 20;

const name = '[^\\s.:="\\p{C}]+';
const fieldPattern = new RegExp(`^${name}(\\.${name}){0,9}$`, 'u');

/** Checks a field of a payload, such as `customer.email`. */
export function payloadField(where: string, value: unknown): string {
  if (typeof value === 'string' && value.length <= 255 && fieldPattern.test(value)) return value;
  throw new ConfigurationError(
    `${where} is ${shown(value)}: give 1 to 10 names joined by dots, such as customer.email, at most 255 characters and without spaces, : = and "`,
  );
}

const literal = /^(true|false|null|-?(0|[1-9]\d*)(\.\d+)?)$/;

/**
 * The condition as a jsonpath: the field is the text, or the number or word that the text stands for. Numbers are exact.
 * A jsonpath is lax: of a list in the payload, one element that matches is enough.
 */
export function payloadPath(filter: PayloadFilter): string {
  const fields = Object.entries(filter);
  if (fields.length < 1 || fields.length > mostPayloadFields)
    throw new ConfigurationError(
      `payload has ${fields.length} fields: give 1 to ${mostPayloadFields}`,
    );
  const conditions = fields.map(([field, value]) => {
    const names = payloadField('the field of a payload', field).split('.');
    if (!value.isWellFormed() || value.includes('\0') || value.length > 1024)
      throw new ConfigurationError(
        `payload.${field} is ${shown(value)}: give text of at most 1024 characters`,
      );
    const place = `@${names.map((each) => `.${JSON.stringify(each)}`).join('')}`;
    const values = [JSON.stringify(value), ...(literal.test(value) ? [value] : [])];
    return `(${values.map((each) => `${place} == ${each}`).join(' || ')})`;
  });
  return `$ ? (${conditions.join(' && ')})`;
}

/** The payloads of one query: at most this many, and about as many bytes as take 20 ms to read. */
const mostPayloads = 1000;
const mostBytes = 4 * 1024 * 1024;

/**
 * Checks the payloads of the first candidates. `checked`: how many candidates, at least one; `matching`: those of them
 * that match.
 */
export async function matchPayloads<C extends { messageId: string }>(
  database: Database,
  path: string,
  candidates: readonly C[],
): Promise<{ checked: number; matching: C[] }> {
  const some = candidates.slice(0, mostPayloads);
  const ids = [...new Set(some.map(({ messageId }) => messageId))];
  const [row] = await database.query<{ checked: number; ids: string[] }>(
    'search payloads',
    `SELECT p.checked, p.ids FROM ${database.schema}.match_payloads($1, $2, $3) p`,
    [ids, path, mostBytes],
  );
  const read = new Set(ids.slice(0, row?.checked ?? 0));
  const end = some.findIndex(({ messageId }) => !read.has(messageId));
  const done = end === -1 ? some : some.slice(0, end);
  const found = new Set(row?.ids);
  return {
    checked: done.length,
    matching: done.filter(({ messageId }) => found.has(messageId)),
  };
}
