// Doctor check of the alerts that fire.

import { listed, ok, warning, waybill } from '../../doctor/check.js';
import type { Check } from '../../doctor/check.js';
import { readAlerts } from './database.js';

const alerts: Check = {
  code: 'alerts',
  title: 'no alert fires',
  finds: 'Warning for each alert that fires with its default threshold (`outbox.alerts()`).',
  needs: 'schema',
  run: async (context) => {
    const rows = (await readAlerts(context.database)).filter(({ firing }) => firing);
    if (rows.length === 0) return ok('there is none');
    return warning(
      listed(rows.map(({ sentence }) => sentence)),
      listed(
        rows.map(({ alert, remedy }) => `${alert}: ${remedy}`),
        8,
      ),
      [waybill(context, 'status')],
    );
  },
};

export const alertChecks = [alerts];
