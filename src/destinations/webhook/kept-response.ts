// What is kept of an answer: its beginning, as text that PostgreSQL and a terminal can take, and without the
// secrets that were sent. Receivers in trouble echo requests, and what is kept is read by more people than may
// know the secrets.

import { longestSpelling, searchFor } from './spellings.js';

/** The first bytes of an answer, at most. */
export const keptBytes = 4096;

const mask = '[redacted]';
/** Shorter ones are hardly secrets, and would tear holes into every answer. */
const shortestHidden = 4;
const shortestHiddenPart = 8;

// all control characters but tab and line feed, and those that turn the direction of a text
const unkept =
  // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

export type ResponseKeeper = {
  /** How much of an answer must be read: a secret that begins within the kept bytes is found whole. */
  readonly neededBytes: number;
  textOf(answer: Buffer): string;
};

/** `secrets` are those that sign; `headers` those that the user adds; in the address, a path may be one too. */
export function responseKeeper(
  secrets: readonly string[],
  headers: Readonly<Record<string, string>>,
  url: URL,
): ResponseKeeper {
  const hidden = hiddenTexts(secrets, Object.values(headers), url);
  const longest = longestSpelling * Math.max(0, ...hidden.map((text) => text.length));
  const search = hidden.length === 0 ? null : searchFor(hidden);
  return {
    // what is taken out of a text makes room: an answer in UTF-16 has as many NULs as characters
    neededBytes: keptBytes + 2 * longest,
    textOf(answer) {
      const kept = cleaned(answer.subarray(0, keptBytes));
      if (search === null) return kept;
      const whole = answer.length > keptBytes ? cleaned(answer) : kept;
      return redacted(whole, search, kept.length);
    },
  };
}

/** Cut in the middle of a character, the beginning of it is left out. */
function cleaned(bytes: Buffer): string {
  return new TextDecoder().decode(bytes, { stream: true }).replace(unkept, '');
}

/** The first `length` characters, and of what is hidden there not even the beginning. */
function redacted(text: string, search: ReturnType<typeof searchFor>, length: number): string {
  let result = '';
  let done = 0;
  for (const { from, to } of search(text)) {
    if (from >= length) break;
    result += text.slice(done, from) + mask;
    done = to;
  }
  return result + text.slice(done, Math.max(done, length));
}

/** What must not be kept. */
function hiddenTexts(secrets: readonly string[], values: readonly string[], url: URL): string[] {
  const found = new Set<string>();
  const hide = (text: string, shortest: number): void => {
    if (text.length >= shortest) found.add(text);
  };
  for (const secret of secrets) {
    hide(secret, 1);
    hide(secret.slice(secret.indexOf('_') + 1), 1);
  }
  for (const value of values) {
    hide(value, shortestHidden);
    for (const part of value.split(/\s+/)) hide(part, shortestHiddenPart);
    const basic = /^basic\s+(\S+)$/i.exec(value)?.[1];
    if (basic === undefined) continue;
    const credentials = Buffer.from(basic, 'base64').toString('utf8');
    hide(credentials, shortestHidden);
    hide(credentials.slice(credentials.indexOf(':') + 1), shortestHidden);
  }
  for (const part of [...url.pathname.split('/'), ...url.searchParams.values()]) {
    hide(part, shortestHiddenPart);
    hide(decoded(part), shortestHiddenPart);
  }
  return [...found];
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
