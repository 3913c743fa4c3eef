// What dead letters add to the surfaces for operators and to the references. See ../feature.ts.

import type { Feature } from '../feature.js';

export const deadLetters: Feature = {
  commands: {
    'dead-letters': async () => (await import('./command.js')).deadLettersCommand(),
  },
  routes: async () => {
    const { deadLetterRoutes, retryingRoutes } = await import('./routes.js');
    const { deadLetterJobRoutes } = await import('./job-routes.js');
    return (background, config) => [
      ...deadLetterRoutes,
      ...retryingRoutes(config),
      ...deadLetterJobRoutes(background),
    ];
  },
  tools: async () => (await import('./tools.js')).deadLetterTools,
  section: 'Dead letters',
  functions: {
    operators: [
      'find_dead_letters',
      'count_dead_letters',
      'retry_dead_letters',
      'discard_dead_letters',
      'skip_dead_letters',
      'restore_dead_letters',
      'dead_letter_groups',
      'start_job',
      'job_step',
      'renew_job',
      'release_job',
      'fail_job',
      'resume_job',
      'cancel_job',
    ],
    maintenance: ['prune_jobs', 'prune_discarded_letters'],
  },
};
