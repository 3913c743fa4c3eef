// What keys add to the surfaces for operators and to the references. See ../feature.ts.

import type { Feature } from '../feature.js';

export const keys: Feature = {
  commands: {
    keys: async () => (await import('./command.js')).keysCommand(),
  },
  routes: async () => (await import('./routes.js')).keyRoutes,
  section: 'Keys',
  functions: {
    maintenance: ['forget_keys', 'forget_lanes'],
  },
};
