// HTTP routes of an endpoint's messages: lists them with their attempts, shows one with its request, sends them again,
// and counts them. Also lists the events that customers can choose.

import { endpointOf, name, shownEndpoint, unknown } from './routes.js';
import { readAttemptsAt } from '../../listing/attempts.js';
import { listMessages } from '../../listing/message-list.js';
import type { ListedMessage } from '../../listing/message-list.js';
import { listedStatuses } from '../../listing/statuses.js';
import type { MessageFilter } from '../../listing/message-ranges.js';
import { chartRange } from '../../listing/chart-bounds.js';
import { readDestinationStatistics } from '../../listing/destination-statistics.js';
import type { Background } from '../../server/background.js';
import type { ServerOptions } from '../../server/options.js';
import { HttpProblem, text, time, uuid, wholeNumber, word } from '../../server/route.js';
import type { Route, RouteRequest } from '../../server/route.js';
import { actorOf } from '../../server/access.js';
import { resend } from '../../server/api/requests.js';
import type { EndpointMessage, EndpointMessageDetail } from './endpoint-message.js';
import type { FoundEndpoint } from './listing.js';
import { offeredEvents } from './offered-events.js';
import type { OfferedEvent } from './offered-events.js';
import type { EndpointOptions } from './options.js';
import { sentRequest } from './sent-request.js';

/** Time for one search: after it, a short result now is better than a full one later. */
const budgetMs = 100;
const usualPerSecond = 100;

/** The parts of the configuration that these routes need. */
type Configured = {
  endpoints?: EndpointOptions;
  events?: Parameters<typeof offeredEvents>[0];
  server?: ServerOptions | null;
};

export function endpointMessageRoutes(
  background: Background,
  { endpoints: options = {}, events, server }: Configured,
): readonly Route[] {
  let offered: OfferedEvent[] | undefined;
  return [
    {
      method: 'GET',
      path: '/api/events',
      scope: 'read',
      forTenants: true,
      summary:
        'The typed events that customers can choose for their endpoints: those of the configuration, limited by `server.portal.topics`.',
      returns: '`events`, each with its topic, its description and an example of its payload',
      parameters: {},
      answer() {
        offered ??= offeredEvents(events, server?.portal?.topics);
        return Promise.resolve({ events: offered });
      },
    },
    {
      method: 'GET',
      path: '/api/endpoints/{name}/messages',
      scope: 'read',
      forTenants: true,
      summary:
        'Messages of an endpoint with their attempts, newest first; pending messages in the order in which they are due, unless another filter is faster (then newest first). A page may be short: continue with `next`.',
      returns: '`messages`, each with its last 20 `attempts`, and `next` if there are more',
      errors: unknown,
      parameters: {
        name,
        status: word(
          {
            description:
              'with this status; `retrying` is pending after a failed try, `failed` is dead or retrying',
          },
          listedStatuses.filter((status) => status !== 'unrouted'),
        ),
        topic: text({ description: 'of this topic' }),
        errorCode: text({ description: 'that failed with this code' }),
        from: time({ description: 'created at or after' }),
        to: time({ description: 'created before' }),
        limit: wholeNumber(
          { description: 'about this many; 50 if not given' },
          { min: 1, max: 100 },
        ),
        next: text({ description: '`next` of the previous page' }),
      },
      async answer(request) {
        const endpoint = await endpointOf(request);
        const {
          name: _name,
          limit = 50,
          next,
          ...wanted
        } = request.values as MessageFilter & { name: string; limit?: number; next?: string };
        const page = await listMessages(
          request.database,
          { ...wanted, ...messagesOf(endpoint) },
          { limit, budgetMs, ...(next !== undefined && { next }) },
        );
        const ids = page.messages.map(({ messageId }) => messageId);
        const attempts = await readAttemptsAt(request.database, endpoint.name, ids);
        return {
          ...page,
          messages: page.messages.map((message): EndpointMessage => ({
            ...message,
            attempts: attempts.get(message.messageId) ?? [],
          })),
        };
      },
    },
    {
      method: 'GET',
      path: '/api/endpoints/{name}/messages/{id}',
      scope: 'read',
      forTenants: true,
      summary:
        'One message of an endpoint, with its attempts and its request. The request is not stored: it is computed from the message and from the endpoint as it is now. Signatures, logins and the values of added headers and parameters are hidden.',
      returns:
        'the message with its last 20 `attempts`, and its `request` (null if retention has removed the message)',
      errors: { 404: 'no such endpoint, or no such message there' },
      parameters: { name, id: uuid({ in: 'path', description: 'the message' }) },
      async answer(request) {
        const { database } = request;
        const endpoint = await shownEndpoint(request);
        const message = await messageAt(request, endpoint);
        const { messageId } = message;
        const found = await readAttemptsAt(database, endpoint.name, [messageId]);
        const attempts = found.get(messageId) ?? [];
        const sentAt = attempts.at(-1)?.claimedAt ?? null;
        return {
          ...message,
          attempts,
          request: await sentRequest(database, endpoint, messageId, options, sentAt),
        } satisfies EndpointMessageDetail;
      },
    },
    {
      method: 'POST',
      path: '/api/endpoints/{name}/messages/{id}/resend',
      scope: 'operate',
      forTenants: true,
      summary:
        'Sends a message of this endpoint again now, whatever its status: a pending delivery becomes due, a dead letter is retried, and one that has ended is replayed.',
      returns: '`messageId`, and its `status` before',
      errors: {
        404: 'no such endpoint, or no such message there',
        409: 'a relay is sending the message now, or its dead letter cannot be retried: it is parked, or its message is gone',
        429: 'the tenant has sent 600 messages again within a minute',
      },
      parameters: { name, id: uuid({ in: 'path', description: 'the message' }) },
      async answer(request) {
        const endpoint = await endpointOf(request);
        const message = await messageAt(request, endpoint);
        await resend(background, request, message, messagesOf(endpoint));
        return { messageId: message.messageId, status: message.status };
      },
    },
    {
      method: 'POST',
      path: '/api/endpoints/{name}/replay',
      scope: 'operate',
      forTenants: true,
      summary:
        'Starts a replay to this endpoint in the background: sends all of its messages since a time again. Continues the unfinished replay with the same values.',
      returns: 'the replay, with its `id` and `state`',
      errors: { ...unknown, 429: 'the tenant has started 10 replays within an hour' },
      parameters: {
        name,
        since: time({ in: 'body', required: true, description: 'created at or after' }),
        until: time({ in: 'body', description: 'created before; now if not given' }),
        perSecond: wholeNumber(
          {
            in: 'body',
            description: `the most messages per second; ${usualPerSecond} if not given`,
          },
          { min: 1, max: 1_000_000 },
        ),
      },
      async answer(request) {
        const endpoint = await endpointOf(request);
        const {
          since,
          until,
          perSecond = usualPerSecond,
        } = request.values as { since: Date; until?: Date; perSecond?: number };
        return background.replay(
          request.database,
          { ...messagesOf(endpoint), since, ...(until && { until }) },
          perSecond,
          actorOf(request),
          request.afterwards,
        );
      },
    },
    {
      method: 'GET',
      path: '/api/endpoints/{name}/replays/{replay}',
      on: 'primary',
      scope: 'read',
      forTenants: true,
      summary: 'The progress of a replay to this endpoint.',
      returns: 'the replay, with its `state` and `replayed`',
      errors: { 404: 'no such endpoint, or no such replay there' },
      parameters: {
        name,
        replay: wholeNumber(
          { in: 'path', description: 'the number of the replay' },
          { min: 1, max: Number.MAX_SAFE_INTEGER },
        ),
      },
      async answer(request) {
        const endpoint = await endpointOf(request);
        const id = String(request.values['replay']);
        const found = await background.findReplay(request.database, id);
        if (found?.destination !== endpoint.name)
          throw new HttpProblem(404, `there is no replay ${id} of ${endpoint.name}`);
        // customers do not see which operator works for them
        const { actor: _actor, ...shown } = found;
        return shown;
      },
    },
    {
      method: 'GET',
      path: '/api/endpoints/{name}/statistics',
      scope: 'read',
      forTenants: true,
      summary:
        'Counts of an endpoint in intervals: deliveries that were `delivered`, tries that `failed`, and deliveries that `died` or `expired`. They are kept for 31 days.',
      returns:
        '`points` of `stepSeconds`, each at the end of its time, the last one at the end of the last complete slice (10 seconds; a minute for more than an hour, 10 minutes for more than a day); the totals, those of `minutes` up to now, and `deliveryRate` and `successRate` (null if there were none)',
      errors: unknown,
      parameters: {
        name,
        minutes: wholeNumber(
          { description: 'how many minutes back; 60 if not given' },
          { min: 10, max: 44_640 },
        ),
        from: time({ description: 'instead of minutes: the beginning of the time, with `to`' }),
        to: time({ description: 'the end of the time' }),
      },
      async answer(request) {
        const endpoint = await endpointOf(request);
        const {
          minutes = 60,
          from,
          to,
        } = request.values as { minutes?: number; from?: Date; to?: Date };
        const given = chartRange(from, to) ?? minutes;
        return readDestinationStatistics(request.database, endpoint.name, given);
      },
    },
  ];
}

/** The messages that an endpoint may get: those of its tenant. */
function messagesOf({ name: destination, tenantId }: FoundEndpoint): {
  destination: string;
  tenantId?: string;
} {
  return { destination, ...(tenantId !== null && { tenantId }) };
}

async function messageAt(
  { database, values }: RouteRequest,
  endpoint: FoundEndpoint,
): Promise<ListedMessage> {
  const id = values['id'] as string;
  const {
    messages: [message],
  } = await listMessages(database, { id, ...messagesOf(endpoint) }, { limit: 1 });
  if (message === undefined)
    throw new HttpProblem(
      404,
      `there is no message ${id} at ${endpoint.name}: it was not routed there, or retention has removed it`,
    );
  return message;
}
