// The stored part of a response: its beginning, as text that is safe for PostgreSQL and terminals, without the secrets
// of the request. Failing receivers may echo requests, and people who may not know the secrets read stored responses.

import { searchFor } from './redaction.js';
import type { Search } from './redaction.js';
import { secretTexts, shortestValue } from './secret-texts.js';

/** The most bytes of a response that are stored. */
export const keptBytes = 4096;

/**
 * Read beyond the stored bytes, to find a secret that begins at their end. What may be the beginning of one is redacted
 * too.
 */
const readOnBytes = 1024;

const mask = '[redacted]';

// all control characters except tab and line feed, and characters that change the direction of text
const unkept =
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

export type ResponseKeeper = {
  /** How many bytes of a response are searched, whatever its length and that of the secrets. */
  readonly neededBytes: number;
  /** `beginning` has the needed bytes, or all that arrived; `isWhole`: the response is complete. */
  textOf(beginning: Buffer, isWhole: boolean): string;
};

/** `secrets` sign the requests; `headers` are added by the user; the path of the address may be a secret too. */
export function responseKeeper(
  secrets: readonly string[],
  headers: Readonly<Record<string, string>>,
  url: URL,
): ResponseKeeper {
  // made for the first response that is kept: most webhooks of a relay with thousands of them never need it
  let search: Search | null | undefined;
  const searchOf = (): Search | null => {
    const hidden = secretTexts(secrets, headers, url);
    return hidden.length === 0 ? null : searchFor(hidden);
  };
  return {
    neededBytes: keptBytes + readOnBytes,
    textOf(beginning, isWhole) {
      const kept = cleaned(beginning.subarray(0, keptBytes));
      if (isWhole && kept.length < shortestValue) return kept;
      search = search === undefined ? searchOf() : search;
      if (search === null) return kept;
      const read = beginning.length > keptBytes ? cleaned(beginning) : kept;
      return redacted(read, search, kept.length, isWhole);
    },
  };
}

/** If a character is cut in the middle, its beginning is left out. */
function cleaned(bytes: Buffer): string {
  return new TextDecoder().decode(bytes, { stream: true }).replace(unkept, '');
}

/** The first `length` characters; of a secret that begins there, not even its beginning is shown. */
function redacted(text: string, search: Search, length: number, isWhole: boolean): string {
  let result = '';
  let done = 0;
  for (const { from, to } of search(text, length, isWhole)) {
    if (from >= length) break;
    result += text.slice(done, from) + mask;
    done = to;
  }
  return result + text.slice(done, Math.max(done, length));
}
