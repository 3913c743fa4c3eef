// Example of an event's payload: the one that its JSON Schema gives, or one made from the schema's types, formats and
// limits. A made example shows the shape. It need not fit patterns and other rules that only a check can apply.

import { resolvePointer } from './asyncapi.js';
import type { JsonSchema } from './json-schema.js';
import { followed } from './shapes.js';
import { isObject } from './subschemas.js';

/** Deeper levels are left out, so that a schema that contains itself ends. */
const mostLevels = 6;

const byFormat: Readonly<Record<string, string>> = {
  'date-time': '2026-01-31T08:00:00.000Z',
  date: '2026-01-31',
  time: '08:00:00Z',
  duration: 'PT1H',
  email: 'ada@example.com',
  hostname: 'example.com',
  ipv4: '192.0.2.1',
  ipv6: '2001:db8::1',
  uri: 'https://example.com/',
  uuid: '01890a5d-ac96-774b-bcce-b302099a8057',
};

export function exampleOf(schema: JsonSchema): unknown {
  return made(schema, 0);

  function made(part: unknown, level: number): unknown {
    const found = followed(part, (reference) => resolvePointer(schema, reference));
    if (!isObject(found)) return null;
    const [given] = [found['examples'], found['enum']].flatMap((values) =>
      Array.isArray(values) ? (values as unknown[]) : [],
    );
    if (given !== undefined) return given;
    for (const name of ['example', 'const', 'default']) if (name in found) return found[name];
    const parts = alternatives(found);
    if (parts !== undefined) return merged(parts.map((each) => made(each, level)));
    const type = [found['type'] ?? (found['properties'] ? 'object' : 'null')].flat()[0];
    switch (type) {
      case 'object':
        return level < mostLevels ? objectOf(found, level) : {};
      case 'array':
        return level + 1 < mostLevels && isObject(found['items'])
          ? [made(found['items'], level + 1)]
          : [];
      case 'string':
        return textOf(found);
      case 'integer':
      case 'number':
        return numberOf(found);
      case 'boolean':
        return true;
      default:
        return null;
    }
  }

  function objectOf({ properties }: JsonSchema, level: number): Record<string, unknown> {
    return Object.fromEntries(
      Object.entries(isObject(properties) ? properties : {}).map(([name, property]) => [
        name,
        made(property, level + 1),
      ]),
    );
  }
}

/** All parts of `allOf`, or the first alternative that is not null. */
function alternatives({ allOf, anyOf, oneOf }: JsonSchema): unknown[] | undefined {
  if (Array.isArray(allOf)) return allOf as unknown[];
  const choices = [anyOf, oneOf].find((each) => Array.isArray(each)) as unknown[] | undefined;
  const chosen =
    choices?.find((each) => !(isObject(each) && each['type'] === 'null')) ?? choices?.[0];
  return chosen === undefined ? undefined : [chosen];
}

function merged(values: readonly unknown[]): unknown {
  return values.every(isObject) ? Object.assign({}, ...values) : values[0];
}

function textOf({ format, minLength, maxLength }: JsonSchema): string {
  const text = byFormat[String(format)] ?? 'text';
  const least = typeof minLength === 'number' ? minLength : 0;
  const most = typeof maxLength === 'number' ? maxLength : text.length + least;
  return text.padEnd(Math.min(least, 1000), 'x').slice(0, Math.max(most, least));
}

function numberOf({ minimum, exclusiveMinimum, maximum, exclusiveMaximum }: JsonSchema): number {
  // libraries give the limits of safe integers to every whole number
  const limits = [minimum, exclusiveMinimum, maximum, exclusiveMaximum].map((limit) =>
    typeof limit === 'number' && Math.abs(limit) < Number.MAX_SAFE_INTEGER ? limit : undefined,
  );
  const [least = limits[1] === undefined ? undefined : limits[1] + 1, , most, below] = limits;
  const highest = most ?? (below === undefined ? undefined : below - 1);
  if (least !== undefined) return Math.max(least, Math.min(1, highest ?? 1));
  return highest === undefined ? 1 : Math.min(1, highest);
}
