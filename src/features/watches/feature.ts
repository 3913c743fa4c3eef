// What watches add to the surfaces for operators. See ../feature.ts.

import type { Feature } from '../feature.js';

export const watches: Feature = {
  commands: {
    watch: async () => (await import('./command.js')).watchCommand(),
    unwatch: async () => (await import('./command.js')).unwatchCommand(),
    watches: async () => (await import('./command.js')).watchesCommand(),
  },
  checks: async () => (await import('./doctor.js')).watchChecks,
};
