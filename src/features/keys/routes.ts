// HTTP routes of blocked keys: lists them, and unblocks one by its dead letter.

import { actorOf } from '../../server/access.js';
import { HttpProblem, pageParameters, text, uuid, word } from '../../server/route.js';
import type { Route } from '../../server/route.js';
import { changeDeadLetter } from '../dead-letters/database.js';
import { listBlockedKeys } from './database.js';

export const keyRoutes: readonly Route[] = [
  {
    method: 'GET',
    path: '/api/keys',
    scope: 'read',
    summary: 'Keys that a dead letter blocks.',
    returns: '`keys`, and `next` if there are more',
    parameters: {
      destination: text({ description: 'at this destination' }, 63),
      ...pageParameters,
    },
    async answer({ database, values }) {
      const {
        destination,
        limit = 50,
        next,
      } = values as {
        destination?: string;
        limit?: number;
        next?: string;
      };
      return listBlockedKeys(
        database,
        { ...(destination !== undefined && { destination }) },
        { limit, ...(next !== undefined && { next }) },
      );
    },
  },
  {
    method: 'POST',
    path: '/api/keys/{messageId}/{action}',
    scope: 'operate',
    summary: 'Unblocks a key: its dead letter is retried, skipped or discarded.',
    returns: '`changed`, the number of dead letters',
    errors: { 404: 'no such destination', 409: 'the message does not block a key there any more' },
    parameters: {
      messageId: uuid({ in: 'path', description: 'the dead letter that blocks it' }),
      action: word({ in: 'path', description: 'the action on the dead letter' }, [
        'retry',
        'skip',
        'discard',
      ]),
      destination: text({ in: 'body', required: true, description: 'where it is blocked' }, 63),
    },
    async answer(request) {
      const { messageId, action, destination } = request.values as {
        messageId: string;
        action: 'retry' | 'skip' | 'discard';
        destination: string;
      };
      const changed = await changeDeadLetter(
        request.database,
        action,
        { messageId, destination },
        actorOf(request),
      );
      if (changed === 0)
        throw new HttpProblem(409, `${messageId} blocks nothing at ${destination} any more`);
      return { changed };
    },
  },
];
