// What audit adds to the surfaces for operators and to the references. See ../feature.ts.

import type { Feature } from '../feature.js';

export const audit: Feature = {
  commands: {
    audit: async () => (await import('./command.js')).auditCommand(),
  },
  routes: async () => (await import('./routes.js')).auditRoutes,
  maintenance: async () => (await import('./reports.js')).auditMaintenance,
  events: {
    audit_sealed: {
      level: 'info',
      means:
        'A range of attempts or actions was sealed. The event has its number and the head of the chain, for later comparison.',
    },
  },
  options: async () => (await import('./reference.js')).auditTables,
  section: 'Audit',
  functions: {
    maintenance: ['seal_attempts', 'seal_actions', 'seal_expiry'],
  },
};
