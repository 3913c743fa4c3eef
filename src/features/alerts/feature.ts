// What alerts add to the surfaces for operators and to the references. See ../feature.ts.

import type { Feature } from '../feature.js';

export const alerts: Feature = {
  routes: async () => (await import('./routes.js')).alertRoutes,
  checks: async () => (await import('./doctor.js')).alertChecks,
  events: {
    alert_firing: {
      level: 'warn',
      means: 'The alert webhook was called: this alert fires, or still fires.',
    },
    alert_resolved: {
      level: 'info',
      means: 'The alert webhook was called: this alert has ended.',
    },
    alert_untold: {
      level: 'warn',
      means:
        'A call of the alert webhook failed; `outcome` says why. It is repeated after 5 seconds at first, and after 5 minutes at most.',
    },
  },
  options: async () => (await import('./reference.js')).alertTables,
  section: 'Alerts',
  queried: {
    alerts: {
      head: ['alert', 'fires', 'notified after', 'severity', 'says', 'remedy'],
      sql: `SELECT format('| \`%s\` | %s %s | %s | %s | %s | %s |', alert, CASE WHEN below THEN 'below' ELSE 'above' END, threshold,
                   CASE WHEN notify_after = '0' THEN 'at once' ELSE (extract(epoch FROM notify_after) / 60)::int || ' min' END,
                   severity, format(sentence, '…', ' to …'), remedy) AS line FROM alert_definitions()`,
    },
  },
  functions: {
    operators: ['alerts', 'alert_definitions'],
  },
};
