// What applications add to the surfaces for operators and to the references. See ../feature.ts.

import type { Feature } from '../feature.js';

export const applications: Feature = {
  commands: {
    apply: async () => (await import('./command.js')).applyCommand(),
  },
  functions: {
    definitions: ['define_route', 'remove_route', 'apply_definitions', 'remove_application'],
  },
};
