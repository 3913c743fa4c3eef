// What replays add to the surfaces for operators and to the references. See ../feature.ts.

import type { Feature } from '../feature.js';

export const replays: Feature = {
  commands: {
    replay: async () => (await import('./command.js')).replayCommand(),
  },
  routes: async () => {
    const { replayRoutes } = await import('./routes.js');
    return (background) => replayRoutes(background.replays);
  },
  section: 'Replays',
  functions: {
    operators: ['plan_replay', 'start_replay', 'replay_step', 'resume_replay', 'cancel_replay'],
  },
};
