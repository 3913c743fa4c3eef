// The .env file: commands take variables from it that the environment does not have, as most tools of a project do.
// Values are never shown.

import { readFileSync, statSync } from 'node:fs';
import { parseEnv } from 'node:util';

import { errorText } from '../core/errors.js';

/** Variables that say which database is meant. */
const place = /^(DATABASE_(DIRECT_|REPLICA_|SERVER_)?URL(_FILE)?|PGHOST|PGPORT|PGDATABASE)$/;
/** What belongs to that database. */
const login = /^(PGUSER|PGPASSWORD|PGPASSFILE|PGSERVICE|PGOPTIONS|PGSSL[A-Z]*)$/;
const fileVariable = 'WAYBILL_ENV_FILE';
const mostBytes = 1_048_576;

/**
 * Loads `.env` of the working directory, or the file that WAYBILL_ENV_FILE names; if that is empty, none. A variable
 * that is set is kept. If the environment says which database is meant, the file adds nothing to that: half an address
 * from each would be a third database. Returns what went wrong.
 */
export function loadEnvFile(environment: NodeJS.ProcessEnv = process.env): string | undefined {
  const named = environment[fileVariable];
  const file = named ?? '.env';
  if (file === '') return undefined;
  let found: NodeJS.Dict<string>;
  try {
    const state = statSync(file, { throwIfNoEntry: named !== undefined });
    // Python projects often have a virtual environment in a directory named .env
    if (named === undefined && !state?.isFile()) return undefined;
    if ((state?.size ?? 0) > mostBytes) return `${file} is not used: it has more than a megabyte`;
    found = parseEnv(readFileSync(file, 'utf8').replace(/^\uFEFF/, ''));
  } catch (error) {
    return `${file} is not used, because it cannot be read: ${errorText(error)}`;
  }
  const given = new Set(Object.keys(environment));
  const knowsDatabase = [...given].some((name) => place.test(name));
  for (const [name, value] of Object.entries(found)) {
    if (given.has(name) || (knowsDatabase && (place.test(name) || login.test(name)))) continue;
    environment[name] = value;
  }
  return undefined;
}
