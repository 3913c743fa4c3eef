// Search words: what a text in the search box means. `status:dead topic:order.* payload.orderId:4711` sets filters; any
// other word is free text, which the user chooses a meaning for.

import { isUuid } from '../../src/core/uuid.js';
import { listedStatuses } from '../../src/listing/statuses.js';

/** The words before a colon, and the filter that each sets. */
const names: Readonly<Record<string, string>> = {
  id: 'id',
  topic: 'topic',
  status: 'status',
  destination: 'destination',
  tenant: 'tenantId',
  key: 'key',
  aggregate: 'aggregateId',
  dedupe: 'dedupeKey',
  http: 'errorCode',
  code: 'errorCode',
  namespace: 'namespace',
};

/** A name before a colon; that of a field in the payload has dots. */
const wordPattern = /(?:(payload\.[^\s:"]+|\w+):)?(?:"([^"]*)"|(\S+))/g;

/** Whether this filter is a field of the payload, such as `payload.orderId`. */
export function isPayload(name: string): boolean {
  return name.startsWith('payload.');
}

export type SearchWords = {
  /** By the names of the address. */
  filters: Record<string, string>;
  /** The words without a meaning. */
  free: string;
  /** What is wrong with the text; undefined if nothing is. */
  problem: string | undefined;
};

export function readWords(text: string): SearchWords {
  const filters: Record<string, string> = {};
  const free: string[] = [];
  /** The word that has set each filter. */
  const given = new Map<string, string>();
  let problem: string | undefined;
  for (const [word, name = '', quoted, plain] of text.matchAll(wordPattern)) {
    const filter = isPayload(name) ? name : Object.hasOwn(names, name) ? names[name] : undefined;
    const value = quoted ?? plain ?? '';
    const begun = word.slice(0, -1);
    if (quoted === undefined && word.endsWith(':') && Object.hasOwn(names, begun))
      problem ??= problemOf(begun, '');
    else if (filter === undefined) free.push(name === '' ? value : word);
    else {
      problem ??= repeated(name, given.get(filter)) ?? problemOf(name, value);
      given.set(filter, name);
      Object.assign(filters, name === 'aggregate' ? aggregateOf(value) : { [filter]: value });
    }
  }
  return { filters, free: free.join(' '), problem };
}

/** `order/77`, or an id alone. */
function aggregateOf(value: string): Record<string, string> {
  const at = value.indexOf('/');
  return at < 1
    ? { aggregateId: value }
    : { aggregateType: value.slice(0, at), aggregateId: value.slice(at + 1) };
}

/** Two words with different names can set the same filter: `http` and `code`. */
function repeated(name: string, before: string | undefined): string | undefined {
  if (before === undefined) return undefined;
  return before === name
    ? `${name} is given twice: give one`
    : `${name} is given beside ${before}: give one of them`;
}

function problemOf(name: string, value: string): string | undefined {
  const wrong = (remedy: string): string => `${name} is ${JSON.stringify(value)}: ${remedy}`;
  if (value === '') return wrong('give a value');
  if (name === 'status' && !listedStatuses.some((status) => status === value))
    return wrong(`give ${listedStatuses.join(', ')}`);
  if (name === 'http' && !/^[1-5]\d\d$/.test(value)) return wrong('give an HTTP status, as 500');
  if (name === 'id' && !isUuid(value)) return wrong('give a UUID');
  if (name === 'aggregate' && value.endsWith('/')) return wrong('give type/id, as order/77');
  return undefined;
}

const labels: Readonly<Record<string, string>> = {
  id: 'id',
  tenantId: 'tenant',
  aggregateType: 'aggregate type',
  aggregateId: 'aggregate id',
  dedupeKey: 'dedupe key',
  errorCode: 'error code',
  failedFrom: 'failed from',
  failedTo: 'failed before',
  to: 'before',
  last: 'last minutes',
};

/** The filters as a text for people: `status dead, tenant acme`. */
export function filterText(filters: Readonly<Record<string, string>>): string {
  return Object.entries(filters)
    .map(([name, value]) => `${labels[name] ?? name} ${value}`)
    .join(', ');
}

/** A meaning of the text: filters of the list of messages, one message, or a longer text. */
export type Meaning = { kind: string; value: string } & (
  | { filters: Record<string, string> }
  | { messageId: string }
  /** The text goes on with this. */
  | { completed: string }
);

export type Known = {
  topics: readonly string[];
  destinations: readonly string[];
  tenants: readonly string[];
  /** The fields of payloads that can be searched. */
  payloadFields: readonly string[];
};

/** What the text can mean, the likeliest first. */
export function meaningsOf({ filters, free }: SearchWords, known: Known): Meaning[] {
  const more = Object.keys(filters).length > 0;
  if (free === '') return more ? [{ kind: 'Search', value: filterText(filters), filters }] : [];
  const meaning = (kind: string, name: string, value: string): Meaning => ({
    kind,
    value: more ? `${value}, ${filterText(filters)}` : value,
    filters: { ...filters, [name]: value },
  });
  const fields = known.payloadFields.map((field) => `payload.${field}:`);
  // its value is about to be typed
  if (fields.includes(free)) return [];
  const begun: Meaning[] = fields
    .filter((field) => free.length > 1 && field.startsWith(free))
    .map((completed) => ({ kind: 'Payload field', value: completed, completed }));
  const isField = free.startsWith('payload.');
  const patterns = /^[^*]+\.\*?$/.test(free) ? [free.replace(/\.\*?$/, '.*')] : [];
  return [
    ...(isUuid(free) && !more
      ? [{ kind: 'Message', value: free, messageId: free.toLowerCase() }]
      : []),
    ...(isField ? begun : []),
    ...patterns.map((value) => meaning('Topics', 'topic', value)),
    ...known.topics.map((value) => meaning('Topic', 'topic', value)),
    ...known.destinations.map((value) => meaning('Destination', 'destination', value)),
    ...known.tenants.map((value) => meaning('Tenant', 'tenantId', value)),
    ...(isField ? [] : begun),
    meaning('Key', 'key', free),
    ...(known.tenants.includes(free) ? [] : [meaning('Tenant', 'tenantId', free)]),
    meaning('Aggregate id', 'aggregateId', free),
    meaning('Dedupe key', 'dedupeKey', free),
    ...known.payloadFields.map((field) => meaning(`Payload ${field}`, `payload.${field}`, free)),
  ];
}
