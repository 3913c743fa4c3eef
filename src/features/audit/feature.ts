// What audit adds to the surfaces for operators. See ../feature.ts.

import type { Feature } from '../feature.js';

export const audit: Feature = {
  commands: {
    audit: async () => (await import('./command.js')).auditCommand(),
  },
  routes: async () => (await import('./routes.js')).auditRoutes,
};
