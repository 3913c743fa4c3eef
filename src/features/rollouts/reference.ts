// The option of a route that rollouts add, in the reference.

import type { OptionTable } from '../feature.js';

export const rolloutTables: Record<string, OptionTable> = {
  routes: { file: 'features/rollouts/route-option.ts', type: 'RolloutRoute' },
};
