// The request of a delivery to an endpoint, for display. Attempts do not store it: it is computed from the message and
// from the endpoint as it is now, by the code that sends it. Signatures, logins and the values of added headers and
// parameters are hidden.

import type { ListedEndpoint } from './listing.js';
import type { EndpointOptions } from './options.js';
import { resolveEndpointOptions } from './options.js';
import { readEndpoints } from './database.js';
import { openAdded } from './secrets.js';
import { secretKeys } from '../../core/secret-keys.js';
import type { Database } from '../../database/connection.js';
import type { SentRequest } from '../../destinations/sent-request.js';
import { hidden } from '../../destinations/shown-address.js';
import { requestOf } from '../../destinations/webhook/sent-request.js';
import { readStoredMessage } from '../../listing/stored-message.js';

/** Null if retention has removed the message. */
export async function sentRequest(
  database: Database,
  endpoint: ListedEndpoint,
  messageId: string,
  options: EndpointOptions,
  sentAt: Date | null,
): Promise<SentRequest | null> {
  const found = await readStoredMessage(database, messageId);
  if (found === null) return null;
  const { message, bytes } = found;
  const { shared } = resolveEndpointOptions(options);
  const own = await addedBy(database, endpoint);
  const request = requestOf(message, sentAt, {
    method: shared.method ?? 'POST',
    url: withHidden(endpoint.url, own?.query ?? []),
    shape: endpoint.body ?? shared.body ?? 'payload',
    source: shared.source,
    secrets: endpoint.fingerprints.length,
    added: own?.headers ?? null,
  });
  return message.readable ? request : { ...request, bodyBytes: bytes };
}

/** What the endpoint adds to every request, without values; null if the server cannot open it. */
async function addedBy(
  database: Database,
  { name, auth }: ListedEndpoint,
): Promise<{ headers: string[]; query: string[] } | null> {
  const [found] = await database.query<{ id: number }>(
    'read endpoint',
    `SELECT id FROM ${database.schema}.destinations WHERE name = $1`,
    [name],
  );
  const [row] = found === undefined ? [] : await readEndpoints(database, [found.id]);
  if (row === undefined) return null;
  try {
    const { headers, query } = openAdded(secretKeys, row);
    const names = [...(auth === null ? [] : ['authorization']), ...Object.keys(headers)];
    return { headers: names, query: Object.keys(query) };
  } catch {
    return null;
  }
}

function withHidden(url: string, names: readonly string[]): string {
  const added = names.map((name) => `${encodeURIComponent(name)}=${hidden}`).join('&');
  if (added === '') return url;
  return `${url}${url.includes('?') ? '&' : '?'}${added}`;
}
