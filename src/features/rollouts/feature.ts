// What rollouts add to the surfaces for operators and to the references. See ../feature.ts.

import type { Feature } from '../feature.js';

export const rollouts: Feature = {
  commands: {
    rollout: async () => (await import('./command.js')).rolloutCommand(),
  },
  routes: async () => (await import('./routes.js')).rolloutRoutes,
  options: async () => (await import('./reference.js')).rolloutTables,
  section: 'Rollouts',
  functions: {
    rollouts: [
      'rollout_decision',
      'report_sent',
      'set_rollout',
      'rollout_report',
      'compare_shadow',
    ],
    maintenance: ['prune_shadow_comparisons'],
  },
};
