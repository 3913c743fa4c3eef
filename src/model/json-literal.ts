// The text of one value inside JSON text, exactly as it stands there. A number that went through JSON.parse is a
// double: 0.1 is no longer 0.1, and 9007199254740993 is another number. Where that matters, its literal is read.

/** The literal at a path of names such as ['payment', 'amount'], or undefined. The text must be JSON. */
export function literalAt(json: string, path: readonly string[]): string | undefined {
  let at = skipSpace(json, 0);
  for (const name of path) {
    const found = memberOf(json, at, name);
    if (found === undefined) return undefined;
    at = found;
  }
  return json.slice(at, endOfValue(json, at));
}

/** Where the value of this member begins; the last one counts, as for JSON.parse. */
function memberOf(json: string, start: number, name: string): number | undefined {
  if (json[start] !== '{') return undefined;
  let found: number | undefined;
  for (let at = skipSpace(json, start + 1); json[at] === '"';) {
    const endOfName = endOfValue(json, at);
    const value = skipSpace(json, skipSpace(json, endOfName) + 1);
    if (JSON.parse(json.slice(at, endOfName)) === name) found = value;
    const next = skipSpace(json, endOfValue(json, value));
    at = json[next] === ',' ? skipSpace(json, next + 1) : next;
  }
  return found;
}

/** Behind the value that begins here. */
function endOfValue(json: string, start: number): number {
  let depth = 0;
  for (let at = start; at < json.length; at += 1) {
    const character = json[at];
    if (character === '"') {
      at = endOfString(json, at);
    } else if (character === '{' || character === '[') {
      depth += 1;
      continue;
    } else if (character === '}' || character === ']') {
      depth -= 1;
    } else if (depth > 0) {
      continue;
    } else {
      return (
        start + (/^[^\s,\]}]*/.exec(json.slice(start, start + longestLiteral))?.[0].length ?? 0)
      );
    }
    if (depth === 0) return at + 1;
  }
  return json.length;
}

/** PostgreSQL writes numbers out; none has more digits than this. */
const longestLiteral = 200_000;

/** The closing quote. */
function endOfString(json: string, start: number): number {
  for (let at = start + 1; at < json.length; at += 1) {
    if (json[at] === '\\') at += 1;
    else if (json[at] === '"') return at;
  }
  return json.length;
}

function skipSpace(json: string, start: number): number {
  let at = start;
  while (/\s/.test(json[at] ?? '')) at += 1;
  return at;
}
