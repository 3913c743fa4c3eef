// Doctor checks of what keeps PostgreSQL from removing dead rows. Rows of the hot tables are deleted soon after they
// are written: one old snapshot lets the tables grow until claims are slow, and a forgotten slot fills the disk.

import { counted, duration, listed, literal, ok, readRow, skipped, warning } from './check.js';
import type { Check, CheckContext } from './check.js';

/** Without this right, the details of other roles' sessions are hidden. */
async function seesSessions({
  database,
}: CheckContext): Promise<{ allowed: boolean; role: string }> {
  return readRow(
    database,
    'read rights',
    `SELECT pg_has_role(current_user, 'pg_read_all_stats', 'usage') AS allowed, quote_ident(current_user) AS role`,
  );
}

function blind(role: string) {
  return skipped(
    `${role} does not see the sessions of other roles`,
    'Let it see them, or run the doctor as a superuser.',
    [`GRANT pg_read_all_stats TO ${role};`],
  );
}

const longTransactions: Check = {
  code: 'long_transactions',
  title: 'no transaction stays open for long',
  finds:
    'Warning for transactions of this database that have been open, with a snapshot or with changes, for more than 5 minutes.',
  needs: 'server',
  run: async (context) => {
    const { limits, database } = context;
    const rows = await database.query<{
      pid: number;
      role: string | null;
      application: string;
      state: string | null;
      seconds: number;
    }>(
      'look for long transactions',
      `SELECT pid, usename AS role, application_name AS application, state,
              extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
         FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
          AND backend_type = 'client backend' AND xact_start < clock_timestamp() - $1 * interval '1 second'
        ORDER BY xact_start`,
      [limits.transactionSeconds],
    );
    if (rows.length === 0) {
      const { allowed, role } = await seesSessions(context);
      return allowed
        ? ok(`none is open for more than ${duration(limits.transactionSeconds)}`)
        : blind(role);
    }
    const shown = rows.map(
      ({ pid, role, application, state, seconds }) =>
        `process ${pid} (${[role, application, state].filter(Boolean).join(', ')}) for ${duration(seconds)}`,
    );
    return warning(
      `${counted(rows.length, 'transaction keeps', 'transactions keep')} dead rows from being removed: ${listed(shown)}`,
      'End transactions that are not needed, and set idle_in_transaction_session_timeout for roles that leave them open.',
      rows.slice(0, 5).map(({ pid }) => `SELECT pg_terminate_backend(${pid});`),
    );
  },
};

const preparedTransactions: Check = {
  code: 'prepared_transactions',
  title: 'no prepared transaction is forgotten',
  finds:
    'Warning for transactions of this database that were prepared (`PREPARE TRANSACTION`) more than 5 minutes ago.',
  needs: 'server',
  run: async ({ database, limits }) => {
    const rows = await database.query<{ gid: string; owner: string; seconds: number }>(
      'look for prepared transactions',
      `SELECT gid, owner, extract(epoch FROM clock_timestamp() - prepared)::float8 AS seconds FROM pg_prepared_xacts
        WHERE database = current_database() AND prepared < clock_timestamp() - $1 * interval '1 second' ORDER BY prepared`,
      [limits.transactionSeconds],
    );
    if (rows.length === 0)
      return ok(`none has waited for its end for more than ${duration(limits.transactionSeconds)}`);
    const shown = rows.map(
      ({ gid, owner, seconds }) => `${gid} (${owner}) for ${duration(seconds)}`,
    );
    return warning(
      `${counted(rows.length, 'prepared transaction waits', 'prepared transactions wait')} for an end: ${listed(shown)}`,
      'Ask its transaction manager; if that has forgotten it, roll it back (or COMMIT PREPARED). It survives restarts.',
      rows.slice(0, 5).map(({ gid }) => `ROLLBACK PREPARED ${literal(gid)};`),
    );
  },
};

const standbyFeedback: Check = {
  code: 'standby_feedback',
  title: 'standbys hold back little',
  finds:
    'Warning when a standby with `hot_standby_feedback` keeps dead rows that are more than 100,000 transactions old.',
  needs: 'server',
  run: async (context) => {
    const { database, limits } = context;
    const rows = await database.query<{ name: string; age: number }>(
      'look for feedback',
      `SELECT r.application_name AS name, age(r.backend_xmin) AS age FROM pg_stat_replication r
        WHERE r.backend_xmin IS NOT NULL AND age(r.backend_xmin) >= $1
       UNION
       SELECT s.slot_name, age(s.xmin) FROM pg_replication_slots s
        WHERE s.active AND s.xmin IS NOT NULL AND age(s.xmin) >= $1
       ORDER BY 2 DESC`,
      [limits.feedbackTransactions],
    );
    if (rows.length === 0) {
      const { allowed, role } = await seesSessions(context);
      return allowed ? ok('none keeps old rows') : blind(role);
    }
    return warning(
      `standbys keep dead rows here: ${listed(rows.map(({ name, age }) => `${name} of ${age} transactions`))}`,
      'End the long queries on the standby; run this there:',
      [
        `SELECT pid, usename, xact_start FROM pg_stat_activity WHERE backend_xmin IS NOT NULL ORDER BY xact_start;`,
      ],
    );
  },
};

const replicationSlots: Check = {
  code: 'replication_slots',
  title: 'every replication slot is used',
  finds: 'Warning for replication slots without a connected reader.',
  needs: 'server',
  run: async ({ database }) => {
    const rows = await database.query<{ name: string; type: string; kept: string | null }>(
      'look for unused slots',
      `SELECT slot_name AS name, slot_type AS type,
              pg_size_pretty(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn)) AS kept
         FROM pg_replication_slots WHERE NOT active ORDER BY restart_lsn NULLS LAST, slot_name`,
    );
    if (rows.length === 0) return ok('no slot is unused');
    const shown = rows.map(
      ({ name, type, kept }) => `${name} (${type}${kept === null ? '' : `, keeps ${kept} of log`})`,
    );
    return warning(
      `${counted(rows.length, 'replication slot has', 'replication slots have')} no reader: ${listed(shown)}; the log, and perhaps dead rows, are kept for ${rows.length === 1 ? 'it' : 'them'} until the disk is full`,
      'Start its reader again, or drop the slot.',
      rows.slice(0, 5).map(({ name }) => `SELECT pg_drop_replication_slot(${literal(name)});`),
    );
  },
};

export const horizonChecks = [
  longTransactions,
  preparedTransactions,
  standbyFeedback,
  replicationSlots,
];
