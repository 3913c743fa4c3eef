// The request of a delivery to an endpoint, for display. Attempts do not store it: it is computed from the message and
// from the endpoint as it is now, by the code that sends it. Signatures, logins and the values of added headers and
// parameters are hidden.

import type { SentRequest } from './endpoint-message.js';
import type { ListedEndpoint } from './listing.js';
import type { EndpointOptions } from './options.js';
import { resolveEndpointOptions } from './options.js';
import { readEndpoints } from './database.js';
import { openAdded } from './secrets.js';
import { secretKeys } from '../../core/secret-keys.js';
import { ClaimedMessage, column } from '../../core/claimed-message.js';
import { readableBytes } from '../../core/message.js';
import type { Database } from '../../database/connection.js';
import { contentOf, traceHeaders } from '../../destinations/webhook/body.js';
import type { BodyShape } from '../../destinations/webhook/body.js';
import { fixedHeaders, standardHeaders } from '../../destinations/webhook/sender.js';

export const hidden = '[hidden]';
const shownBody = 100_000;

/** Null if retention has removed the message. */
export async function sentRequest(
  database: Database,
  endpoint: ListedEndpoint,
  messageId: string,
  options: EndpointOptions,
  sentAt: Date | null,
): Promise<SentRequest | null> {
  const found = await readMessage(database, messageId);
  if (found === null) return null;
  const { message, bytes } = found;
  const { shared } = resolveEndpointOptions(options);
  const shape: BodyShape = endpoint.body ?? shared.body ?? 'payload';
  const content = contentOf[shape](message, shared.source);
  const secret = { text: '', signatureOf: () => `v1,${hidden}` };
  const own = await addedBy(database, endpoint);
  const headers = standardHeaders(
    message,
    endpoint.fingerprints.map(() => secret),
    content,
    sentAt?.getTime(),
  ).concat(content.headers, traceHeaders(message), fixedHeaders(own?.headers ?? {}));
  return {
    method: shared.method ?? 'POST',
    url: withHidden(endpoint.url, own?.query ?? []),
    headers: inPairs(headers),
    body: message.readable ? content.body.slice(0, shownBody) : null,
    bodyBytes: message.readable ? Buffer.byteLength(content.body) : bytes,
    hasHiddenHeaders: own === null,
  };
}

/** What the endpoint adds to every request, without values; null if the server cannot open it. */
async function addedBy(
  database: Database,
  { name, auth }: ListedEndpoint,
): Promise<{ headers: Record<string, string>; query: string[] } | null> {
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
    return {
      headers: Object.fromEntries(names.map((header) => [header, hidden])),
      query: Object.keys(query),
    };
  } catch {
    return null;
  }
}

function withHidden(url: string, names: readonly string[]): string {
  const added = names.map((name) => `${encodeURIComponent(name)}=${hidden}`).join('&');
  if (added === '') return url;
  return `${url}${url.includes('?') ? '&' : '?'}${added}`;
}

/** From the log, or from the copy that a dead letter keeps. */
async function readMessage(
  database: Database,
  id: string,
): Promise<{ message: ClaimedMessage; bytes: number } | null> {
  const { schema } = database;
  const columns = `to_json(created_at) #>> '{}' AS "createdAt", namespace, topic, tenant_id AS "tenantId", key,
     sequence::text AS sequence, aggregate_type AS "aggregateType", aggregate_id AS "aggregateId", bytes,
     CASE WHEN bytes <= ${readableBytes} THEN headers::text END AS headers,
     CASE WHEN bytes <= ${readableBytes} THEN payload::text END AS payload`;
  const [row] = await database.query<
    Record<Exclude<keyof typeof column, 'id'>, string | null> & { bytes: number }
  >(
    'read message',
    `(SELECT ${columns} FROM ${schema}.messages WHERE id = $1)
     UNION ALL
     (SELECT ${columns} FROM ${schema}.dead_letters WHERE message_id = $1 AND payload IS NOT NULL)
     LIMIT 1`,
    [id],
  );
  if (row === undefined) return null;
  const values = Object.keys(column).map((name) =>
    name === 'id' ? id : (row[name as Exclude<keyof typeof column, 'id'>] ?? null),
  );
  return { message: new ClaimedMessage(values), bytes: row.bytes };
}

function inPairs(flat: readonly string[]): { name: string; value: string }[] {
  return flat.flatMap((name, index) =>
    index % 2 === 0 ? [{ name, value: flat[index + 1] ?? '' }] : [],
  );
}
