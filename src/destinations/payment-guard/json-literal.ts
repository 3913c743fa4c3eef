// Reads the literal texts of values inside JSON text, in one pass. JSON.parse turns numbers into doubles: 0.1 is no
// longer exactly 0.1, and 9007199254740993 becomes another number. Amounts are therefore read as literals.

type Wanted = { path: readonly string[]; literal: string | undefined };

/**
 * The literals at paths of names such as ['payment', 'amount'], each undefined if there is none. The text must be valid
 * JSON. Of repeated names the last one counts, as for JSON.parse.
 */
export function literalsAt(
  json: string,
  paths: readonly (readonly string[])[],
): (string | undefined)[] {
  const wanted = paths.map((path): Wanted => ({ path, literal: undefined }));
  readMembers(json, skipSpace(json, 0), wanted, 0);
  return wanted.map(({ literal }) => literal);
}

const [quote, backslash, comma] = [0x22, 0x5c, 0x2c];
const [openBrace, closeBrace, openBracket, closeBracket] = [0x7b, 0x7d, 0x5b, 0x5d];

/** Reads the members of the object that begins here, and returns the position after it. Depth: the names passed. */
function readMembers(
  json: string,
  start: number,
  wanted: readonly Wanted[],
  depth: number,
): number {
  if (json.charCodeAt(start) !== openBrace) return endOfValue(json, start);
  let at = skipSpace(json, start + 1);
  while (json.charCodeAt(at) === quote) {
    const endOfName = endOfString(json, at);
    const value = skipSpace(json, skipSpace(json, endOfName) + 1);
    const end = skipSpace(json, readMember(json, at, endOfName, value, wanted, depth));
    at = json.charCodeAt(end) === comma ? skipSpace(json, end + 1) : end;
  }
  return at + 1;
}

function readMember(
  json: string,
  name: number,
  endOfName: number,
  value: number,
  wanted: readonly Wanted[],
  depth: number,
): number {
  const here = membersNamed(json, name, endOfName, wanted, depth);
  if (here === undefined) return endOfValue(json, value);
  // an earlier member of this name does not count
  for (const one of here) one.literal = undefined;
  const deeper = here.filter(({ path }) => path.length > depth + 1);
  const end =
    deeper.length === 0 ? endOfValue(json, value) : readMembers(json, value, deeper, depth + 1);
  for (const one of here) if (one.path.length === depth + 1) one.literal = json.slice(value, end);
  return end;
}

/** Those wanted that have this name in their path, or undefined: nothing is allocated for other names. */
function membersNamed(
  json: string,
  start: number,
  end: number,
  wanted: readonly Wanted[],
  depth: number,
): Wanted[] | undefined {
  let found: Wanted[] | undefined;
  for (const one of wanted)
    if (isName(json, start, end, one.path[depth] ?? '')) (found ??= []).push(one);
  return found;
}

/** Whether the string from its opening quote to its end is this name. Compared in place: JSON.parse takes longer. */
function isName(json: string, start: number, end: number, name: string): boolean {
  let at = start + 1;
  for (let index = 0; index < name.length; index += 1) {
    let code = json.charCodeAt(at);
    at += 1;
    if (code === quote) return false;
    if (code === backslash) {
      const letter = json.charAt(at);
      code = letter === 'u' ? Number.parseInt(json.slice(at + 1, at + 5), 16) : escaped(letter);
      at += letter === 'u' ? 5 : 1;
    }
    if (code !== name.charCodeAt(index)) return false;
  }
  return at === end - 1;
}

/** The character of an escape such as \n. */
function escaped(letter: string): number {
  const index = 'bfnrt'.indexOf(letter);
  return (index < 0 ? letter : '\b\f\n\r\t').charCodeAt(Math.max(index, 0));
}

/** The position after the value that begins here. */
function endOfValue(json: string, start: number): number {
  let depth = 0;
  for (let at = start; at < json.length;) {
    const code = json.charCodeAt(at);
    if (code === quote) at = endOfString(json, at);
    else {
      if (code === openBrace || code === openBracket) depth += 1;
      else if (code === closeBrace || code === closeBracket) depth -= 1;
      else if (depth === 0) return endOfScalar(json, at);
      at += 1;
    }
    if (depth === 0) return at;
  }
  return json.length;
}

/** The position after the number, true, false or null that begins here. */
function endOfScalar(json: string, start: number): number {
  let at = start;
  for (; at < json.length; at += 1) {
    const code = json.charCodeAt(at);
    if (code === comma || code === closeBrace || code === closeBracket || isSpace(code)) break;
  }
  return at;
}

/** The position after the closing quote. */
function endOfString(json: string, start: number): number {
  for (let at = start + 1; at < json.length; at += 1) {
    const code = json.charCodeAt(at);
    if (code === backslash) at += 1;
    else if (code === quote) return at + 1;
  }
  return json.length;
}

function skipSpace(json: string, start: number): number {
  let at = start;
  while (isSpace(json.charCodeAt(at))) at += 1;
  return at;
}

function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}
