// Data for the SQL reference that is not in the database: the functions that callers use, by audience, and descriptions
// for objects whose comments in sql/ are written for other readers. Features name their functions in feature.ts.
// Functions in no group are internal.

/** The functions of the core by audience. @type {Record<string, string[]>} */
export const groups = {
  producers: ['enqueue', 'enqueue_many'],
  consumers: ['inbox_begin', 'inbox_begin_many'],
  workers: ['claim', 'claim_in_order', 'mark_delivered', 'ack', 'nack'],
  operators: [
    'explain',
    'retry_now',
    'release_misdated',
    'cancel',
    'set_paused',
    'move_deliveries',
    'discard_deliveries',
    'cursor_status',
    'cursor_partitions',
    'stalled_cursors',
    'reset_cursor',
    'delete_cursor',
    'repair_cursors',
  ],
  definitions: ['define_destination', 'remove_destination', 'define_cursor'],
  maintenance: [
    'health_check',
    'delivery_rates',
    'make_partitions',
    'partition_days_ahead',
    'expired_partitions',
    'remove_partition',
    'limited_settings',
    'prune_dedupe_keys',
    'prune_inbox',
    'prune_dead_letters',
    'forget_positions',
    'prune_statistics',
    'reap',
  ],
  roles: ['install_roles', 'role_rights', 'apply_rights'],
  times: ['new_id', 'id_at', 'id_time', 'id_slot'],
};

/** Descriptions that replace the comments in sql/, where those stand above a group or address maintainers. @type {Record<string, string>} */
export const ownWords = {
  mark_delivered:
    'Ends these messages as delivered, over all leases of the token. Returns how many this call ended. 0 means a wrong or expired token.',
  ack: 'Ends one message as delivered. `attempt` is its `claim_no`: if it is given, only that claim is ended. False means that the token does not hold the message any more.',
  nack: "Ends one message as failed. It is tried again after `retry_after`, or after the delay of the destination's retry policy. With `terminal` it becomes a dead letter at once. False means that the token does not hold the message any more.",
  claim:
    'Frees expired leases, then claims the oldest due messages of one destination: at most `max_messages` (1 to 10,000), and at most one message of each key. They are held for `lease` (at most 7 days). `token` is a UUID of your choice that names this worker.',
  claim_in_order:
    'Claims like `claim`, in order of creation (or of the due time that the producer gave), then id: first tries, due retries and messages of expired leases alike. Messages of expired leases are claimed at once, without a delay or quarantine. Messages with a key keep the order of their key.',
  set_paused:
    'Pauses or resumes one destination for all relays, from the next claim on. Deliveries that are held already are still sent. `reason` is shown to operators.',
  discard_deliveries:
    'Discards pending deliveries of one destination, at most `max_count` in one call.',
  move_deliveries:
    'Moves pending deliveries of one destination to another, at most `max_count` in one call.',
  prune_dead_letters:
    'Discards dead letters that are older than `p_older_than`, one batch; returns how many.',
  prune_dedupe_keys:
    'Forgets dedupe keys that are older than `p_older_than` (at least 30 days) and than the [retention floors](../operate/maintenance.md#retention-floors) of their topic, and whose message has ended at every destination, one batch; `pruned` says how many. Pass `last` as `p_after` in the next call.',
  prune_inbox:
    'Forgets messages that consumers processed longer ago than `p_older_than` (at least 30 days), one batch; returns how many. Positions of keys are kept (forget_positions).',
  new_id: 'A UUIDv7 of the current time.',
};
