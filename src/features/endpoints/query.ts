// Query parameters of an endpoint: added to the address of every request, and sealed like its headers, because they may be
// credentials. No error shows a value.

import { ConfigurationError } from '../../core/errors.js';
import { refuse } from '../../core/options.js';

const mostParameters = 20;
const mostBytes = 2048;

/** Option kind: query parameters. */
export function queryParameters(name: string, value: unknown): Record<string, string> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    refuse(name, '…', 'give an object of names and texts');
  const entries = Object.entries(value);
  if (entries.length > mostParameters)
    throw new ConfigurationError(
      `${name} has ${entries.length} parameters: give at most ${mostParameters}`,
    );
  for (const [parameter, text] of entries)
    if (parameter === '' || typeof text !== 'string' || !text.isWellFormed())
      refuse(`${name}.${parameter}`, '…', 'give a name and a text');
  const bytes = Buffer.byteLength(new URLSearchParams(value as Record<string, string>).toString());
  if (bytes > mostBytes)
    throw new ConfigurationError(`${name} has ${bytes} bytes: give at most ${mostBytes}`);
  return { ...value };
}
