// What replays add to the surfaces for operators. See ../feature.ts.

import type { Feature } from '../feature.js';

export const replays: Feature = {
  commands: {
    replay: async () => (await import('./command.js')).replayCommand(),
  },
  routes: async () => {
    const { replayRoutes } = await import('./routes.js');
    return (background) => replayRoutes(background.replays);
  },
};
