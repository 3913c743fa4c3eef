// JSON for PostgreSQL, without silent losses. JSON.stringify turns NaN into null and drops functions; PostgreSQL
// cannot store NUL or half of a surrogate pair. All of these are refused with the path to the value, instead of
// being changed.

import { MessageRefusedError, shown } from './errors.js';

/** The deepest nesting of objects and lists. */
export const maxDepth = 200;

// NUL and halves of surrogate pairs, as JSON escapes them; an even number of backslashes before an escape
// makes it an escaped backslash and not an escape.
const forbiddenEscape =
  /(?<!\\)(?:\\\\)*\\u(?:0000|d[89ab][0-9a-f]{2}(?!\\ud[c-f][0-9a-f]{2})|(?<!(?<!\\)(?:\\\\)*\\ud[89ab][0-9a-f]{2}\\u)d[c-f][0-9a-f]{2})/i;

const plain = 'send objects, lists, texts, numbers, true, false or null';

/** Lone surrogates. JSON.stringify escapes them; JSON text of a producer may contain them unescaped. */
const lone = /\p{Surrogate}/u;

export function serializeJson(field: string, value: unknown): string {
  assertJson(field, value, 0);
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    throw new MessageRefusedError(field, `is not JSON (${(error as Error).message}): ${plain}`);
  }
  if (text === undefined)
    throw new MessageRefusedError(field, `${shown(value)} is not JSON: ${plain}`);
  refuseForbidden(field, text);
  return text;
}

export function refuseForbidden(field: string, text: string): void {
  const forbidden = forbiddenEscape.exec(text) ?? (text.isWellFormed() ? null : lone.exec(text));
  if (forbidden) {
    const isNul = forbidden[0].endsWith('0000');
    throw new MessageRefusedError(
      field,
      `has ${isNul ? 'a NUL character (U+0000)' : 'half of a surrogate pair'} near ` +
        `${shown(text.slice(Math.max(0, forbidden.index - 20), forbidden.index + 26))}, which PostgreSQL cannot store: remove it, or encode the text as base64`,
    );
  }
}

function assertJson(path: string, value: unknown, depth: number): void {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return;
    case 'number':
      if (Number.isFinite(value)) return;
      throw new MessageRefusedError(
        path,
        `is ${value}, which JSON cannot carry: send a finite number or null`,
      );
    case 'bigint':
      throw new MessageRefusedError(
        path,
        `is a BigInt (${shown(value)}), which JSON cannot carry: send it as text`,
      );
    case 'object':
      break;
    default:
      throw new MessageRefusedError(path, `${shown(value)} is not JSON: ${plain}`);
  }
  if (value === null) return;
  if (depth >= maxDepth) {
    throw new MessageRefusedError(
      path.slice(0, 60),
      `is nested deeper than ${maxDepth} levels, or refers to itself: flatten it, or send it as a string`,
    );
  }
  const { toJSON } = value as { toJSON?: unknown };
  if (typeof toJSON === 'function') {
    if (value instanceof Date && Number.isNaN(value.getTime())) {
      throw new MessageRefusedError(path, 'is an Invalid Date: send one that is valid, or null');
    }
    return assertJson(path, toJSON.call(value, ''), depth + 1);
  }
  if (Array.isArray(value)) {
    value.forEach((item, index) => {
      if (!isPlain(item)) assertJson(`${path}[${index}]`, item, depth + 1);
    });
    return;
  }
  const names = Object.keys(value);
  const prototype: unknown = Object.getPrototypeOf(value);
  if (names.length === 0 && prototype !== Object.prototype && prototype !== null) {
    throw new MessageRefusedError(
      path,
      `is a ${value.constructor.name}, which JSON writes as {}: send its contents as an object or a list (is an await missing?)`,
    );
  }
  for (const name of names) {
    const item = (value as Record<string, unknown>)[name];
    // an undefined property is absent in JSON
    if (item !== undefined && !isPlain(item)) assertJson(`${path}.${name}`, item, depth + 1);
  }
}

/** Fast path for most values of a large payload: computing the path of each would cost most of the time. */
function isPlain(value: unknown): boolean {
  return typeof value === 'string' || typeof value === 'boolean' || Number.isFinite(value);
}
