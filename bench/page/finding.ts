// Search check: takes messages of each status from the list, and searches for one or two of their fields. Each search
// must find a message before it says that it has ended.

import type { ListedMessage, MessagePage } from '../../src/listing/message-list.js';
import { listedStatuses } from '../../src/listing/statuses.js';

const fields = ['topic', 'tenantId', 'key', 'destination', 'aggregateId', 'namespace'] as const;
const examplesOfStatus = 4;

export type Finding = {
  searches: number;
  /** Searches that ended without the message that exists. */
  missed: string[];
  /** The most requests until the first message, and the search that needed them. */
  mostRequests: number;
  longestSearch: string;
};

export async function findExisting(url: string): Promise<Finding> {
  const finding: Finding = { searches: 0, missed: [], mostRequests: 0, longestSearch: '' };
  for (const status of listedStatuses) {
    const page = await ask(url, { status, limit: '100' });
    const step = Math.max(1, Math.floor(page.messages.length / examplesOfStatus));
    const examples = page.messages.filter((_, index) => index % step === 0);
    for (const example of examples)
      for (const filter of filtersOf(example)) {
        const search = { status, ...filter };
        const requests = await requestsUntilFound(url, search);
        const words = Object.entries(search)
          .map((pair) => pair.join('='))
          .join(' ');
        finding.searches += 1;
        if (requests === null) finding.missed.push(words);
        else if (requests > finding.mostRequests)
          Object.assign(finding, { mostRequests: requests, longestSearch: words });
      }
  }
  return finding;
}

/** Each field that the message has alone, and each two of them. */
function filtersOf(message: ListedMessage): Record<string, string>[] {
  const given = fields.flatMap((field) => {
    const value = message[field];
    return value === null ? [] : [{ [field]: value }];
  });
  const pairs = given.flatMap((one, index) =>
    given.slice(index + 1).map((other) => ({ ...one, ...other })),
  );
  return [...given, ...pairs];
}

async function requestsUntilFound(
  url: string,
  filter: Record<string, string>,
): Promise<number | null> {
  let next: string | null = '';
  for (let requests = 1; next !== null; requests += 1) {
    const page: MessagePage = await ask(url, { ...filter, ...(next !== '' && { next }) });
    if (page.messages.length > 0) return requests;
    next = page.next;
  }
  return null;
}

async function ask(url: string, query: Record<string, string>): Promise<MessagePage> {
  const response = await fetch(`${url}/api/messages?${new URLSearchParams(query).toString()}`);
  if (!response.ok) throw new Error(`messages answered ${response.status}`);
  return (await response.json()) as MessagePage;
}
