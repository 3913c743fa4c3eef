// What unrouted messages add to the surfaces for operators and to the references. See ../feature.ts.

import type { Feature } from '../feature.js';

export const unrouted: Feature = {
  commands: {
    unrouted: async () => (await import('./command.js')).unroutedCommand(),
  },
  checks: async () => (await import('./doctor.js')).unroutedChecks,
  functions: {
    operators: ['unrouted_groups', 'route_unrouted', 'discard_unrouted'],
  },
};
