// Statuses by which messages are listed. `failed` is dead or retrying.

export const listedStatuses = [
  'pending',
  'retrying',
  'processing',
  'delivered',
  'dead',
  'failed',
  'discarded',
  'unrouted',
] as const;
