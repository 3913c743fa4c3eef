// Doctor checks of server settings that can lose committed messages or let tables grow. They read the settings of
// this role in this database, and look for deviating settings of other roles.

import { quoteIdentifier } from '../core/identifier.js';
import { counted, failure, listed, ok, readRow, warning } from './check.js';
import type { Check, CheckContext } from './check.js';
import { findHost } from './hosts.js';

type Setting = 'fsync' | 'full_page_writes' | 'autovacuum' | 'track_counts' | 'synchronous_commit';

async function settingOf({ database }: CheckContext, name: Setting): Promise<string> {
  const { value } = await readRow<{ value: string }>(
    database,
    'read setting',
    'SELECT current_setting($1) AS value',
    [name],
  );
  return value;
}

type Remedy = [remedy: string, paste: string[]];

/**
 * The remedy for a setting that is off. A managed host refuses ALTER SYSTEM. It cannot run inside a transaction, so
 * these are separate lines.
 */
async function switchOn(
  { database }: CheckContext,
  name: Setting,
  how = 'Switch it on.',
): Promise<Remedy> {
  const host = await findHost(database);
  return host?.settings === undefined
    ? [how, [`ALTER SYSTEM SET ${name} = on;`, 'SELECT pg_reload_conf();']]
    : [`${how} On ${host.name}, set it in ${host.settings}.`, []];
}

const fsync: Check = {
  code: 'fsync_off',
  title: 'commits reach the disk',
  finds: 'Error while `fsync` is off.',
  needs: 'server',
  run: async (context) =>
    (await settingOf(context, 'fsync')) === 'on'
      ? ok('fsync is on')
      : failure(
          'fsync is off: a crash of the machine can lose committed messages and damage the whole database',
          ...(await switchOn(context, 'fsync')),
        ),
};

const fullPageWrites: Check = {
  code: 'full_page_writes_off',
  title: 'torn pages are repaired',
  finds: 'Error while `full_page_writes` is off.',
  needs: 'server',
  run: async (context) =>
    (await settingOf(context, 'full_page_writes')) === 'on'
      ? ok('full_page_writes is on')
      : failure(
          'full_page_writes is off: a page that was half written at a crash stays damaged',
          ...(await switchOn(
            context,
            'full_page_writes',
            'Switch it on, unless the file system never tears a page (ZFS).',
          )),
        ),
};

const synchronousCommit: Check = {
  code: 'synchronous_commit_off',
  title: 'a commit waits for the disk',
  finds:
    'Warning while `synchronous_commit` is off, for this role, or by default for another role or the database.',
  needs: 'server',
  run: async (context) => {
    const value = await settingOf(context, 'synchronous_commit');
    const rows = await context.database.query<{ role: string | null; database: string | null }>(
      'read role settings',
      `SELECT r.rolname AS role, d.datname AS database
         FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole LEFT JOIN pg_database d ON d.oid = s.setdatabase
        WHERE (s.setdatabase = 0 OR d.datname = current_database())
          AND EXISTS (SELECT FROM unnest(s.setconfig) c WHERE c ~* '^synchronous_commit=(off|false|no|0)$')
        ORDER BY 1, 2`,
    );
    if (value !== 'off' && rows.length === 0) return ok(`synchronous_commit is ${value}`);
    const places = rows.map(({ role, database }) =>
      [role !== null && `role ${role}`, database !== null && `database ${database}`]
        .filter(Boolean)
        .join(' in '),
    );
    const resets = rows.map(({ role, database }) =>
      role === null
        ? `ALTER DATABASE ${quoteIdentifier(database ?? '')} RESET synchronous_commit;`
        : `ALTER ROLE ${quoteIdentifier(role)}${database === null ? '' : ` IN DATABASE ${quoteIdentifier(database)}`} RESET synchronous_commit;`,
    );
    const how = 'Switch it on, at least for the roles that enqueue.';
    const remedy: Remedy =
      places.length > 0 ? [how, resets] : await switchOn(context, 'synchronous_commit', how);
    return warning(
      `synchronous_commit is off${places.length > 0 ? ` for ${listed(places)}` : ''}: a crash can lose messages whose commit was answered`,
      ...remedy,
    );
  },
};

const autovacuum: Check = {
  code: 'autovacuum_off',
  title: 'dead rows are removed',
  finds: 'Error while `autovacuum` is off, for the server or for a table of Waybill.',
  needs: 'server',
  run: async (context) => {
    if ((await settingOf(context, 'autovacuum')) !== 'on')
      return failure(
        'autovacuum is off: the hot tables grow, and claims become slower with every message',
        ...(await switchOn(context, 'autovacuum')),
      );
    const rows = await context.database.query<{ name: string }>(
      'read table settings',
      `SELECT format('%I.%I', n.nspname, c.relname) AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND EXISTS (SELECT FROM unnest(c.reloptions) o WHERE o ~* '^autovacuum_enabled=(off|false|no|0)$')
        ORDER BY 1`,
      [context.database.options.schema],
    );
    if (rows.length === 0) return ok('autovacuum is on, for every table of Waybill');
    return failure(
      `autovacuum is off for ${listed(rows.map(({ name }) => name))}`,
      'Switch it on again.',
      rows.map(({ name }) => `ALTER TABLE ${name} RESET (autovacuum_enabled);`),
    );
  },
};

const trackCounts: Check = {
  code: 'track_counts_off',
  title: 'the server counts dead rows',
  finds: 'Error while `track_counts` is off: autovacuum does nothing without it.',
  needs: 'server',
  run: async (context) =>
    (await settingOf(context, 'track_counts')) === 'on'
      ? ok('track_counts is on')
      : failure(
          'track_counts is off: autovacuum does not know where dead rows are, and removes none',
          ...(await switchOn(context, 'track_counts')),
        ),
};

const connections: Check = {
  code: 'connections_scarce',
  title: 'there is room for connections',
  finds: 'Warning when 80 % of `max_connections` or more are taken.',
  needs: 'server',
  run: async ({ database, limits }) => {
    const { taken, max } = await readRow<{ taken: number; max: number }>(
      database,
      'count connections',
      `SELECT (SELECT coalesce(sum(numbackends), 0)::int FROM pg_stat_database) AS taken,
              current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
                - coalesce(current_setting('reserved_connections', true)::int, 0) AS max`,
    );
    const found = `${taken} of ${counted(max, 'connection')} ${taken === 1 ? 'is' : 'are'} taken`;
    if (taken * 100 < max * limits.connectionsPercent) return ok(found);
    return warning(
      `${found}: soon relays and producers are turned away`,
      'Find out which clients hold them, put a pooler in front of the database, or raise max_connections and restart it.',
      [
        `SELECT usename, application_name, state, count(*) FROM pg_stat_activity GROUP BY 1, 2, 3 ORDER BY 4 DESC;`,
      ],
    );
  },
};

export const settingChecks = [
  fsync,
  fullPageWrites,
  synchronousCommit,
  autovacuum,
  trackCounts,
  connections,
];
