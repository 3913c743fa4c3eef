// What tokens add to the surfaces for operators and to the references. See ../feature.ts.

import type { Feature } from '../feature.js';

export const tokens: Feature = {
  commands: {
    tokens: async () => (await import('./command.js')).tokensCommand(),
  },
  routes: async () => (await import('./routes.js')).tokenRoutes,
  section: 'Tenant tokens',
  functions: { endpoints: ['add_tenant_token'] },
};
