// Reads the keys that seal endpoint secrets from WAYBILL_SECRET_KEY, or from the file that WAYBILL_SECRET_KEY_FILE
// names. No error contains their values.

import { readFileSync } from 'node:fs';

import { ConfigurationError, errorText, shown } from './errors.js';
import { parseSecretKeys } from './sealed-secret.js';
import type { SecretKey } from './sealed-secret.js';

const variable = 'WAYBILL_SECRET_KEY';
const howToMakeOne = 'make one with: openssl rand -base64 32';

/** What was parsed last: a relay asks for every endpoint that it opens. */
let parsed: { text: string; keys: readonly SecretKey[] | null } | undefined;

/** All keys; the first one seals. Throws if there is none or if one is invalid. */
export function secretKeys(environment: NodeJS.ProcessEnv = process.env): readonly SecretKey[] {
  const file = environment[`${variable}_FILE`];
  const name = file === undefined ? variable : `${variable}_FILE`;
  const text = file === undefined ? environment[variable] : contentOf(file);
  if (text === undefined || text.trim() === '') {
    throw new ConfigurationError(
      `${name} is ${file === undefined ? 'not set' : 'an empty file'}: the secrets of endpoints are sealed with it; ${howToMakeOne}`,
    );
  }
  if (parsed?.text !== text) parsed = { text, keys: parseSecretKeys(text) };
  const { keys } = parsed;
  if (keys === null) {
    throw new ConfigurationError(
      `${name} is not a key: give 32 bytes in base64, or several of them separated by commas, of which the first seals; ${howToMakeOne}`,
    );
  }
  return keys;
}

function contentOf(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new ConfigurationError(
      `${variable}_FILE is ${shown(file)}, which cannot be read: ${errorText(error)}`,
    );
  }
}
