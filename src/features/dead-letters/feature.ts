// What dead letters add to the surfaces for operators. See ../feature.ts.

import type { Feature } from '../feature.js';

export const deadLetters: Feature = {
  commands: {
    'dead-letters': async () => (await import('./command.js')).deadLettersCommand(),
  },
  routes: async () => {
    const { deadLetterRoutes } = await import('./routes.js');
    const { deadLetterJobRoutes } = await import('./job-routes.js');
    return (background) => [...deadLetterRoutes, ...deadLetterJobRoutes(background)];
  },
};
