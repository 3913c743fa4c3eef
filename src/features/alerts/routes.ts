// HTTP route of alerts, for the page.

import { readHealth } from '../../listing/reports.js';
import type { Route } from '../../server/route.js';
import { alertsOf } from './database.js';

export const alertRoutes: readonly Route[] = [
  {
    method: 'GET',
    path: '/api/alerts',
    scope: 'read',
    summary:
      'The alerts: their values and thresholds, whether they fire, the destination that is affected most, and what to do.',
    returns: '`alerts`',
    parameters: {},
    answer: async ({ database, shared }) => {
      const health = await shared.get('health', () => readHealth(database));
      return { alerts: await shared.get('alerts', () => alertsOf(database, health)) };
    },
  },
];
