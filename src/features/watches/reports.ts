// What watches add to `waybill status` and `waybill maintain`.

import type { MaintenancePart, StatusPart } from '../feature.js';
import { mendWatches, readWatches } from './database.js';
import type { WatchReport } from './database.js';

export const watchStatus: StatusPart = {
  name: 'watches',
  read: readWatches,
  warning: ({ table, topic, problem }: WatchReport) =>
    problem === null ? null : `the watch ${topic} of ${table} is broken: ${problem}`,
};

export const watchMaintenance: MaintenancePart = {
  name: 'watches',
  run: async ({ database }) => ({ mended: await mendWatches(database) }),
  shown: ({ mended }: { mended: number }) => `watches: ${mended} partitions mended`,
};
