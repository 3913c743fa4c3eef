// What applications add to the surfaces for operators. See ../feature.ts.

import type { Feature } from '../feature.js';

export const applications: Feature = {
  commands: {
    apply: async () => (await import('./command.js')).applyCommand(),
  },
};
