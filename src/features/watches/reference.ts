// Table of the options of a watch in the reference.

import type { OptionTable } from '../feature.js';
import { checkWatch } from './watch.js';

export const watchTables: Record<string, OptionTable> = {
  watches: {
    file: 'features/watches/watch.ts',
    type: 'Watch',
    base: { table: 'public.jobs', topic: 'job' },
    resolve: (watch) => {
      checkWatch('watches', watch);
      return {};
    },
    words: { table: { fallback: 'required' }, topic: { fallback: 'required' } },
  },
};
