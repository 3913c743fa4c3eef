// Retention of removed endpoints: they are deleted after 30 days, or later, when nothing in the record refers to them.

export const endpointRetention = { what: 'removed endpoints', prune: 'prune_endpoints', days: 30 };
