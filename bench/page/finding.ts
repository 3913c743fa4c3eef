// Search check: takes messages of each status from the list, and searches for one or two of their fields and times. Each
// search must find a message before it says that it has ended.

import type { MessageDetail } from '../../src/listing/message-detail.js';
import type { ListedMessage, MessagePage } from '../../src/listing/message-list.js';
import { listedStatuses } from '../../src/listing/statuses.js';
import { searchedField } from './calls.js';

const fields = [
  'topic',
  'tenantId',
  'key',
  'destination',
  'aggregateType',
  'aggregateId',
  'namespace',
  'errorCode',
] as const;
const examplesOfStatus = 4;

type Search = Record<string, string>;
/** As the API answers, with times as texts. */
type Listed = Omit<ListedMessage, 'createdAt' | 'changedAt'> & {
  createdAt: string;
  changedAt: string;
};
type Page = Pick<MessagePage, 'next'> & { messages: Listed[] };

export type Finding = {
  searches: number;
  /** The parameters that were searched for. */
  parameters: string[];
  /** Searches that ended without the message that exists. */
  missed: string[];
  /** The most requests until the first message, and the search that needed them. */
  mostRequests: number;
  longestSearch: string;
};

export async function findExisting(url: string): Promise<Finding> {
  const finding = { searches: 0, missed: [] as string[], mostRequests: 0, longestSearch: '' };
  const parameters = new Set<string>();
  for (const status of listedStatuses) {
    const page = await find(url, { status, limit: '100' });
    const step = Math.max(1, Math.floor(page.messages.length / examplesOfStatus));
    const examples = page.messages.filter((_, index) => index % step === 0);
    for (const example of examples)
      for (const filter of await filtersOf(url, example)) {
        const search = { status, ...filter };
        const requests = await requestsUntilFound(url, search);
        const words = Object.entries(search)
          .map((pair) => pair.join('='))
          .join(' ');
        finding.searches += 1;
        for (const name of Object.keys(search)) parameters.add(name);
        if (requests === null) finding.missed.push(words);
        else if (requests > finding.mostRequests)
          Object.assign(finding, { mostRequests: requests, longestSearch: words });
      }
  }
  return { ...finding, parameters: [...parameters].toSorted() };
}

/** Each field and time that the message has alone, and each two of them. */
async function filtersOf(url: string, message: Listed): Promise<Search[]> {
  const { dedupeKey, payloadText } = await ask<MessageDetail>(
    `${url}/api/messages/${message.messageId}`,
  );
  const given: Search[] = fields.flatMap((field) => {
    const value = message[field];
    return value === null ? [] : [{ [field]: value }];
  });
  if (dedupeKey !== null) given.push({ dedupeKey });
  const { [searchedField]: value } = JSON.parse(payloadText) as Record<string, number>;
  given.push({ [`payload.${searchedField}`]: String(value) });
  given.push({ from: message.createdAt, to: afterMs(message.createdAt) });
  if (message.status === 'dead')
    given.push({ failedFrom: message.changedAt, failedTo: afterMs(message.changedAt) });
  const pairs = given.flatMap((one, index) =>
    given.slice(index + 1).map((other) => ({ ...one, ...other })),
  );
  return [...given, ...pairs];
}

/** A millisecond later: the shortest range with this time, whose microseconds the API leaves out. */
function afterMs(time: string): string {
  return new Date(Date.parse(time) + 1).toISOString();
}

async function requestsUntilFound(url: string, filter: Search): Promise<number | null> {
  let next: string | null = '';
  for (let requests = 1; next !== null; requests += 1) {
    const page: Page = await find(url, { ...filter, ...(next !== '' && { next }) });
    if (page.messages.length > 0) return requests;
    next = page.next;
  }
  return null;
}

function find(url: string, query: Search): Promise<Page> {
  return ask<Page>(`${url}/api/messages?${new URLSearchParams(query).toString()}`);
}

async function ask<T>(address: string): Promise<T> {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address} answered ${response.status}`);
  return (await response.json()) as T;
}
