// Guards taken out one at a time, to show that the proof notices: each is a change to the text of a function in
// the database, whatever the rest of it looks like by now. `npm run order -- --mutation <name>` runs with one.

type Mutation = { of: string; from: string; to: string };

export const mutations = {
  // a lane that is leased can be claimed again: its next messages overtake the one under way
  'lane stays open': {
    of: 'claim_lanes',
    from: 'SET lease_id = p_lease_id, available_at = NULL',
    to: 'SET lease_id = p_lease_id',
  },
  // a dead head does not hold back its key where it should
  'dead heads do not block': {
    of: 'end_lanes',
    from: "IF p_when_dead <> 'continue' THEN",
    to: 'IF false THEN',
  },
  // a head that waits for its retry is overtaken
  'any due message': {
    of: 'claim_lanes',
    from: 'ORDER BY x.sequence LIMIT v_run',
    to: 'AND x.available_at <= v_now ORDER BY x.sequence LIMIT v_run',
  },
  // a lane falls idle without a look at what waits in it
  'freed lanes fall idle': {
    of: 'free_lanes',
    from: 'available_at = h.available_at',
    to: 'available_at = NULL',
  },
  // a number that the consumer was never told of
  'last sequence is forgotten': {
    of: 'free_lanes',
    from: 'last_sequence = greatest(l.last_sequence, h.last), ',
    to: '',
  },
  // two producers of one batch each wait for each other
  'streams are taken unsorted': {
    of: 'number_messages',
    from: 'ORDER BY k.namespace COLLATE "C", k.tenant_id COLLATE "C", k.key COLLATE "C"',
    to: 'ORDER BY random()',
  },
} satisfies Record<string, Mutation>;

export function mutationSql({ of, from, to }: Mutation): string {
  const literal = (text: string) => `'${text.replaceAll("'", "''")}'`;
  return `DO $mutate$
    DECLARE
      v_text text := pg_get_functiondef('outbox.${of}'::regproc);
    BEGIN
      IF strpos(v_text, ${literal(from)}) = 0 THEN RAISE EXCEPTION 'the guard was not found in ${of}'; END IF;
      EXECUTE replace(v_text, ${literal(from)}, ${literal(to)});
    END $mutate$`;
}
