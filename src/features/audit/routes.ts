// HTTP routes of the audit: the record of operators' actions, and those on one message.

import { messageOf } from '../../server/api/messages.js';
import { HttpProblem, pageParameters, text, time, uuid } from '../../server/route.js';
import type { Route } from '../../server/route.js';
import { listActions } from './actions.js';
import type { ActionFilter } from './actions.js';
import { readMessageActions } from './message-actions.js';

export const auditRoutes: readonly Route[] = [
  {
    method: 'GET',
    path: '/api/audit',
    scope: 'read',
    summary: 'What operators did, newest first.',
    returns: '`actions`, and `next` if there are more',
    parameters: {
      actor: text({ description: 'only actions of this actor' }, 200),
      action: text({ description: 'only these' }, 63),
      destination: text({ description: 'only at this destination or endpoint' }, 63),
      from: time({ description: 'at or after' }),
      to: time({ description: 'before' }),
      ...pageParameters,
    },
    async answer({ database, values }) {
      const {
        limit = 50,
        next,
        from: since,
        to: until,
        ...filter
      } = values as ActionFilter & { from?: Date; to?: Date; limit?: number; next?: string };
      if (next !== undefined && !/^\d{1,18}$/.test(next))
        throw new HttpProblem(400, `next is "${next}": pass next from the previous page`);
      return listActions(
        database,
        { limit, ...(next !== undefined && { next }) },
        { ...filter, ...(since && { since }), ...(until && { until }) },
      );
    },
  },
  {
    method: 'GET',
    path: '/api/messages/{id}/actions',
    scope: 'read',
    summary:
      'Which operators retried, replayed, discarded or restored a message. The audit records the filter of an action, not the messages that it changed, so actions are matched by their filter and time.',
    returns:
      '`actions`, oldest first, each with its destination and the number of the claim that it came after, or for a discard, that records it',
    errors: { 404: 'no such message' },
    parameters: { id: uuid({ in: 'path', description: 'the message' }) },
    async answer(request) {
      const { id } = await messageOf(request);
      return { actions: await readMessageActions(request.database, id) };
    },
  },
];
