// What endpoints add to the surfaces for operators and to the references. See ../feature.ts.

import type { Feature } from '../feature.js';

export const endpoints: Feature = {
  commands: {
    endpoints: async () => (await import('./command.js')).endpointsCommand(),
  },
  routes: async () => {
    const { endpointRoutes } = await import('./routes.js');
    const { endpointMessageRoutes } = await import('./message-routes.js');
    return (background, config) =>
      [...endpointRoutes(config.endpoints ?? {}), ...endpointMessageRoutes(background, config)].map(
        (route) => ({
          ...route,
          forTenantTokens: true,
          ...(route.method === 'POST' && { takesKey: true }),
        }),
      );
  },
  section: 'Endpoints',
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
      'recover_endpoint',
      'remove_endpoint',
    ],
  },
};
