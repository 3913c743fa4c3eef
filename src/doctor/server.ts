// Doctor checks of the server as this machine reaches it: its version, whether it accepts writes, whether
// notifications arrive, and its clock.

import { randomUUID } from 'node:crypto';

import { ConfigurationError, errorText } from '../core/errors.js';
import { withDeadline } from '../database/deadline.js';
import { connectDirectly, destroy } from '../database/direct-connection.js';
import { failure, ok, readRow, skipped, warning } from './check.js';
import type { Check, CheckContext } from './check.js';
import { findHost } from './hosts.js';

const serverVersion: Check = {
  code: 'server_version',
  title: 'the version of PostgreSQL is supported',
  finds: 'Warning for a PostgreSQL that is not 15 to 18.',
  needs: 'server',
  run: async ({ database }) => {
    const { version, number } = await readRow<{ version: string; number: number }>(
      database,
      'read version',
      `SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number`,
    );
    return number >= 150_000 && number < 190_000
      ? ok(`PostgreSQL ${version}`)
      : warning(
          `PostgreSQL ${version}: Waybill is tested with 15 to 18`,
          'Use one of these versions.',
        );
  },
};

const host: Check = {
  code: 'server_host',
  title: 'Waybill runs on this host',
  finds:
    'Error for a database that is not PostgreSQL, such as CockroachDB. Names the [host](hosts.md), if it is a known one, and what is special there.',
  needs: 'server',
  run: async ({ database }) => {
    const found = await findHost(database);
    if (found === undefined) return ok('nothing shows a managed host');
    const { name, advice, direct, unsupported } = found;
    return unsupported === undefined
      ? ok(`${name}: ${advice}`)
      : failure(`${name} is not supported: ${unsupported}`, direct);
  },
};

const standby: Check = {
  code: 'server_standby',
  title: 'the server takes writes',
  finds: 'Error when the address leads to a standby.',
  needs: 'server',
  run: async ({ database }) => {
    const { standby: isStandby } = await readRow<{ standby: boolean }>(
      database,
      'look for recovery',
      'SELECT pg_is_in_recovery() AS standby',
    );
    return isStandby
      ? failure(
          'it is a standby: nothing can be enqueued or delivered here',
          'Give the address of the primary (DATABASE_URL).',
        )
      : ok('it is a primary');
  },
};

const pooled: Check = {
  code: 'listen_pooled',
  title: 'notifications arrive',
  finds:
    'Warning when the address for LISTEN leads through a pooler that keeps no session, such as PgBouncer in transaction mode; error when it cannot be reached. One notification is sent, on a channel of its own.',
  needs: 'server',
  run: async (context) => {
    const { directUrl } = context.database.options;
    const address = directUrl === undefined ? 'DATABASE_URL' : 'DATABASE_DIRECT_URL';
    const found = await findHost(context.database);
    const remedy = `Give the address of PostgreSQL itself, or of a pooler in session mode, to relays and to migrations (database.directUrl)${found === undefined ? '' : `; ${found.name}: ${found.direct}`}:`;
    const paste = ['export DATABASE_DIRECT_URL=postgresql://user@host:5432/database'];
    try {
      if (await isHeard(context)) return ok(`LISTEN works with ${address}`);
      return warning(
        `a notification was not heard with ${address}: it leads through a pooler that keeps no session`,
        remedy,
        paste,
      );
    } catch (error) {
      if (error instanceof ConfigurationError)
        return warning(
          `${address} leads through a pooler, which keeps no session: relays poll instead of being woken, retention waits, migrations are refused`,
          remedy,
          paste,
        );
      // a standby cannot listen, which another check says
      if ((error as { code?: string }).code === '25006') return skipped(errorText(error));
      return failure(`${address} does not serve for LISTEN: ${errorText(error)}`, remedy, paste);
    }
  },
};

/** Sent on another connection: a pooler passes on what a connection sends to itself, so that would prove nothing. */
async function isHeard({ database, limits }: CheckContext): Promise<boolean> {
  const client = await connectDirectly(database.options, 'waybill doctor');
  const channel = `waybill:doctor:${randomUUID()}`;
  const heard = new Promise<void>((resolve) => client.once('notification', () => resolve()));
  try {
    await withDeadline(
      'LISTEN',
      limits.listenMs,
      client.query(`LISTEN ${client.escapeIdentifier(channel)}`),
      () => destroy(client),
    );
    await database.query('notify', `SELECT pg_notify($1, '')`, [channel]);
    return await withDeadline('notification', limits.listenMs, heard, () => {}).then(
      () => true,
      () => false,
    );
  } finally {
    await withDeadline(
      'end',
      limits.listenMs,
      // behind a pooler, the LISTEN would stay with the server's connection
      client.query(`UNLISTEN ${client.escapeIdentifier(channel)}`).then(() => client.end()),
      () => destroy(client),
    ).catch(() => {});
  }
}

const clockSkew: Check = {
  code: 'clock_skew',
  title: "this machine's clock agrees with the database's",
  finds:
    'Warning when the clocks of this machine and of the database differ by more than 2 seconds. Run it where relays run: their signatures carry their time.',
  needs: 'server',
  run: async ({ database, limits, nowMs }) => {
    const beforeMs = nowMs();
    const { ms } = await readRow<{ ms: number }>(
      database,
      'read clock',
      'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS ms',
    );
    const afterMs = nowMs();
    // the round trip makes the result uncertain by half of its time, in either direction
    const aheadMs = (beforeMs + afterMs) / 2 - ms;
    const surelyMs = Math.abs(aheadMs) - (afterMs - beforeMs) / 2;
    if (surelyMs <= limits.clockSkewMs)
      return ok(`they differ by no more than ${limits.clockSkewMs / 1000} s`);
    return warning(
      `this machine's clock is ${(Math.abs(aheadMs) / 1000).toFixed(1)} s ${aheadMs > 0 ? 'ahead of' : 'behind'} the database's`,
      'Let a time service set both clocks; run this on each machine to check it:',
      ['timedatectl'],
    );
  },
};

export const serverChecks = [serverVersion, host, standby, pooled, clockSkew];
