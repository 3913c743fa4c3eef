// Finds texts in an answer however they are spelled there: as they are, or escaped as JSON, URLs, HTML or PHP would.
// Both sides are read without their escapes and then compared as they stand. No pattern is made of what is looked for:
// whoever answers may have chosen the address too, and could make one that takes hours to match.

/** From here, up to but not including there. */
export type Found = { readonly from: number; readonly to: number };

/** No spelling of one character is longer, in bytes. */
export const longestSpelling = 12;

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

/** Each can be read in one way only, so that a text is read in one go. */
const escape =
  /\\+(?:u([0-9a-f]{4}))?|((?:%[0-9a-f]{2})+)|&#0*(\d{1,7});|&#x0*([0-9a-f]{1,6});|&(amp|lt|gt|quot|apos|plus|equals|sol);/gi;

/** A text without its escapes, and where each of its characters stood. */
type Unescaped = { readonly text: string; readonly from: readonly number[]; to: readonly number[] };

/** Gives a search for these texts; what it finds is in order, and does not overlap. */
export function searchFor(texts: readonly string[]): (answer: string) => Found[] {
  const plain = new Set(texts.map(lower));
  const wanted = new Set([...plain, ...texts.map((text) => unescaped(text).text)]);
  wanted.delete('');
  const shortest = Math.min(...[...wanted].map(({ length }) => length));
  return (answer) => {
    const found: Found[] = [];
    // most answers are a word or two, or a little JSON: no spelling is shorter than what it spells
    if (answer.length < shortest) return found;
    const raw = lower(answer);
    const isPlain = !/[\\%&]/.test(raw);
    for (const text of isPlain ? wanted : plain)
      for (const at of places(raw, text)) found.push({ from: at, to: at + text.length });
    if (isPlain) return joined(found);
    const read = unescaped(answer);
    for (const text of wanted) {
      for (const at of places(read.text, text))
        found.push({ from: read.from[at] ?? 0, to: read.to[at + text.length - 1] ?? 0 });
    }
    return joined(found);
  };
}

function* places(text: string, wanted: string): Generator<number> {
  let at = text.indexOf(wanted);
  for (; at !== -1; at = text.indexOf(wanted, at + wanted.length)) yield at;
}

function joined(found: Found[]): Found[] {
  const result: Found[] = [];
  for (const next of found.toSorted((a, b) => a.from - b.from || b.to - a.to)) {
    const last = result.at(-1);
    if (last === undefined || next.from >= last.to) result.push(next);
    else if (next.to > last.to) result[result.length - 1] = { from: last.from, to: next.to };
  }
  return result;
}

/** Of its ASCII letters only: the places of characters must stay what they are. */
function lower(text: string): string {
  // oxlint-disable-next-line no-control-regex -- all of ASCII
  if (/^[\u0000-\u007f]*$/.test(text)) return text.toLowerCase();
  return text.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

function unescaped(text: string): Unescaped {
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
  /** Backslashes belong to what they stand before. */
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
  return { text: lower(result), from, to };
}

function characterOf(codePoint: number): string {
  return codePoint <= 0x10_ff_ff ? String.fromCodePoint(codePoint) : '\ufffd';
}

/** Of bytes in percent-encoding: UTF-8 where it is that, otherwise Latin-1. */
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
