// What watches add to the surfaces for operators and to the references. See ../feature.ts.

import type { Feature } from '../feature.js';

export const watches: Feature = {
  commands: {
    watch: async () => (await import('./command.js')).watchCommand(),
    unwatch: async () => (await import('./command.js')).unwatchCommand(),
    watches: async () => (await import('./command.js')).watchesCommand(),
  },
  checks: async () => (await import('./doctor.js')).watchChecks,
  status: async () => (await import('./reports.js')).watchStatus,
  maintenance: async () => (await import('./reports.js')).watchMaintenance,
  events: {
    watches_mended: {
      level: 'info',
      means: 'New partitions of watched tables got their triggers.',
    },
  },
  options: async () => (await import('./reference.js')).watchTables,
  functions: {
    watches: ['watch', 'unwatch', 'sync_watches', 'mend_watches'],
  },
};
