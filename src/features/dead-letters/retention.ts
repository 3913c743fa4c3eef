// Retention of dead-letter jobs: ended ones are kept for 30 days; the audit keeps what they did. Of discarded letters:
// they can be restored until their messages are removed.

export const jobRetention = { what: 'jobs', prune: 'prune_jobs', days: 30 };

export const discardRetention = {
  what: 'discarded letters',
  prune: 'prune_discarded_letters',
  days: 1,
};
