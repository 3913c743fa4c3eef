// The secrets of a request, which must not be stored with its response: signing secrets, header values and their parts,
// and the parts of the address after the host.

/** Shorter values are hardly secrets, and redacting them would make every response unreadable. Signing secrets are longer. */
export const shortestValue = 4;
/** The minimum for words inside values and addresses, which are not always secrets. */
const shortestWord = 8;

/** `secrets`: the signing secrets, with their prefixes. */
export function secretTexts(
  secrets: readonly string[],
  headers: Readonly<Record<string, string>>,
  url: URL,
): string[] {
  const found = new Set<string>();
  const hide = (texts: Iterable<string>, shortest: number): void => {
    for (const text of texts) if (text.length >= shortest) found.add(text);
  };
  for (const secret of secrets) hide(spellingsOf(secret), 1);
  for (const [name, value] of Object.entries(headers)) {
    hide([value, ...quotedIn(value), ...passwordsIn(value)], shortestValue);
    if (name.toLowerCase() === 'cookie') hide(cookiesIn(value), shortestValue);
    hide(wordsIn(value), shortestWord);
  }
  hide(addressPartsIn(url), shortestWord);
  return [...found];
}

/** The secret with and without its prefix, with and without padding, and in URL-safe base64. */
function spellingsOf(secret: string): string[] {
  const key = secret.slice(secret.indexOf('_') + 1);
  const bare = key.replace(/=+$/, '');
  return [secret, key, bare, bare.replaceAll('+', '-').replaceAll('/', '_')];
}

/**
 * Text in double or single quotes, or to the end: without a closing quote, searching from each opening one would be
 * quadratic.
 */
function quotedIn(value: string): string[] {
  const quoted = value.matchAll(/"((?:[^"\\]|\\.)*)"?|'([^']*)'?/g);
  return [...quoted].map(([, double, single]) => double ?? single ?? '');
}

function cookiesIn(value: string): string[] {
  return value.split(';').map((pair) => pair.slice(pair.indexOf('=') + 1).trim());
}

/** Decoded basic authentication: user and password together, and the password. */
function passwordsIn(value: string): string[] {
  const basic = /^basic\s+(\S+)$/i.exec(value)?.[1];
  if (basic === undefined) return [];
  const credentials = Buffer.from(basic, 'base64').toString('utf8');
  return [credentials, credentials.slice(credentials.indexOf(':') + 1)];
}

/** Split by spaces, then by other separators; also the value of `name=value` and `name:value`. */
function* wordsIn(value: string): Generator<string> {
  yield* value.split(/\s+/);
  for (const word of value.split(/[\s,;"'&|()<>[\]{}]+/)) {
    yield word;
    yield* word.split(/[=:]+/);
    yield word.slice(word.search(/[=:]/) + 1);
  }
}

/** The segments of the path, the values of the query, and the names of parameters without a value. */
function* addressPartsIn({ pathname, search }: URL): Generator<string> {
  const parameters = search
    .slice(1)
    .split('&')
    .map((parameter) => {
      const at = parameter.indexOf('=');
      return parameter.slice(at + 1) || parameter.slice(0, at);
    });
  for (const part of [...pathname.split('/'), ...parameters])
    for (const text of new Set([part, decoded(part)])) {
      yield text;
      yield* wordsIn(text);
    }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
