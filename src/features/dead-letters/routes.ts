// HTTP routes of dead letters: groups by destination and code, and plans of changes; a job carries a plan out
// (job-routes.ts). Also requeues all deliveries that wait for a retry. The letters themselves are listed by
// GET /api/messages?status=dead (server/api/messages.ts).

import { retryMatchingNow } from '../../listing/deliveries.js';
import { findDestination } from '../../database/definitions.js';
import type { MessageFilter } from '../../listing/message-ranges.js';
import { countDeadLetters, groupDeadLetters, listDeadLetters } from './database.js';
import type { DeadLetterAction, DeadLetterFilter } from './database.js';
import { text, time, uuid, uuids, word } from '../../server/route.js';
import type { Route, RouteRequest } from '../../server/route.js';
import { actorOf } from '../../server/api/messages.js';

export const countedAtMost = 100_000;
const sampled = 5;

export const action = word(
  { in: 'body', required: true, description: 'the action on the letters' },
  ['retry', 'skip', 'discard'] as const,
);

export const filter = {
  destination: text({ in: 'body', description: 'at this destination' }),
  errorCode: text({ in: 'body', description: 'with this code' }),
  topic: text({ in: 'body', description: 'of this topic' }),
  tenantId: text({ in: 'body', description: 'of this tenant' }),
  ids: uuids({ in: 'body', description: 'these messages' }, 1000),
} as const;

export const deadLetterRoutes: readonly Route[] = [
  {
    method: 'GET',
    path: '/api/dead-letters/groups',
    scope: 'read',
    summary: 'Dead letters by destination and code. Counts above 1,000 are estimates.',
    returns: '`groups`',
    parameters: {},
    answer: async ({ database }) => ({ groups: await groupDeadLetters(database) }),
  },
  {
    method: 'POST',
    path: '/api/dead-letters/plan',
    scope: 'read',
    forTenants: true,
    summary: 'Plans a job: how many letters it would change, and some of them. Changes nothing.',
    returns: '`count`, `deadBefore` and a `sample`',
    errors: { 404: 'no such destination' },
    parameters: { action, ...filter },
    async answer(request) {
      const { database, values } = request;
      const { action: planned } = values as { action: DeadLetterAction };
      const wanted = filterOf(request);
      const { count, deadBefore } = await countDeadLetters(database, wanted, countedAtMost);
      const sample = await listDeadLetters(database, wanted, sampled);
      return { action: planned, count, atLeast: count === countedAtMost, deadBefore, sample };
    },
  },
  {
    method: 'POST',
    path: '/api/retrying/retry',
    scope: 'operate',
    summary: 'Makes all matching deliveries that wait for a retry due now.',
    returns: '`madeDue`, the number of deliveries',
    errors: { 404: 'no such destination' },
    parameters: {
      destination: text({
        in: 'body',
        description: 'at this destination; without it, at all destinations',
      }),
      errorCode: text({ in: 'body', description: 'whose last try failed with this code' }),
      topic: text({ in: 'body', description: 'of this topic' }),
      namespace: text({ in: 'body', description: 'of this namespace' }),
      tenantId: text({ in: 'body', description: 'of this tenant' }),
      key: text({ in: 'body', description: 'of this key' }),
      aggregateType: text({ in: 'body', description: 'of this kind of aggregate' }),
      aggregateId: text({ in: 'body', description: 'of this aggregate' }),
      id: uuid({ in: 'body', description: 'this message' }),
      from: time({ in: 'body', description: 'created at or after' }),
      to: time({ in: 'body', description: 'created before' }),
    },
    async answer(request) {
      const { destination } = request.values as MessageFilter;
      // an unknown destination is an error even if the other filters find nothing
      if (destination !== undefined) await findDestination(request.database, destination);
      return {
        madeDue: await retryMatchingNow(request.database, request.values, actorOf(request)),
      };
    },
  },
];

/** The filter of a request; a token that is limited to a tenant gets only letters of that tenant. */
export function filterOf({ access, values }: RouteRequest): DeadLetterFilter {
  const { destination, ids, errorCode, topic, tenantId } = values as DeadLetterFilter;
  const tenant = access.tenantId ?? tenantId;
  return {
    ...(destination !== undefined && { destination }),
    ...(ids !== undefined && { ids }),
    ...(errorCode !== undefined && { errorCode }),
    ...(topic !== undefined && { topic }),
    ...(tenant !== undefined && { tenantId: tenant }),
  };
}
