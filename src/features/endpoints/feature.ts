// What endpoints add to the surfaces for operators. See ../feature.ts.

import type { Feature } from '../feature.js';

export const endpoints: Feature = {
  commands: {
    endpoints: async () => (await import('./command.js')).endpointsCommand(),
  },
};
