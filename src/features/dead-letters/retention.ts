// Retention of dead-letter jobs: ended ones are kept for 30 days; the audit keeps what they did.

export const jobRetention = { what: 'jobs', prune: 'prune_jobs', days: 30 };
