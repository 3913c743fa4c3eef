// What endpoints add to the surfaces for operators and to the references. See ../feature.ts.

import type { Feature } from '../feature.js';

export const endpoints: Feature = {
  commands: {
    endpoints: async () => (await import('./command.js')).endpointsCommand(),
  },
  events: {
    endpoints_changed: { level: 'info', means: 'Endpoints were added, changed or removed.' },
    endpoints_waiting: {
      level: 'warn',
      means:
        'Some endpoints cannot be served, and their deliveries wait; `problem` says which, why, and what to do.',
    },
  },
  options: async () => (await import('./reference.js')).endpointTables,
  functions: {
    operators: ['send_test'],
    maintenance: ['prune_endpoints'],
    endpoints: [
      'add_endpoint',
      'change_endpoint',
      'rotate_endpoint',
      'retire_endpoint_secrets',
      'set_endpoint_enabled',
      'remove_endpoint',
    ],
  },
};
