// HTTP routes of operations: destinations, relays, the database, health.

import { sendTest, setPaused } from '../../database/definitions.js';
import { chartRange } from '../../listing/chart-bounds.js';
import { readHealth, readRelays } from '../../listing/reports.js';
import { readOverview } from '../../listing/statistics.js';
import { readStorage } from '../../listing/storage-report.js';
import { text, time, wholeNumber } from '../route.js';
import type { Route, RouteRequest } from '../route.js';
import { actorOf } from '../access.js';
import { destinationRoutes } from './destinations.js';

const name = text({ in: 'path', description: 'the destination' }, 63);

export const operationRoutes: readonly Route[] = [
  {
    method: 'GET',
    path: '/api/overview',
    scope: 'read',
    summary: 'Recent statistics for the tiles and charts of the page.',
    returns:
      '`points` of the chart, each at the end of its time, the last one at the last complete 10 seconds; `since` when there are samples; the totals of today, `deliveryRate` and `successRate` of the requested minutes (null if there were none), `health`, and the `alarms` with their metrics',
    parameters: {
      minutes: wholeNumber(
        { description: 'how many minutes back; 60 if not given' },
        { min: 10, max: 44_640 },
      ),
      from: time({ description: 'instead of minutes: the beginning of the time, with `to`' }),
      to: time({ description: 'the end of the time' }),
    },
    async answer({ database, source, values, shared }) {
      const { minutes = 60, from, to } = values as { minutes?: number; from?: Date; to?: Date };
      const range = chartRange(from, to);
      const [overview, health] = await Promise.all([
        // a time that a user has chosen is not shared: every one would stay in the cache
        range === undefined
          ? shared.get(`overview ${minutes}`, () => readOverview(database, minutes))
          : readOverview(database, range),
        shared.get('health', () => readHealth(database)),
      ]);
      return {
        ...overview,
        health: Object.fromEntries(health.map(({ metric, value }) => [metric, value])),
        alarms: health.flatMap(({ metric, alarm }) => (alarm === null ? [] : [{ metric, alarm }])),
        source,
      };
    },
  },
  {
    method: 'GET',
    path: '/api/health',
    scope: 'read',
    summary: 'The health view: metrics, what they mean, and alarms; which database answered.',
    returns: '`health`: each metric with its value, meaning and alarm',
    parameters: {},
    async answer({ database, source, shared }) {
      const health = await shared.get('health', () => readHealth(database));
      return { health, source };
    },
  },
  ...destinationRoutes,
  pausing('pause', 'Pauses a destination: no further claims.'),
  pausing('resume', 'Resumes a paused destination.'),
  {
    method: 'POST',
    path: '/api/destinations/{name}/test',
    scope: 'operate',
    takesKey: true,
    summary:
      'Sends a test message to this destination; it is delivered and recorded like any other.',
    returns: '`messageId` of the test message',
    errors: { 404: 'no such destination' },
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
    summary: 'Running relays, and those of the last day.',
    returns: '`relays`',
    parameters: {},
    answer: async ({ database }) => ({ relays: await readRelays(database) }),
  },
  {
    method: 'GET',
    path: '/api/database',
    scope: 'read',
    summary: 'Sizes, dead rows, the oldest transaction, partitions.',
    returns: 'the sizes of the database, its `tables` and its `days`',
    // a standby has only its own transaction counts and no row statistics
    on: 'primary',
    parameters: {},
    answer: async ({ database }) => readStorage(database),
  },
];

function pausing(verb: 'pause' | 'resume', summary: string): Route {
  return {
    method: 'POST',
    path: `/api/destinations/{name}/${verb}`,
    scope: 'operate',
    summary,
    returns: '`destination`, and whether it is `paused`',
    errors: { 404: 'no such destination' },
    parameters: { name },
    async answer(request: RouteRequest) {
      const destination = request.values['name'] as string;
      await setPaused(request.database, destination, verb === 'pause', actorOf(request), null);
      return { destination, paused: verb === 'pause' };
    },
  };
}
