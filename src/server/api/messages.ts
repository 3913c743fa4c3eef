// HTTP routes of messages: finds messages, shows one, and acts on one.

import type { Database } from '../../database/connection.js';
import { cancelDeliveries, retryDeliveriesNow } from '../../listing/deliveries.js';
import { changeDeadLetter, restorableAt } from '../../features/dead-letters/database.js';
import { readMessage, readPayload } from '../../listing/message-detail.js';
import type { MessageDetail } from '../../listing/message-detail.js';
import { listMessages } from '../../listing/message-list.js';
import { listedStatuses } from '../../listing/statuses.js';
import type { MessageFilter } from '../../listing/message-ranges.js';
import { actorOf } from '../access.js';
import { readSuggestions } from '../../listing/suggestions.js';
import { payloadParameters, searchableFields, withPayloadFilter } from './payload-parameters.js';
import type { Configured } from './payload-parameters.js';
import { HttpProblem, text, time, uuid, wholeNumber, word } from '../route.js';
import type { Route, RouteRequest } from '../route.js';

/** Time for one search: after it, a short result now is better than a full one later. What has begun then still ends. */
const budgetMs = 70;

const id = uuid({ in: 'path', description: 'the message' });
const destination = text({
  in: 'body',
  description: 'at this destination; without it, at all destinations',
});

export function messageRoutes(config: Configured): readonly Route[] {
  const { parameters, remedyFor } = payloadParameters(config);
  return [
    {
      method: 'GET',
      path: '/api/messages',
      scope: 'read',
      forTenants: true,
      summary:
        'Messages that match, newest first; pending messages in the order in which they are due, unless a filter is faster to search newest first. A page may be short or empty before the search has ended: continue with `next` until it is null. A parameter `payload.FIELD` for each field of `server.searchablePayloadFields`, such as `payload.orderId=4711`, finds messages with this value in the payload; of a list, one element is enough.',
      returns:
        '`messages`; `next`, null at the end of the search; and how many entries were `searched`, and `searchedInAll` with the pages before',
      parameters: {
        id: uuid({ description: 'the message of this id, at each destination' }),
        status: word(
          {
            description:
              'with this status; `retrying` is pending after a failed try, `failed` is dead or retrying',
          },
          listedStatuses,
        ),
        destination: text({ description: 'at this destination' }),
        topic: text({
          description: 'of this topic; `order.*` for every topic that begins with `order.`',
        }),
        namespace: text({ description: 'of this namespace' }),
        tenantId: text({ description: 'of this tenant' }),
        key: text({ description: 'of this key' }),
        aggregateType: text({ description: 'of this kind of aggregate' }),
        aggregateId: text({ description: 'of the aggregate with this id' }),
        errorCode: text({
          description:
            'that failed with this code, or with this code of the other side: an HTTP status',
        }),
        dedupeKey: text({ description: 'with this dedupe key, while the key is remembered' }),
        failedFrom: time({
          description:
            'with a try that failed at or after; dead letters (`status=dead`, and those of `status=failed`): that died then',
        }),
        failedTo: time({ description: 'with a try that failed before' }),
        cause: text({
          description:
            'only with `status=dead`: dead of this cause, the error code and the code of the other side, such as `http_status 500`',
        }),
        from: time({ description: 'created at or after' }),
        to: time({ description: 'created before' }),
        ...parameters,
        limit: wholeNumber(
          { description: 'about this many; 50 if not given' },
          { min: 1, max: 500 },
        ),
        next: text({ description: '`next` of the previous page' }),
      },
      remedyFor,
      async answer({ database, access, values }) {
        const {
          limit = 50,
          next,
          ...filter
        } = withPayloadFilter(values) as MessageFilter & {
          limit?: number;
          next?: string;
        };
        if (filter.cause !== undefined && filter.status !== 'dead')
          throw new HttpProblem(400, `cause is "${filter.cause}": give status=dead with it`);
        if (access.tenantId !== null) filter.tenantId = access.tenantId;
        return listMessages(database, filter, {
          limit,
          budgetMs,
          ...(next !== undefined && { next }),
        });
      },
    },
    {
      method: 'GET',
      path: '/api/suggestions',
      scope: 'read',
      forTenants: true,
      summary:
        'What a search text may stand for: topics and tenants of the last week, and destinations, that begin with it. A token of one tenant gets the topics of its last 1,000 messages, no destinations, and no other tenant.',
      returns:
        '`topics`, `destinations` and `tenants`, at most eight of each, and all `payloadFields` that can be searched',
      parameters: {
        text: text(
          { required: true, description: 'the beginning of a topic, destination or tenant' },
          255,
        ),
      },
      answer: async ({ database, values }) => ({
        ...(await readSuggestions(database, (values as { text: string }).text)),
        payloadFields: searchableFields(config),
      }),
    },
    {
      method: 'GET',
      path: '/api/messages/{id}',
      scope: 'read',
      forTenants: true,
      summary: 'One message: its fields, every attempt, and why it is not delivered yet.',
      returns:
        'the message with `deliveries` (`canRestore`: it is a discarded dead letter that can be restored), `attempts` and `explanations`',
      errors: { 404: 'no such message' },
      parameters: { id },
      answer: async (request) => withRestorable(request.database, await messageOf(request)),
    },
    {
      method: 'GET',
      path: '/api/messages/{id}/payload',
      scope: 'read',
      forTenants: true,
      summary: 'The whole payload, unchanged.',
      returns: 'the payload as a JSON file',
      errors: { 404: 'no such message', 413: 'the payload is too large to read' },
      parameters: { id },
      async answer(request) {
        const { payloadBytes } = await messageOf(request);
        const payload = await readPayload(request.database, request.values['id'] as string);
        if (payload === null) {
          throw new HttpProblem(
            413,
            `the payload is too large to read (${payloadBytes} bytes with its headers): look at it in psql`,
          );
        }
        return new Response(payload, {
          headers: {
            'content-type': 'application/json',
            'content-disposition': `attachment; filename="${String(request.values['id'])}.json"`,
          },
        });
      },
    },
    {
      method: 'POST',
      path: '/api/messages/{id}/retry',
      scope: 'operate',
      forTenants: true,
      summary:
        'Retries a message now: a pending delivery becomes due, a dead letter is retried. A delivery that is scheduled for later, and was never tried, becomes due too: it is sent early, without a question.',
      returns: '`retried` dead letters and `madeDue` deliveries, as numbers',
      errors: { 404: 'no such message or destination' },
      parameters: { id, destination },
      async answer(request) {
        const { database, values } = request;
        const message = await messageOf(request);
        const at = values['destination'] as string | undefined;
        return retryMessage(database, message.id, at, actorOf(request));
      },
    },
    {
      method: 'POST',
      path: '/api/messages/{id}/delete',
      scope: 'operate',
      forTenants: true,
      summary:
        'Discards a message: a pending delivery is cancelled, a dead letter is discarded. The record is kept.',
      returns: '`cancelled` deliveries and `discarded` dead letters, as numbers',
      errors: { 404: 'no such message or destination' },
      parameters: { id, destination },
      async answer(request) {
        const { database, values } = request;
        const message = await messageOf(request);
        const at = values['destination'] as string | undefined;
        const discarded = await changeDeadLetter(
          database,
          'discard',
          { messageId: message.id, destination: at },
          actorOf(request),
        );
        const cancelled = await cancelDeliveries(database, message.id, at, actorOf(request));
        return { cancelled, discarded };
      },
    },
  ];
}

/** Makes the pending deliveries of a message due, and retries its dead letters, at one destination or at all. */
export async function retryMessage(
  database: Database,
  messageId: string,
  at: string | undefined,
  actor: string,
): Promise<{ retried: number; madeDue: number }> {
  const letter = { messageId, destination: at };
  const retried = await changeDeadLetter(database, 'retry', letter, actor);
  return { retried, madeDue: await retryDeliveriesNow(database, messageId, at, actor) };
}

/** For a token that is limited to a tenant, messages of other tenants do not exist. */
export async function messageOf({
  database,
  access,
  values,
}: RouteRequest): Promise<MessageDetail> {
  const message = await readMessage(database, values['id'] as string);
  if (message === null || (access.tenantId !== null && message.tenantId !== access.tenantId)) {
    throw new HttpProblem(
      404,
      `there is no message ${String(values['id'])}: it was never committed, or retention has removed it`,
    );
  }
  return message;
}

async function withRestorable(database: Database, message: MessageDetail) {
  const isDiscarded = message.deliveries.some(({ status }) => status === 'discarded');
  const restorable = new Set<string | null>(
    isDiscarded ? await restorableAt(database, message.id) : [],
  );
  const deliveries = message.deliveries.map((delivery) => ({
    ...delivery,
    canRestore: delivery.status === 'discarded' && restorable.has(delivery.destination),
  }));
  return { ...message, deliveries };
}
