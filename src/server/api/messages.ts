// Messages: find them, see one, and act on one.

import { cancelDeliveries, retryDeliveriesNow } from '../../database/deliveries.js';
import { changeDeadLetters } from '../../database/dead-letters.js';
import { readMessage, readPayload } from '../../database/message-detail.js';
import type { MessageDetail } from '../../database/message-detail.js';
import { listMessages } from '../../database/message-list.js';
import { listedStatuses } from '../../database/message-ranges.js';
import type { MessageFilter } from '../../database/message-ranges.js';
import { HttpProblem, text, time, uuid, wholeNumber, word } from '../route.js';
import type { Route, RouteRequest } from '../route.js';

/** A page that is short after this is better than one that is late. */
const budgetMs = 75;

const id = uuid({ in: 'path', description: 'the message' });
const destination = text({ in: 'body', description: 'at this destination; without it, at all' });

export const messageRoutes: readonly Route[] = [
  {
    method: 'GET',
    path: '/api/messages',
    scope: 'read',
    forTenants: true,
    summary:
      'Messages that match, newest first; those that wait, the next one due first. A page may be short: `next` says where to go on.',
    parameters: {
      id: uuid({ description: 'the message of this id, at each destination' }),
      status: word({ description: 'where they are' }, listedStatuses),
      destination: text({ description: 'at this destination' }),
      topic: text({ description: 'of this topic' }),
      namespace: text({ description: 'of this namespace' }),
      tenantId: text({ description: 'of this tenant' }),
      key: text({ description: 'of this key' }),
      aggregateType: text({ description: 'of this kind of aggregate, with aggregateId' }),
      aggregateId: text({ description: 'of this aggregate, with aggregateType' }),
      errorCode: text({ description: 'that failed with this code' }),
      from: time({ description: 'created at or after' }),
      to: time({ description: 'created before' }),
      limit: wholeNumber({ description: 'about this many; 50 if not given' }, { min: 1, max: 500 }),
      next: text({ description: 'as the page before gave it' }),
    },
    async answer({ database, access, values }) {
      const {
        limit = 50,
        next,
        ...filter
      } = values as MessageFilter & {
        limit?: number;
        next?: string;
      };
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
    path: '/api/messages/{id}',
    scope: 'read',
    forTenants: true,
    summary: 'One message: its fields, every attempt, and why it is not delivered yet.',
    parameters: { id },
    answer: async (request) => messageOf(request),
  },
  {
    method: 'GET',
    path: '/api/messages/{id}/payload',
    scope: 'read',
    forTenants: true,
    summary: 'The whole payload, as it is.',
    parameters: { id },
    async answer(request) {
      await messageOf(request);
      return new Response(await readPayload(request.database, request.values['id'] as string), {
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
    summary: 'Sends it now: one that waits becomes due, one that is dead is tried anew.',
    parameters: { id, destination },
    async answer(request) {
      const { database, access, values } = request;
      const message = await messageOf(request);
      const at = values['destination'] as string | undefined;
      const retried = await changeDeadLetters(
        database,
        'retry',
        { ids: [message.id], ...(at !== undefined && { destination: at }) },
        actorOf(request),
      );
      const madeDue = await retryDeliveriesNow(database, message.id, at, `api:${access.name}`);
      return { retried, madeDue };
    },
  },
  {
    method: 'POST',
    path: '/api/messages/{id}/delete',
    scope: 'operate',
    forTenants: true,
    summary:
      'Gives it up: one that waits is cancelled, one that is dead is discarded. The record stays.',
    parameters: { id, destination },
    async answer(request) {
      const { database, values } = request;
      const message = await messageOf(request);
      const at = values['destination'] as string | undefined;
      const discarded = await changeDeadLetters(
        database,
        'discard',
        { ids: [message.id], ...(at !== undefined && { destination: at }) },
        actorOf(request),
      );
      const cancelled = await cancelDeliveries(database, message.id, at, actorOf(request));
      return { cancelled, discarded };
    },
  },
];

export function actorOf({ access }: RouteRequest): string {
  return `api:${access.name}`;
}

/** Another tenant's message does not exist for a token that is limited to one. */
async function messageOf({ database, access, values }: RouteRequest): Promise<MessageDetail> {
  const message = await readMessage(database, values['id'] as string);
  if (message === null || (access.tenantId !== null && message.tenantId !== access.tenantId)) {
    throw new HttpProblem(
      404,
      `there is no message ${String(values['id'])}: it was never committed, or retention has removed it`,
    );
  }
  return message;
}
