// Retention of reports: the counts of days are kept for 400 days, so that a month can be compared with that of last year.

export const reportRetention = { what: 'reports', prune: 'prune_reports', days: 400 };
