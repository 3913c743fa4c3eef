// Guards to remove, to show that the proof notices: each is a change to the text of a function in the database. The
// proof runs with those that fail for certain with a few seeds. For the others (by hand), `npm run order -- --mutation
// NAME` runs a hundred seeds.

type Change = { of: string; from: string; to: string };
export type MutationName = keyof typeof mutations;

export const mutations = {
  // a leased lane can be claimed again: its next messages overtake the one in flight
  'lane stays open': {
    of: 'take_from_lanes',
    from: 'SET lease_id = p_lease_id, available_at = NULL',
    to: 'SET lease_id = p_lease_id',
  },
  // a dead head does not block its key where it should
  'dead heads do not block': {
    of: 'end_lanes',
    from: "IF p_when_dead <> 'continue' THEN",
    to: 'IF false THEN',
  },
  // a SQL worker gets several messages of one key, and may finish a later one first
  'workers get runs': {
    of: 'claim',
    from: 'p_one_per_key => true',
    to: 'p_one_per_key => false',
  },
  // by hand: a head that waits for its retry is overtaken
  'any due message': {
    of: 'take_from_lanes',
    from: 'AND x.key_id = n.key_id',
    to: 'AND x.key_id = n.key_id AND x.available_at <= v_now',
  },
  // by hand: a lane becomes idle without a check for pending deliveries
  'freed lanes fall idle': {
    of: 'free_lanes',
    from: 'available_at = h.available_at',
    to: 'available_at = NULL',
  },
  // by hand: a previous sequence that the consumer never received
  'last sequence is forgotten': {
    of: 'free_lanes',
    from: 'last_sequence = greatest(l.last_sequence, h.last), ',
    to: '',
  },
  // by hand: two producers with one batch each deadlock
  'keys are taken unsorted': {
    of: 'number_messages',
    from: 'ORDER BY k.namespace COLLATE "C", k.tenant_id COLLATE "C", k.key COLLATE "C"',
    to: 'ORDER BY random()',
  },
  // a relay of one application removes the routes of all others
  'owners remove routes of others': {
    of: 'reconcile_definitions',
    from: `WHERE r.owner = p_owner
       AND (p_remove OR r.destination_id = ANY (v_in_stream_mode))`,
    to: 'WHERE p_remove',
  },
  // a relay removes the routes of other versions of its application, although they run
  'versions remove routes of others': {
    of: 'declared_definitions',
    from: 'AND (d.seen_at > clock_timestamp() - declared_for() OR is_living(d.relay_id))',
    to: 'AND d.relay_id = p_relay_id',
  },
  // deliveries from a clock that ran ahead wait until that time
  'misdated deliveries stay': {
    of: 'release_misdated',
    from: 'CONTINUE WHEN v_ids IS NULL',
    to: 'CONTINUE',
  },
  // a lease from a clock that ran ahead is held until that time
  'leases of a wrong clock stay': {
    of: 'reap',
    from: 'NOT is_held(expires_at, duration)',
    to: 'expires_at <= clock_timestamp()',
  },
  // by hand: after a step back of the clock, a subscription reads in the order of the ids
  'clock steps are forgotten': {
    of: 'next_clock_step',
    from: 'FROM clock_steps c',
    to: 'FROM (SELECT * FROM clock_steps WHERE false) c',
  },
  // a reader that dies idle counts against the batch during which another one died before
  'idle deaths count': {
    of: 'take_cursor',
    from: 'WHEN c.batch_in_flight AND v_died THEN 1',
    to: 'WHEN v_died THEN 1',
  },
} satisfies Record<string, Change>;

export function mutationSql({ of, from, to }: Change): string {
  const literal = (text: string) => `'${text.replaceAll("'", "''")}'`;
  return `DO $mutate$
    DECLARE
      v_text text := pg_get_functiondef('outbox.${of}'::regproc);
    BEGIN
      -- for functions that use the path of their caller
      PERFORM set_config('search_path', 'outbox', true);
      IF strpos(v_text, ${literal(from)}) = 0 THEN RAISE EXCEPTION 'the guard was not found in ${of}'; END IF;
      EXECUTE replace(v_text, ${literal(from)}, ${literal(to)});
    END $mutate$`;
}
