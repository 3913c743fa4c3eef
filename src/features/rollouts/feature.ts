// What rollouts add to the surfaces for operators. See ../feature.ts.

import type { Feature } from '../feature.js';

export const rollouts: Feature = {
  commands: {
    rollout: async () => (await import('./command.js')).rolloutCommand(),
  },
  routes: async () => (await import('./routes.js')).rolloutRoutes,
};
