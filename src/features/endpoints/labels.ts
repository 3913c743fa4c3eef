// Labels of an endpoint: names and texts, besides the tenant, by which operators find it.

import { ConfigurationError, shown } from '../../core/errors.js';
import { refuse } from '../../core/options.js';

const mostLabels = 20;
const named = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$/;
// eslint-disable-next-line no-control-regex
const carried = /^[^,\u0000-\u001f\u007f]+$/;

/** Option kind: labels. */
export function endpointLabels(name: string, value: unknown): Record<string, string> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    refuse(name, value, 'give an object of names and texts');
  const entries = Object.entries(value);
  if (entries.length > mostLabels)
    throw new ConfigurationError(
      `${name} has ${entries.length} entries: give at most ${mostLabels}`,
    );
  for (const [label, text] of entries)
    if (
      !named.test(label) ||
      typeof text !== 'string' ||
      !carried.test(text) ||
      Buffer.byteLength(text) > 255
    )
      refuse(
        `${name}.${label}`,
        text,
        'give a name of letters, digits, _ . and -, at most 63, and a text of 1 to 255 bytes without commas and control characters',
      );
  return { ...value };
}

/** Parses labels such as `plan:gold,region:eu`, from a flag or a query parameter; an empty text means none. */
export function parseLabels(name: string, text: string): Record<string, string> {
  if (text === '') return {};
  const pairs = text.split(',').map((pair) => {
    const [, label = '', value = ''] = /^\s*([^:]+):(.+)$/.exec(pair) ?? [];
    if (label === '')
      throw new ConfigurationError(`${name} is ${shown(text)}: give plan:gold,region:eu`);
    return [label, value];
  });
  return endpointLabels(name, Object.fromEntries(pairs));
}
