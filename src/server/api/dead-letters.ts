// Dead letters by destination and code, and what would be done with many of them: a plan says how many and which, and a
// job does it (dead-letter-jobs.ts). And what waits for a retry, all of it at once.

import { retryMatchingNow } from '../../database/deliveries.js';
import { findDestination } from '../../database/definitions.js';
import type { MessageFilter } from '../../database/message-ranges.js';
import {
  countDeadLetters,
  groupDeadLetters,
  listDeadLetters,
} from '../../database/dead-letters.js';
import type { DeadLetterAction, DeadLetterFilter } from '../../database/dead-letters.js';
import { text, time, uuid, uuids, word } from '../route.js';
import type { Route, RouteRequest } from '../route.js';
import { actorOf } from './messages.js';

export const countedAtMost = 100_000;
const sampled = 5;

export const action = word({ in: 'body', required: true, description: 'what to do with them' }, [
  'retry',
  'skip',
  'discard',
] as const);

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
    summary: 'Dead letters by destination and code. Above 1,000 of each it is an estimate.',
    parameters: {},
    answer: async ({ database }) => ({ groups: await groupDeadLetters(database) }),
  },
  {
    method: 'POST',
    path: '/api/dead-letters/plan',
    scope: 'read',
    forTenants: true,
    summary: 'How many a job would change, and some of them. Nothing is changed.',
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
    summary: 'Everything that waits for a retry and matches becomes due now.',
    parameters: {
      destination: text({ in: 'body', description: 'at this destination; without it, at all' }),
      errorCode: text({ in: 'body', description: 'that failed with this code last' }),
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
      // an unknown one is refused, whatever the other filters find
      if (destination !== undefined) await findDestination(request.database, destination);
      return {
        madeDue: await retryMatchingNow(request.database, request.values, actorOf(request)),
      };
    },
  },
];

/** The letters that were asked for; for a token that is limited to a tenant, those of its own among them. */
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
