// The .env file: commands take variables from it that the environment does not have, as most tools of a project do.
// Values are never shown.

import { readFileSync, statSync } from 'node:fs';
import { parseEnv } from 'node:util';

import { errorText } from '../core/errors.js';

const fileVariable = 'WAYBILL_ENV_FILE';

/**
 * Loads `.env` of the working directory, or the file that WAYBILL_ENV_FILE names; if that is empty, none. A variable
 * that is set is kept, and so is a secret that is set in its other form (NAME and NAME_FILE). Returns what went wrong.
 */
export function loadEnvFile(environment: NodeJS.ProcessEnv = process.env): string | undefined {
  const named = environment[fileVariable];
  const file = named ?? '.env';
  // a directory .env is one of Python
  if (file === '' || (named === undefined && !isFile(file))) return undefined;
  let found: NodeJS.Dict<string>;
  try {
    found = parseEnv(readFileSync(file, 'utf8'));
  } catch (error) {
    return `${file} is not used, because it cannot be read: ${errorText(error)}`;
  }
  const given = new Set(Object.keys(environment));
  for (const [name, value] of Object.entries(found)) {
    const otherForm = name.endsWith('_FILE') ? name.slice(0, -'_FILE'.length) : `${name}_FILE`;
    if (!given.has(name) && !given.has(otherForm)) environment[name] = value;
  }
  return undefined;
}

function isFile(file: string): boolean {
  return statSync(file, { throwIfNoEntry: false })?.isFile() ?? false;
}
