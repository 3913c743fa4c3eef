// The address of a destination for display: where it sends, without secrets. Logins are left out, and values of query
// parameters are hidden. So are the parts of a webhook's path that are no plain words: many receivers, such as chats,
// have a token there.

/** What is shown instead of a secret. */
export const hidden = '[hidden]';

/** The options that say where a destination sends, each as text. */
export type ShownAddress = { name: string; value: string }[];

/** By the kind of the destination. */
const places: Readonly<Record<string, readonly string[]>> = {
  webhook: ['url'],
  kafka: ['brokers', 'topic'],
  nats: ['servers', 'subject', 'stream'],
  rabbitmq: ['url', 'exchange', 'routingKey'],
  redis: ['url', 'stream'],
  sqs: ['queueUrl', 'region', 'endpoint'],
};

/** `definition`: that of the destination, which has no logins. Null for a function, which has no address. */
export function shownAddress(kind: string, definition: object | undefined): ShownAddress | null {
  if (definition === undefined || !Object.hasOwn(places, kind)) return null;
  const given = new Map<string, unknown>(Object.entries(definition));
  const shown = (places[kind] ?? []).flatMap((name) => {
    const values = [given.get(name)].flat().filter((value) => typeof value === 'string');
    const text = values.map((value) => shownText(kind, value)).join(', ');
    return text === '' ? [] : [{ name, value: text }];
  });
  return shown.length === 0 ? null : shown;
}

function shownText(kind: string, value: string): string {
  if (!value.includes('://')) return value;
  return URL.canParse(value) ? shownUrl(new URL(value), kind === 'webhook') : hidden;
}

/** `hidesPath`: the path may contain a token. */
export function shownUrl(url: URL, hidesPath: boolean): string {
  const { protocol, host, pathname, searchParams } = url;
  const path = hidesPath ? pathname.split('/').map(shownPart).join('/') : pathname;
  // a parameter without a value may be a token itself
  const given = [...searchParams].flatMap(([name, value]) => (value === '' ? [] : [name]));
  const names = [...new Set(given)].map(encodeURIComponent);
  const query = names.map((name) => `${name}=${hidden}`).join('&');
  return `${protocol}//${host}${path}${query === '' ? '' : `?${query}`}`;
}

const longestPart = 24;
const mostWords = 3;
/** A word in small letters or with capitals at its beginnings, or a version. */
const word = /^(?:v?\d{1,2}|(?:[A-Z]?[a-z]{1,14}){1,3})$/;
/** Groups of digits and the first letters, as in identifiers. */
const identifier = /^(?=.{6})[0-9a-f]+$/i;

function shownPart(part: string): string {
  const words = part.split(/[-_.]/);
  const isPlain = part.length <= longestPart && words.length <= mostWords && words.every(isWord);
  return isPlain && !identifier.test(words.join('')) ? part : hidden;
}

function isWord(text: string): boolean {
  return text === '' || word.test(text);
}
