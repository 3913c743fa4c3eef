// Secrets from the environment: the text itself in NAME, or in the file that NAME_FILE names. They are never flags,
// which other users of the machine could see.

import { readFileSync } from 'node:fs';

import { ConfigurationError, errorText, shown } from '../core/errors.js';

/** Reads NAME, or the file that NAME_FILE names. */
export function secretFromEnvironment(name: string, what = 'the address'): string | undefined {
  const file = process.env[`${name}_FILE`];
  if (file === undefined) return process.env[name];
  let secret: string;
  try {
    secret = readFileSync(file, 'utf8').trim();
  } catch (error) {
    throw new ConfigurationError(
      `${name}_FILE is ${shown(file)}, which cannot be read: ${errorText(error)}`,
    );
  }
  if (secret === '')
    throw new ConfigurationError(
      `${name}_FILE is ${shown(file)}, which is empty: write ${what} into it`,
    );
  return secret;
}
