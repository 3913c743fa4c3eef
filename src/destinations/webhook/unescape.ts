// Unescape: decodes the escapes of JSON, URLs, HTML and PHP, and the plus sign that forms use for a space. Each
// character of the result has its position in the original text, so that a match can be cut out of the original. Nested
// escapes, such as JSON in a URL, are decoded too.

/**
 * Lower-case text; `from` and `to` are the positions of each character in the original, left out if nothing was
 * escaped.
 */
export type Reading = {
  readonly text: string;
  readonly from?: readonly number[];
  readonly to?: readonly number[];
};

const entities: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  plus: '+',
  equals: '=',
  sol: '/',
};

/** The alternatives are unambiguous, so that a text is read in one pass. */
const escape =
  /\\+(?:u([0-9a-f]{4}))?|((?:%[0-9a-f]{2})+)|&#0*(\d{1,7});|&#x0*([0-9a-f]{1,6});|&(amp|lt|gt|quot|apos|plus|equals|sol);/gi;

/** Matches nothing, or an incomplete escape. */
const unfinished =
  /^(?:\\+u[0-9a-f]{0,3}|\\*(?:&(?:#\d*|#x[0-9a-f]*|[a-z]*)|(?:%[c-f][0-9a-f](?:%[89ab][0-9a-f]){0,2})?(?:%[0-9a-f]?)?))$/i;
/** Longer than any escape that software writes; only extra backslashes or zeros could make one longer. */
const longestUnfinished = 32;

/** How many times a text is decoded: receivers encode what they echo once or twice, and seldom three times. */
const deepest = 3;
/** An incomplete escape whose characters are escaped themselves. */
const unfinishedInside = /^(?:[\\%&][\\%&#;a-z0-9]*)?$/i;
const longestUnfinishedInside = 256;

/** Whether only an incomplete escape, or nothing, follows this place; at a `level` above 1, one that is escaped itself. */
export function isUnfinished(text: string, from: number, level: number): boolean {
  const length = text.length - from;
  if (length <= longestUnfinished && unfinished.test(text.slice(from))) return true;
  return level > 1 && length <= longestUnfinishedInside && unfinishedInside.test(text.slice(from));
}

/** The text as it is, decoded once, decoded twice and so on, as long as that changes it. */
export function readingsOf(text: string): Reading[] {
  const readings = [plainReading(text)];
  let last: Reading = { text };
  while (readings.length <= deepest && /[\\%&]/.test(last.text)) {
    last = within(last, unescaped(last.text));
    readings.push(last);
  }
  return readings;
}

/** Maps the positions of a text that was decoded twice to positions in the original text. */
function within(outer: Reading, { text, from = [], to = [] }: Reading): Reading {
  return {
    text,
    from: from.map((at) => outer.from?.[at] ?? at),
    to: to.map((at) => outer.to?.[at - 1] ?? at),
  };
}

/** The text without decoding. */
function plainReading(text: string): Reading {
  return { text: folded(text) };
}

/** Folds only ASCII letters, so that positions do not change. */
function folded(text: string): string {
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase()).replaceAll('+', ' ');
}

function unescaped(text: string): Reading {
  let result = '';
  const from: number[] = [];
  const to: number[] = [];
  const add = (characters: string, start: number, end: number): void => {
    result += characters;
    for (let index = 0; index < characters.length; index += 1) {
      from.push(start);
      to.push(end);
    }
  };
  let done = 0;
  /** Backslashes belong to the character that they precede. */
  let begin: number | undefined;
  const addPlain = (end: number): void => {
    for (; done < end; done += 1) {
      add(text.charAt(done), begin ?? done, done + 1);
      begin = undefined;
    }
  };
  for (const match of text.matchAll(escape)) {
    addPlain(match.index);
    const [whole, unit, bytes, decimal, hex, name] = match;
    done = match.index + whole.length;
    const start = begin ?? match.index;
    begin = undefined;
    if (bytes !== undefined) {
      for (const { character, at, length } of charactersOf(bytes))
        add(character, at === 0 ? start : match.index + at, match.index + at + length);
    } else if (unit !== undefined) add(String.fromCharCode(Number.parseInt(unit, 16)), start, done);
    else if (name !== undefined) add(entities[name.toLowerCase()] ?? '', start, done);
    else if (decimal !== undefined) add(characterOf(Number(decimal)), start, done);
    else if (hex !== undefined) add(characterOf(Number.parseInt(hex, 16)), start, done);
    else begin = start;
  }
  addPlain(text.length);
  return { text: folded(result), from, to };
}

function characterOf(codePoint: number): string {
  return codePoint <= 0x10_ff_ff ? String.fromCodePoint(codePoint) : '\ufffd';
}

/** Decodes percent-encoded bytes: as UTF-8 if valid, otherwise as Latin-1. */
function* charactersOf(encoded: string): Generator<{
  character: string;
  at: number;
  length: number;
}> {
  const bytes = Buffer.from(encoded.replaceAll('%', ''), 'hex');
  for (let index = 0; index < bytes.length;) {
    const first = bytes[index] ?? 0;
    const count = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    const character = bytes.toString('utf8', index, index + count);
    const isUtf8 = Buffer.byteLength(character) === count && !character.includes('\ufffd');
    const length = isUtf8 ? count : 1;
    yield {
      character: isUtf8 ? character : String.fromCharCode(first),
      at: 3 * index,
      length: 3 * length,
    };
    index += length;
  }
}
