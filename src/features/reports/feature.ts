// What reports add to the surfaces for operators and to the references. See ../feature.ts.

import type { Feature } from '../feature.js';

export const reports: Feature = {
  commands: {
    report: async () => (await import('./command.js')).reportCommand(),
  },
  routes: async () => (await import('./routes.js')).reportRoutes,
  section: 'Reports',
  functions: {
    maintenance: ['prune_reports'],
  },
};
