// What the audit adds to `waybill maintain`: seals everything that is old enough, if the configuration asks for it.

import type { MaintenancePart } from '../feature.js';
import { headSinks } from './head-sinks.js';
import { resolveAuditOptions } from './options.js';
import { maintainSeals } from './sealing.js';

export const auditMaintenance: MaintenancePart = {
  name: 'sealed',
  run: async ({ database, config, emit }) => {
    const audit = resolveAuditOptions(config?.audit);
    return audit.seal
      ? maintainSeals(database, audit, headSinks(audit, emit), emit, Infinity)
      : null;
  },
  shown: (rows: number) => `audit: ${rows} rows sealed`,
};
