// What the payments example must never lose, and every way to remove it that the tests know: statements on the tables
// and views, and calls of the functions that change anything. Tables, views, roles and functions come from the catalog.

import type { TestDatabase } from './postgres.js';

/**
 * The history, as rows that must still be there later: payments, attempts, numbers, operators' actions, the retention
 * floors, and what guards them (owners, rights, row level security, triggers, the source of the trigger functions).
 */
export async function historyOf(on: Pick<TestDatabase, 'query'>): Promise<string[]> {
  const { rows } = await on.query<{ row: string }>(`
    SELECT 'ledger ' || to_jsonb(p)::text AS row FROM payments.payment_ledger p
    UNION ALL SELECT 'earlier ' || to_jsonb(a)::text FROM payments.earlier_attempts a
    UNION ALL SELECT 'attempt ' || to_jsonb(a)::text FROM outbox.attempts a
    UNION ALL SELECT 'shown ' || to_jsonb(v)::text FROM payments.payment_outbox_attempts v WHERE v.state <> 'DISPATCHING'
    UNION ALL SELECT 'number ' || k.key || ' ' || k.next_sequence FROM outbox.keys k
    UNION ALL SELECT 'action ' || to_jsonb(o)::text FROM outbox.operator_actions o
    UNION ALL SELECT 'floor ' || to_jsonb(f)::text FROM outbox.retention_floors f
    UNION ALL SELECT format('relation %s %s %s %s', c.oid::regclass, c.relowner::regrole, c.relrowsecurity, c.relacl)
      FROM pg_class c WHERE c.relnamespace = 'payments'::regnamespace
        OR c.oid IN ('outbox.attempts'::regclass, 'outbox.keys'::regclass, 'outbox.retention_floors'::regclass)
    UNION ALL SELECT format('trigger %s %s %s', t.tgrelid::regclass, t.tgname, t.tgenabled)
      FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
     WHERE NOT t.tgisinternal AND c.relnamespace IN ('payments'::regnamespace, 'outbox'::regnamespace)
       AND c.relname !~ '^messages_'
    UNION ALL SELECT format('function %s %s', p.oid::regprocedure, md5(p.prosrc))
      FROM pg_proc p WHERE p.pronamespace = 'payments'::regnamespace`);
  return rows.map(({ row }) => row);
}

/** Rows of the history that are gone or different. */
export async function lostSince(
  before: readonly string[],
  on: Pick<TestDatabase, 'query'>,
): Promise<string[]> {
  const now = new Set(await historyOf(on));
  return before.filter((row) => !now.has(row));
}

const keptByWaybill = [
  'attempts',
  'dead_letters',
  'dedupe_keys',
  'destinations',
  'keys',
  'message_days',
  'message_identities',
  'messages',
  'operator_actions',
  'retention_floors',
];

/** Statements that would remove or open up the history; every role must be refused. */
export async function removals(db: TestDatabase): Promise<string[]> {
  const { rows } = await db.query<{ name: string; kind: string; column: string; parent: string }>(
    `SELECT c.oid::regclass::text AS name, c.relkind AS kind, a.attname AS column,
            (SELECT i.inhparent::regclass::text FROM pg_inherits i WHERE i.inhrelid = c.oid) AS parent
       FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = 1
      WHERE (c.relnamespace = 'payments'::regnamespace AND c.relkind IN ('r', 'p', 'v'))
         OR c.oid IN (SELECT format('outbox.%s', n)::regclass FROM unnest($1::text[]) n)
         OR c.oid IN (SELECT a.tableoid FROM outbox.attempts a)`,
    [keptByWaybill],
  );
  return [
    ...rows.flatMap(({ name, kind, column, parent }) => [
      `DELETE FROM ${name}`,
      `UPDATE ${name} SET ${column} = ${column}`,
      `ALTER ${kind === 'v' ? 'VIEW' : 'TABLE'} ${name} RENAME TO gone`,
      `ALTER ${kind === 'v' ? 'VIEW' : 'TABLE'} ${name} SET SCHEMA public`,
      `ALTER ${kind === 'v' ? 'VIEW' : 'TABLE'} ${name} OWNER TO CURRENT_USER`,
      `DROP ${kind === 'v' ? 'VIEW' : 'TABLE'} ${name} CASCADE`,
      `CREATE RULE forget AS ON INSERT TO ${name} DO INSTEAD NOTHING`,
      ...(kind === 'v'
        ? []
        : [
            `TRUNCATE ${name}`,
            `TRUNCATE ${name} CASCADE`,
            `MERGE INTO ${name} t USING (VALUES (1)) v ON true WHEN MATCHED THEN DELETE`,
            `ALTER TABLE ${name} DISABLE TRIGGER ALL`,
            `ALTER TABLE ${name} DISABLE TRIGGER USER`,
            `ALTER TABLE ${name} DISABLE ROW LEVEL SECURITY`,
            `ALTER TABLE ${name} DROP COLUMN ${column} CASCADE`,
          ]),
      ...(parent === null
        ? []
        : [
            `ALTER TABLE ${parent} DETACH PARTITION ${name}`,
            `ALTER TABLE ${parent} DETACH PARTITION ${name} CONCURRENTLY`,
          ]),
    ]),
    `DROP TRIGGER refuse_change ON payments.payment_ledger`,
    `DROP TRIGGER refuse_change ON payments.payment_outbox_attempts`,
    `DROP TRIGGER append_only ON outbox.attempts`,
    `DROP FUNCTION payments.refuse_change() CASCADE`,
    `CREATE OR REPLACE FUNCTION payments.refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
    `CREATE FUNCTION payments.extra() RETURNS int LANGUAGE sql AS 'SELECT 1'`,
    `ALTER TABLE payments.payment_ledger DROP CONSTRAINT payment_ledger_once`,
    `INSERT INTO outbox.retention_floors (topic, attempts_days) VALUES ('payment.extra', 1)`,
    `DROP SCHEMA payments CASCADE`,
    `DROP SCHEMA outbox CASCADE`,
    `ALTER SCHEMA payments RENAME TO gone`,
    `DROP OWNED BY payments_owner CASCADE`,
    `REASSIGN OWNED BY payments_owner TO CURRENT_USER`,
    `GRANT payments_owner TO CURRENT_USER`,
    `SET ROLE payments_owner`,
    `ALTER ROLE CURRENT_USER SUPERUSER`,
    `SET session_replication_role = replica`,
    `SELECT set_config('session_replication_role', 'replica', false)`,
    `ALTER SYSTEM SET session_replication_role = replica`,
  ];
}

/**
 * Functions that change something, with arguments that would misuse them: the shortest retention, and everything that
 * there is. `id` is a payment with history, `partitions` are the days of messages and attempts up to today.
 */
export function misuses(id: string, partitions: readonly string[]): Record<string, string[]> {
  const soon = `now() + interval '1 day'`;
  const noRelay = '00000000-0000-0000-0000-000000000000';
  return {
    // maintenance
    remove_partition: partitions.map((name) => `'${name}', '1 day', '1 day'`),
    expired_partitions: [`'1 day', '1 day'`],
    prune_dedupe_keys: [`'30 days', 1000000`],
    prune_dead_letters: [`'0', 1000000`],
    prune_inbox: [`'30 days', 1000000`],
    prune_endpoints: [`'1 day', 1000000`, `'30 days', 1000000`],
    prune_discarded_letters: [`'0', 1000000`],
    prune_jobs: [`'0', 1000000`, `'30 days', 1000000`],
    prune_reports: [`'0', 1000000`, `'32 days', 1000000`],
    prune_shadow_comparisons: [`'0', 1000000`, `'30 days', 1000000`],
    prune_statistics: [`'0'`, `'31 days'`],
    forget_keys: [`'30 days', 1000000`, `'30 days', 1000000`],
    forget_lanes: ['1000000', '1000000'],
    forget_positions: [`'30 days', 1000000`],
    seal_expiry: [`(now() - interval '400 days')::date, 1`],
    // operators
    cancel: [`'${id}'`],
    discard_dead_letters: ['max_count => 1000000'],
    skip_dead_letters: ['max_count => 1000000'],
    restore_dead_letters: [`'{${id}}'`],
    retry_dead_letters: ['max_count => 1000000'],
    discard_deliveries: [`'rail.card', 1000000`, `'rail.sepa', 1000000`],
    move_deliveries: [`'rail.sepa', 'rail.mobile', 1000000`],
    discard_unrouted: ['max_count => 1000000'],
    route_unrouted: ['max_count => 1000000'],
    retry_now: [''],
    delete_cursor: [`'rail.card', force => true`],
    reset_cursor: [`'rail.card', 'beginning'`],
    repair_cursors: [''],
    start_job: [`'discard', ${soon}, '${noRelay}', 60000`],
    job_step: [
      `(j).job_id, (j).token) FROM outbox.start_job('discard', ${soon}, '${noRelay}', 60000) j --`,
    ],
    start_replay: [`'rail.card', ids => '{${id}}'`, `'rail.card', topic => 'payment.card'`],
    replay_step: [
      `(r).replay_id) FROM outbox.start_replay('rail.card', topic => 'payment.card') r --`,
    ],
    set_rollout: [`'payments', 100`],
    remove_endpoint: [`'rail.card'`],
    set_paused: [`'rail.card', true`, `'rail.card', false`],
    // relays
    reap: [''],
    release_leases: [`'${noRelay}', '{}'`],
    release_misdated: [''],
    hand_over_cursors: [''],
    remove_destination: [`'rail.card'`],
    define_destination: [`'rail.extra'`],
    remove_route: [`'payment.card', 'rail.card', 'payments'`],
    remove_application: [`'default'`],
    apply_definitions: [`'{}', p_prune => true`],
    tend_definitions: [`'${noRelay}'`],
    seal_attempts: [''],
    seal_actions: [''],
    make_partitions: ['1'],
    remove_stale_listeners: [''],
    upkeep: ['true, true'],
  };
}

/**
 * Functions that change something but no history: they enqueue, claim, settle (which adds attempts), read with a cursor,
 * or keep the state of relays, alerts, watches, endpoints, jobs and sessions. search_sizes changes nothing, but asks for
 * plans, which only a volatile function may do.
 */
export const keepHistory = `
  enqueue enqueue_many enqueue_text enqueue_payment_outbox send_payment bump_participant_outbox_seq inbox_begin inbox_begin_many
  claim claim_batch claim_batches claim_in_order ack nack mark_delivered settle settle_many deliver_leases extend_leases is_taken idle_is_safe next_transaction
  define_cursor join_cursor leave_cursor take_cursor partitions_left note_batch extend_cursor release_cursor end_partition open_window plan_window read_page move_cursor
  note_failure pause_cursor park_message withdraw_death
  heartbeat sign_off tell_limits register_listener add_statistics take_sample take_alerts note_notification
  sync_alert_thresholds begin_maintenance end_maintenance renew_hold release_hold note_export
  sync_definitions declare_applied confirm_declaration define_route route_earlier
  sync_watches reconcile_watches mend_watches tend_watches applied_of_watches
  add_endpoint change_endpoint rotate_endpoint reseal_endpoint retire_endpoint_secrets set_endpoint_enabled recover_endpoint
  send_test sync_endpoint_settings add_tenant_token begin_request keep_answer
  plan_replay resume_replay cancel_replay cancel_job fail_job renew_job release_job resume_job
  fill_reports
  rollout_decision report_sent record_shadow find_access begin_session end_session search_sizes`
  .trim()
  .split(/\s+/);
