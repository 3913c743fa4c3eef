// Destinations, relays, blocked keys, the database and the record of what operators did.

import { listActions } from '../../database/audit.js';
import type { ActionFilter } from '../../database/audit.js';
import { changeDeadLetters } from '../../database/dead-letters.js';
import { sendTest, setPaused } from '../../database/definitions.js';
import { listBlockedLanes } from '../../database/lanes.js';
import { readDestinations, readRelays } from '../../database/reports.js';
import { readHealthAndAlerts, readOverview } from '../../database/statistics.js';
import { readStorage } from '../../database/storage-report.js';
import { HttpProblem, text, time, uuid, wholeNumber, word } from '../route.js';
import type { Route, RouteRequest } from '../route.js';
import { actorOf } from './messages.js';

const name = text({ in: 'path', description: 'the destination' }, 63);
const page = {
  limit: wholeNumber({ description: 'about this many; 50 if not given' }, { min: 1, max: 500 }),
  next: text({ description: 'as the page before gave it' }, 64),
};

export const operationRoutes: readonly Route[] = [
  {
    method: 'GET',
    path: '/api/overview',
    scope: 'read',
    summary: 'What happened lately, for the widgets and charts of the page, and the alerts.',
    parameters: {
      minutes: wholeNumber(
        { description: 'how far back; 60 if not given' },
        { min: 10, max: 44_640 },
      ),
    },
    async answer({ database, source, values, shared }) {
      const { minutes = 60 } = values as { minutes?: number };
      const [overview, { health, alerts }] = await Promise.all([
        shared.get(`overview ${minutes}`, () => readOverview(database, minutes)),
        shared.get('health', () => readHealthAndAlerts(database)),
      ]);
      return {
        ...overview,
        health: Object.fromEntries(health.map(({ metric, value }) => [metric, value])),
        alarms: health.map(({ alarm }) => alarm).filter((alarm) => alarm !== null),
        alerts,
        source,
      };
    },
  },
  {
    method: 'GET',
    path: '/api/health',
    scope: 'read',
    summary: 'The health view: metrics, what they mean, and alarms; which database answered.',
    parameters: {},
    async answer({ database, source, shared }) {
      const { health } = await shared.get('health', () => readHealthAndAlerts(database));
      return { health, source };
    },
  },
  {
    method: 'GET',
    path: '/api/destinations',
    scope: 'read',
    summary:
      'Destinations: what waits, what is dead, which are paused. Above 10,000 of each, the counts are estimates.',
    parameters: {},
    answer: async ({ database, shared }) => ({
      destinations: await shared.get('destinations', () => readDestinations(database)),
    }),
  },
  pausing('pause', 'Holds back what waits there, from the next claim on.'),
  pausing('resume', 'Lets a paused destination go on.'),
  {
    method: 'POST',
    path: '/api/destinations/{name}/test',
    scope: 'operate',
    summary: 'Sends a test message to it alone, which is delivered and recorded like any other.',
    parameters: { name },
    async answer(request) {
      const destination = request.values['name'] as string;
      return { messageId: await sendTest(request.database, destination, actorOf(request)) };
    },
  },
  {
    method: 'GET',
    path: '/api/relays',
    scope: 'read',
    summary: 'Relays that live, and those of the last day.',
    parameters: {},
    answer: async ({ database }) => ({ relays: await readRelays(database) }),
  },
  {
    method: 'GET',
    path: '/api/keys',
    scope: 'read',
    summary: 'Keys that a dead letter blocks.',
    parameters: { destination: text({ description: 'at this destination' }, 63), ...page },
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
      return listBlockedLanes(
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
    parameters: {
      messageId: uuid({ in: 'path', description: 'the dead letter that blocks it' }),
      action: word({ in: 'path', description: 'what becomes of it' }, ['retry', 'skip', 'discard']),
      destination: text({ in: 'body', required: true, description: 'where it is blocked' }, 63),
    },
    async answer(request) {
      const { messageId, action, destination } = request.values as {
        messageId: string;
        action: 'retry' | 'skip' | 'discard';
        destination: string;
      };
      const changed = await changeDeadLetters(
        request.database,
        action,
        { ids: [messageId], destination },
        actorOf(request),
      );
      if (changed === 0)
        throw new HttpProblem(409, `${messageId} blocks nothing at ${destination} any more`);
      return { changed };
    },
  },
  {
    method: 'GET',
    path: '/api/database',
    scope: 'read',
    summary: 'Sizes, dead rows, the oldest transaction, partitions.',
    // a standby counts its own transactions, and no rows
    on: 'primary',
    parameters: {},
    answer: async ({ database }) => readStorage(database),
  },
  {
    method: 'GET',
    path: '/api/audit',
    scope: 'read',
    summary: 'What operators did, newest first.',
    parameters: {
      actor: text({ description: 'only what they did' }, 200),
      action: text({ description: 'only these' }, 63),
      destination: text({ description: 'only at this destination or endpoint' }, 63),
      from: time({ description: 'at or after' }),
      to: time({ description: 'before' }),
      ...page,
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
        throw new HttpProblem(400, `next is "${next}": give what the page before gave`);
      return listActions(
        database,
        { limit, ...(next !== undefined && { next }) },
        { ...filter, ...(since && { since }), ...(until && { until }) },
      );
    },
  },
];

function pausing(verb: 'pause' | 'resume', summary: string): Route {
  return {
    method: 'POST',
    path: `/api/destinations/{name}/${verb}`,
    scope: 'operate',
    summary,
    parameters: { name },
    async answer(request: RouteRequest) {
      const destination = request.values['name'] as string;
      await setPaused(request.database, destination, verb === 'pause', actorOf(request), null);
      return { destination, paused: verb === 'pause' };
    },
  };
}
