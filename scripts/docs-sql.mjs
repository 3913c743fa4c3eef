// The SQL reference. Columns and signatures come from the catalog of a migrated database, so they are what a
// caller really finds; the words come from the comments above each object in sql/. Every function has a place
// in `groups`: one that is new fails until somebody decides whom it is for.

import { readdirSync, readFileSync } from 'node:fs';

const groups = {
  producers: ['enqueue', 'enqueue_many'],
  consumers: ['inbox_begin', 'inbox_begin_many'],
  workers: ['claim', 'mark_delivered', 'ack', 'nack'],
  operators: [
    'explain',
    'alerts',
    'alert_definitions',
    'find_dead_letters',
    'retry_dead_letters',
    'discard_dead_letters',
    'skip_dead_letters',
    'retry_now',
    'cancel',
    'set_paused',
    'send_test',
    'move_deliveries',
    'discard_deliveries',
    'route_unrouted',
    'plan_replay',
    'start_replay',
    'replay_step',
    'resume_replay',
    'cancel_replay',
    'start_job',
    'job_step',
    'hold_job',
    'fail_job',
    'resume_job',
    'cancel_job',
    'cursor_status',
    'reset_cursor',
    'delete_cursor',
    'repair_cursors',
  ],
  definitions: ['define_destination', 'sync_definitions', 'define_cursor'],
  endpoints: [
    'add_endpoint',
    'change_endpoint',
    'rotate_endpoint',
    'retire_endpoint_secrets',
    'set_endpoint_enabled',
    'remove_endpoint',
  ],
  rollouts: ['rollout_decision', 'report_sent', 'set_rollout', 'rollout_report', 'compare_shadow'],
  watches: ['watch', 'unwatch', 'sync_watches', 'mend_watches'],
  maintenance: [
    'health_check',
    'make_partitions',
    'partition_days_ahead',
    'expired_partitions',
    'remove_partition',
    'prune_dedupe_keys',
    'prune_inbox',
    'prune_dead_letters',
    'prune_unrouted',
    'forget_keys',
    'forget_lanes',
    'forget_positions',
    'prune_statistics',
    'prune_shadow_comparisons',
    'prune_jobs',
    'seal_attempts',
    'seal_actions',
    'seal_expiry',
    'reap',
  ],
  roles: ['install_roles', 'role_rights', 'apply_rights'],
  times: ['new_id', 'id_at', 'id_time'],
  internals: [
    'claim_batch',
    'claim_queue',
    'claim_lanes',
    'join_taken',
    'due_tenants',
    'due_tenants_in',
    'walk_tenants',
    'suspect_turn',
    'tenants_without',
    'next_tenant',
    'any_tenant',
    'turn_of',
    'owe_turns',
    'give_turns',
    'number_messages',
    'wake_lanes',
    'free_lanes',
    'block_lanes',
    'end_lanes',
    'park_lanes',
    'unblock_lanes',
    'recheck_lanes',
    'await_dead_letters',
    'choose_deliveries',
    'replay_asked',
    'walk_history',
    'find_history',
    'find_replay',
    'bring_back',
    'explain_place',
    'describe_messages',
    'match_messages',
    'dead_letter_groups',
    'estimated_rows',
    'estimate_dead_letters',
    'count_waiting',
    'count_retrying',
    'count_dead',
    'read_health',
    'health_and_alerts',
    'alerts_of',
    'compact_statistics',
    'compact_samples',
    'sample_seconds',
    'shown_time',
    'shown_failure',
    'holder_name',
    'assert_read_committed',
    'settle',
    'end_claims',
    'pause_after',
    'deliver_lease',
    'end_delivered',
    'count_down_lease',
    'held_leases',
    'release_lease',
    'release_leases',
    'extend_leases',
    'retry_delay',
    'message_problem',
    'inbox_messages',
    'inbox_expected_sequence',
    'inbox_made_at',
    'unreadable_message',
    'unreadable_received',
    'checked_number',
    'checked_interval',
    'refuse_unknown',
    'route_matches',
    'targets_of',
    'goes_there',
    'rollout_bucket',
    'rollout_lock',
    'rollout_state',
    'sync_rollouts',
    'record_shadow',
    'without_paths',
    'find_destination',
    'record_action',
    'attempt_digest',
    'action_digest',
    'close_rows',
    'begin_sealing',
    'append_seal',
    'seal_stretch',
    'seal_fresh',
    'seal_late',
    'is_sealed_to_its_end',
    'note_export',
    'export_state',
    'heads_after',
    'add_statistics',
    'take_sample',
    'delivery_times',
    'refuse_unknown_alerts',
    'sync_alert_thresholds',
    'take_alerts',
    'end_alert',
    'add_token',
    'remove_token',
    'find_access',
    'begin_session',
    'end_session',
    'begin_maintenance',
    'end_maintenance',
    'partition_bounds',
    'partition_in_use',
    'heartbeat',
    'tell_limits',
    'refuse_old_relay',
    'lacking_files',
    'version_number',
    'sign_off',
    'doorbell_channel',
    'ring',
    'stay_awake',
    'clear_doorbells',
    'next_transaction',
    'sleep_is_safe',
    'next_due',
    'announce_endpoints',
    'find_endpoint',
    'endpoint_problem',
    'save_endpoint',
    'reseal_endpoint',
    'endpoint_changes',
    'sync_endpoint_settings',
    'define_watch',
    'end_watch',
    'resolve_watch',
    'watch_refusal',
    'unwatchable',
    'watch_problem',
    'watch_triggers',
    'existing_watch_triggers',
    'new_partitions',
    'watch_trigger_name',
    'watch_event',
    'watch_messages',
    'watch_rows',
    'watch_record',
    'watch_value',
    'watch_text',
    'watch_names',
    'named_table',
    'owns_watches',
    'tend_watches',
    'primary_key',
    'is_own_type',
    'take_cursor',
    'extend_cursor',
    'release_cursor',
    'open_window',
    'plan_window',
    'read_page',
    'read_window',
    'move_cursor',
    'note_failure',
    'pause_cursor',
    'park_message',
    'find_cursor',
    'cursor_problem',
    'cursor_ahead_of',
    'stale_messages',
    'has_cursor',
    'filters_match',
    'returned_transactions',
    'start_snapshot',
    'nothing_seen',
    'refuse_standby',
    'role_kinds',
    'role_functions',
    'role_names',
    'tenant_rows',
    'missing_roles',
    'missing_rights',
    'missing_protection',
    'refuse_change',
  ],
};

/** For those whose comment in sql/ stands above a group of them, or speaks to its reader there. @type {Record<string, string>} */
const ownWords = {
  mark_delivered:
    'Ends all of these messages as delivered, over everything that the token holds; returns how many this call really ended. 0 means a wrong or lost token.',
  ack: 'Ends one message as delivered. `attempt` is its `claim_no`: with it, only that very claim is ended. False means that the token does not hold it any more.',
  nack: "Ends one message as failed: it is tried again after `retry_after`, or as the destination's retry policy says. `terminal` means no further try, straight to the dead letters. False means that the token does not hold it any more.",
  claim:
    'Frees expired leases, then takes the oldest due messages of one destination, at most `max_messages` (1 to 10,000), and holds them for `lease` (7 days at most). `token` is a UUID of your choice that names this worker.',
  discard_dead_letters:
    'Gives dead letters up for good, at most `max_count` in one call; the record stays in the attempts.',
  set_paused:
    'Stops or resumes the claims of one destination, for all relays, from the next claim on. What is held already is delivered. `reason` is shown to whoever looks at it.',
  discard_deliveries: 'Discards what waits for one destination, at most `max_count` in one call.',
  move_deliveries:
    'Moves what waits for one destination to another, at most `max_count` in one call.',
  // migrations do not change any more, and these say what was true before a later one
  streams:
    "One row per ordering key: its messages are numbered from 1 without a gap, and whoever takes a number holds the row until the end of the transaction, so the order of the numbers is the order of the commits. Kept for ever, or until nothing is left of a key that was not used for long (forget_keys). tenant_id is '' for none: a key has to be unique.",
  lanes:
    'One key at one destination, for as long as the key is kept. available_at: when its head is due; null while nothing waits in it or a lease holds it. blocked_by: the dead head that it waits behind. last_sequence: the last that has ended.',
  relays:
    "Relays show themselves with a heartbeat. destinations: those that it serves. breakers: what each destination's circuit breaker at this relay says, for those that are not closed. limited: those whose rate limit is used up here.",
  inbox_positions:
    "The highest sequence that each consumer has processed of each stream; 0: none yet. made_at: when that message was made, as its id says; null if it went by a key of the consumer's. used_at: when the consumer last went on there. tenant_id is '' for none. Kept for ever, or until the key is forgotten and nobody went on for long (forget_positions).",
  maintenance_runs:
    'When each daily task was last done, and who is at it: whichever relay gets there first does it for all. position: how far a walk through a large table has come (keys, lanes).',
  prune_dead_letters: 'Discards dead letters that are older, one batch; returns how many.',
  prune_dedupe_keys:
    'Forgets dedupe keys that are older (30 days at least) and whose message is ended at every destination, one batch; `pruned` says how many. A caller with many passes `last` on as `p_after`.',
  prune_inbox:
    'Forgets what consumers processed longer ago (30 days at least), one batch; returns how many. Positions in streams are kept (forget_positions).',
  new_id: 'A UUIDv7 of now.',
};

/**
 * @typedef {{ query: (sql: string, values: unknown[]) => Promise<{ rows: Record<string, string>[] }> }} Client
 * @typedef {{ relations: Record<string, string>[], functions: Record<string, string>[] }} Catalog
 */

/** @param {Client} client @param {string} schema @returns {Promise<Record<string, string>>} */
export async function sqlTables(client, schema) {
  const comments = readComments();
  const { relations, functions } = await readCatalog(client, schema);
  const placed = new Set(Object.values(groups).flat());
  const unplaced = functions.filter(({ name }) => !placed.has(name ?? ''));
  if (unplaced.length > 0)
    throw new Error(
      `functions without a place in scripts/docs-sql.mjs: ${unplaced.map(({ name }) => name).join(', ')}`,
    );
  const parts = Object.entries(groups).map(([group, names]) => [
    `functions-${group}`,
    names
      .map((name) => functionText(name, functions, comments, group === 'internals'))
      .join(group === 'internals' ? '\n' : '\n\n'),
  ]);
  return {
    ...Object.fromEntries(parts),
    ...(await roleTables(client)),
    alerts: await alertTable(client),
    tables: relationTexts('table', relations, comments),
    views: relationTexts('view', relations, comments),
    types: relationTexts('type', relations, comments),
  };
}

/** What each role may do, from the function that the grants are made of. @param {Client} client */
async function roleTables(client) {
  const { rows } = await client.query(
    `SELECT k.role, k.purpose,
            (SELECT string_agg(format('\`%s\`', w.object), ', ' ORDER BY w.object) FROM role_rights() w WHERE w.role = k.role AND w.kind = 'function') AS functions,
            (SELECT string_agg(format('\`%s\`', w.object), ', ' ORDER BY w.object) FROM role_rights() w WHERE w.role = k.role AND w.kind = 'table') AS tables
       FROM role_kinds() WITH ORDINALITY k(role, purpose, place) ORDER BY k.place`,
    [],
  );
  const table = (/** @type {string[]} */ head, /** @type {(string | undefined)[][]} */ lines) =>
    [head, head.map(() => '---'), ...lines].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
  return {
    roles: table(
      ['role', 'what it is for'],
      rows.map(({ role, purpose }) => [`\`${role}\``, purpose]),
    ),
    'role-functions': table(
      ['role', 'may call'],
      rows
        .filter((row) => row['functions'])
        .map(({ role, functions }) => [`\`${role}\``, functions]),
    ),
    'role-tables': table(
      ['role', 'may read'],
      rows.filter((row) => row['tables']).map(({ role, tables }) => [`\`${role}\``, tables]),
    ),
  };
}

/** On the search path that was set for the catalog. @param {Client} client */
async function alertTable(client) {
  const { rows } = await client.query(
    `SELECT format('| \`%s\` | %s %s | %s | %s | %s | %s |', alert, CASE WHEN below THEN 'below' ELSE 'above' END, threshold,
                   CASE WHEN hold = '0' THEN 'at once' ELSE (extract(epoch FROM hold) / 60)::int || ' min' END,
                   severity, format(sentence, '…', threshold), remedy) AS line FROM alert_definitions()`,
    [],
  );
  return [
    '| alert | fires | told after | severity | says | remedy |',
    '|---|---|---|---|---|---|',
    ...rows.map(({ line }) => line),
  ].join('\n');
}

/** Names are shown as they are found on the search path, so that the schema's own name appears nowhere. @param {Client} client @param {string} schema @returns {Promise<Catalog>} */
async function readCatalog(client, schema) {
  await client.query(`SELECT set_config('search_path', quote_ident($1), false)`, [schema]);
  const { rows: relations } = await client.query(
    `SELECT CASE WHEN c.relkind = 'v' THEN 'view' ELSE 'table' END AS kind, c.relname AS name,
            string_agg(format('%s %s%s', a.attname, format_type(a.atttypid, a.atttypmod),
              CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END), E'\\n' ORDER BY a.attnum) AS body
       FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
      GROUP BY 1, 2
      UNION ALL
     SELECT 'type', t.typname, string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder)
       FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid WHERE t.typnamespace = $1::text::regnamespace GROUP BY 2
      ORDER BY 2`,
    [quoted(schema)],
  );
  const { rows: functions } = await client.query(
    `SELECT p.proname AS name, pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
       FROM pg_proc p WHERE p.pronamespace = $1::text::regnamespace ORDER BY 1`,
    [quoted(schema)],
  );
  return { relations, functions };
}

/** @param {string} name */
function quoted(name) {
  return `"${name.replaceAll('"', '""')}"`;
}

/** The comment above each CREATE in sql/, as one paragraph per blank comment line. @returns {Map<string, string>} */
function readComments() {
  const root = new URL('../sql/', import.meta.url);
  const comments = new Map();
  const object =
    /((?:^--.*\n)*)(?:^ *(?:EXECUTE.*)?CREATE (?:OR REPLACE )?)(TABLE|TYPE|FUNCTION|VIEW) (\w+)/gm;
  for (const folder of ['migrations', 'functions', 'views']) {
    for (const file of readdirSync(new URL(folder, root)).toSorted()) {
      if (!file.endsWith('.sql') || file.endsWith('.down.sql')) continue;
      const text = readFileSync(new URL(`${folder}/${file}`, root), 'utf8');
      for (const [, comment = '', , name] of text.matchAll(object)) {
        const words = comment
          .split('\n')
          .map((line) => line.replace(/^-- ?/, '').trim())
          .join(' ')
          .trim();
        if (words !== '' || !comments.has(name)) comments.set(name, words);
      }
    }
  }
  return comments;
}

/** @param {string} name @param {Record<string, string>[]} functions @param {Map<string, string>} comments @param {boolean} short */
function functionText(name, functions, comments, short) {
  const found = functions.filter((row) => row['name'] === name);
  const [row] = found;
  if (row === undefined)
    throw new Error(`${name} is in scripts/docs-sql.mjs and no longer in sql/functions`);
  if (found.length > 1)
    throw new Error(`${name} exists ${found.length} times: a change of arguments left one behind`);
  const comment = ownWords[name] ?? comments.get(name) ?? '';
  if (short) return `- \`${name}\`${comment === '' ? '' : `: ${comment.split(/(?<=[.]) /)[0]}`}`;
  if (comment === '') throw new Error(`${name} has no comment in sql/functions, and no words here`);
  const given = splitArguments(row['arguments'] ?? '').filter((each) => !each.startsWith('OUT '));
  const results = splitArguments(row['arguments'] ?? '')
    .filter((each) => each.startsWith('OUT '))
    .map((each) => each.slice('OUT '.length));
  const result = results.length > 0 ? `TABLE(${results.join(', ')})` : (row['result'] ?? '');
  const signature = shortened(`${name}(${given.join(', ')}) → ${result}`);
  return [`**\`${name}\`**`, '```text', wrapped(signature), '```', comment].join('\n');
}

/** @param {string} kind @param {Record<string, string>[]} relations @param {Map<string, string>} comments */
function relationTexts(kind, relations, comments) {
  return relations
    .filter((relation) => relation['kind'] === kind)
    .map(({ name = '', body = '' }) =>
      [
        `**\`${name}\`**`,
        '```text',
        shortened(body),
        '```',
        ...orNothing(ownWords[name] ?? comments.get(name)),
      ].join('\n'),
    )
    .join('\n\n');
}

/** @param {string | undefined} comment */
function orNothing(comment) {
  return comment === undefined || comment === '' ? [] : [comment];
}

/** Splits at the commas outside of parentheses. @param {string} list */
function splitArguments(list) {
  return list === '' ? [] : list.split(/, (?![^(]*\))/);
}

/** @param {string} text */
function shortened(text) {
  return text
    .replaceAll('timestamp with time zone', 'timestamptz')
    .replaceAll('double precision', 'float8')
    .replaceAll(/\binteger\b/g, 'int')
    .replaceAll(/::(\w+)(\[\])?(?=[,)]| →|$)/g, '');
}

/** @param {string} signature */
function wrapped(signature) {
  if (signature.length <= 110) return signature;
  const lines = [''];
  for (const word of signature.split(/(?<=, )|(?= → )/)) {
    const last = lines.length - 1;
    if ((lines[last] + word).length > 108 && lines[last] !== '')
      lines.push(`    ${word.trimStart()}`);
    else lines[last] += word;
  }
  return lines.map((line) => line.trimEnd()).join('\n');
}
