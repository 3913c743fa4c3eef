// What tokens add to the surfaces for operators. See ../feature.ts.

import type { Feature } from '../feature.js';

export const tokens: Feature = {
  commands: {
    tokens: async () => (await import('./command.js')).tokensCommand(),
  },
};
