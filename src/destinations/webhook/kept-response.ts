// What is kept of an answer: its beginning, as text that PostgreSQL and a terminal can take, and without the
// secrets that were sent. Receivers in trouble echo requests, and what is kept is read by more people than may
// know the secrets.

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
  const pattern = hidden.length === 0 ? null : new RegExp(hidden.map(anySpelling).join('|'), 'gi');
  return {
    // what is taken out of a text makes room: an answer in UTF-16 has as many NULs as characters
    neededBytes: keptBytes + 2 * longest,
    textOf(answer) {
      const kept = cleaned(answer.subarray(0, keptBytes));
      if (pattern === null) return kept;
      return redacted(cleaned(answer), pattern, kept.length);
    },
  };
}

/** Cut in the middle of a character, the beginning of it is left out. */
function cleaned(bytes: Buffer): string {
  return new TextDecoder().decode(bytes, { stream: true }).replace(unkept, '');
}

/** The first `length` characters, and of what is hidden there not even the beginning. */
function redacted(text: string, pattern: RegExp, length: number): string {
  let result = '';
  let from = 0;
  for (const { 0: found, index } of text.matchAll(pattern)) {
    if (index >= length) break;
    result += text.slice(from, index) + mask;
    from = index + found.length;
  }
  return result + text.slice(from, Math.max(from, length));
}

/** What must not be kept; the longest first, or a part would hide the whole. */
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
  return [...found].toSorted((a, b) => b.length - a.length);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** No spelling of one character is longer, in bytes. */
const longestSpelling = 12;

const entities: Readonly<Record<string, string>> = {
  '&': 'amp',
  '<': 'lt',
  '>': 'gt',
  '"': 'quot',
  "'": 'apos',
  '+': 'plus',
  '=': 'equals',
  '/': 'sol',
};

/** A pattern for a text in whatever way it comes back: as it is, or escaped as JSON, URLs, HTML or PHP would. */
function anySpelling(text: string): string {
  return Array.from(text, (character) => {
    if (/^[A-Za-z0-9]$/.test(character)) return character;
    const hex = (character.codePointAt(0) ?? 0).toString(16);
    const number = String(character.codePointAt(0));
    const literal = character.replace(/[$()*+.?[\\\]^{|}/-]/g, '\\$&');
    const named = entities[character];
    return `(?:${[
      `\\\\*${literal}`,
      `\\\\+u${hex.padStart(4, '0')}`,
      encodeURIComponent(character),
      `%${hex.padStart(2, '0')}`,
      `&#0*${number};`,
      `&#x0*${hex};`,
      ...(named === undefined ? [] : [`&${named};`]),
    ].join('|')})`;
  }).join('');
}
