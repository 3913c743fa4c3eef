// Application: the name and version of a configuration's owner, and the rules for them.

import { refuse, text } from './options.js';

export type Application = { readonly name: string; readonly version: string | null };

/** Owners that are not applications: definitions made in SQL, and the endpoints of the database. */
const reserved = ['sql', 'endpoints'];

const name = text({
  default: 'default',
  pattern: /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$/,
  meaning: 'a name of letters, digits, _ - and ., at most 63',
});

export function applicationKind(where: string, value: unknown): string {
  const given = name(where, value);
  if (reserved.includes(given)) refuse(where, value, 'this name is reserved: choose another');
  return given;
}

export const versionKind = text({
  pattern: /^[\u0020-\u007e]{1,100}$/,
  meaning: 'a text of 1 to 100 letters, digits and signs',
});
