// HTTP routes of requests: shows the request that a webhook of the configuration sends for a message, and sends a message
// to one destination again.

import type { Config } from '../../config.js';
import { kindOf } from '../../database/definitions.js';
import type { Destination } from '../../destinations/destination.js';
import type { ShownRequest } from '../../destinations/sent-request.js';
import type { MessageDetail } from '../../listing/message-detail.js';
import { readStoredMessage } from '../../listing/stored-message.js';
import type { Background } from '../background.js';
import { HttpProblem, text, uuid, wholeNumber } from '../route.js';
import type { Route, RouteRequest } from '../route.js';
import { actorOf } from '../access.js';
import { messageOf, retryMessage } from './messages.js';

const id = uuid({ in: 'path', description: 'the message' });
const errors = { 404: 'no such message, or not at this destination' };

export function requestRoutes(
  background: Background,
  { destinations = {} }: Partial<Config>,
): readonly Route[] {
  return [
    {
      method: 'GET',
      path: '/api/messages/{id}/requests/{destination}',
      scope: 'read',
      summary:
        'The request that a webhook of the configuration sends for a message. It is not stored: it is computed from the message and from the configuration of this server. Signatures, logins, the values of added headers and of parameters, and tokens in the address are hidden.',
      returns:
        'the `kind` of the destination, and the `request` with its method, URL, headers and body; null with a `reason` if this server does not know the destination, or if it sends no HTTP requests',
      errors,
      parameters: {
        id,
        destination: text({ in: 'path', description: 'the destination' }, 63),
        claimNo: wholeNumber(
          { description: 'the claim whose time is in the headers; the last one if not given' },
          { min: 1, max: 2_147_483_647 },
        ),
      },
      async answer(request): Promise<ShownRequest> {
        const { destination: name, claimNo } = request.values as {
          destination: string;
          claimNo?: number;
        };
        const message = await messageOf(request);
        statusAt(message, name);
        const kind = await kindOf(request.database, name);
        const reason = reasonFor(name, kind, destinations);
        if (reason !== null) return { kind, request: null, reason };
        const tries = message.attempts.filter(
          (each) => each.destination === name && (claimNo ?? each.claimNo) === each.claimNo,
        );
        const sentAt = tries.at(-1)?.claimedAt ?? null;
        const found = await readStoredMessage(request.database, message.id);
        const sent =
          found === null ? undefined : destinations[name]?.request?.(found.message, sentAt);
        if (found === null || sent === undefined)
          return { kind, request: null, reason: 'the message is no longer stored' };
        const isReadable = found.message.readable;
        return {
          kind,
          request: isReadable ? sent : { ...sent, bodyBytes: found.bytes },
          reason: null,
        };
      },
    },
    {
      method: 'POST',
      path: '/api/messages/{id}/resend',
      scope: 'operate',
      summary:
        'Sends a message to one destination again now, whatever its status there: a pending delivery becomes due, a dead letter is retried, and one that has ended is replayed.',
      returns: '`messageId`, and its `status` before',
      errors: {
        ...errors,
        409: 'a relay is sending the message now, or its dead letter cannot be retried: it is parked, or its message is gone',
      },
      parameters: {
        id,
        destination: text({ in: 'body', required: true, description: 'the destination' }, 63),
      },
      async answer(request) {
        const destination = request.values['destination'] as string;
        const message = await messageOf(request);
        const status = statusAt(message, destination);
        const sent = { messageId: message.id, status };
        await resend(background, request, sent, { destination });
        return sent;
      },
    },
  ];
}

/** Refuses a message that a relay is sending now, and a dead letter that cannot be retried. `filter`: the destination, and the tenant of an endpoint. */
export async function resend(
  background: Background,
  request: RouteRequest,
  { messageId, status }: { messageId: string; status: string },
  filter: { destination: string; tenantId?: string },
): Promise<void> {
  const { database } = request;
  const { destination } = filter;
  const actor = actorOf(request);
  if (status === 'pending' || status === 'dead') {
    const { retried } = await retryMessage(database, messageId, destination, actor);
    // a pending one may be due already
    if (status === 'pending' || retried > 0) return;
  } else {
    const { replayed } = await background.replayNow(
      database,
      { ...filter, ids: [messageId] },
      actor,
      request.afterwards,
    );
    if (replayed > 0) return;
  }
  throw new HttpProblem(
    409,
    status === 'dead'
      ? `the dead letter of ${messageId} at ${destination} cannot be retried: it is parked behind another dead letter of its key (retry that one), its message is gone, or it has just been retried`
      : `the message ${messageId} is being sent to ${destination} now: wait until this try has ended`,
  );
}

function statusAt({ id: messageId, deliveries }: MessageDetail, name: string): string {
  const found = deliveries.find(({ destination }) => destination === name);
  if (found === undefined)
    throw new HttpProblem(
      404,
      `the message ${messageId} is not at ${name}: give a destination that it was routed to`,
    );
  return found.status;
}

/** Why the request to a destination cannot be shown; null if it can. */
function reasonFor(
  name: string,
  kind: string | null,
  destinations: Readonly<Record<string, Destination>>,
): string | null {
  if (kind === 'endpoint')
    return `"${name}" is an endpoint: its requests are on the screen of the endpoint`;
  const destination = Object.hasOwn(destinations, name) ? destinations[name] : undefined;
  if (destination === undefined)
    return `the configuration of this server does not have the destination "${name}": open the page of a relay that serves it`;
  return destination.request === undefined
    ? `a destination of the kind "${destination.kind}" sends no HTTP requests`
    : null;
}
