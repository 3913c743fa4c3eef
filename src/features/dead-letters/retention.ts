// Retention of dead-letter jobs and of discarded letters. Ended jobs are kept for 30 days; the audit keeps what they did.
// Discarded letters can be restored, and are kept, until their messages are removed.

export const jobRetention = { what: 'jobs', prune: 'prune_jobs', days: 30 };

export const discardRetention = {
  what: 'discarded letters',
  prune: 'prune_discarded_letters',
  days: 1,
};
