// Session settings: Waybill's statements run under its own limits and READ COMMITTED, whatever the defaults of the
// role and the database are. On a direct connection they are set once for the session. Behind a pooler, the next
// transaction may run on another server connection, and session settings would leak to another client. There they
// are set in each transaction and end with it.

import type pg from 'pg';

export type SessionLimits = {
  statementTimeoutMs: number;
  lockTimeoutMs: number;
  idleInTransactionTimeoutMs: number;
};

/** True if a pooler answers: it reports a process id that is not the server's. */
export async function isPooled(client: pg.ClientBase): Promise<boolean> {
  const { processID } = client as unknown as { processID: number | null };
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  return rows[0]?.pid !== processID;
}

/**
 * A host may end sessions that are idle, which would cut LISTEN, and, since PostgreSQL 17, long transactions, which
 * would cut migrations. Waybill ends its own.
 */
export async function limitSession(client: pg.ClientBase, limits: SessionLimits): Promise<void> {
  await client.query(
    `SELECT set_config('default_transaction_isolation', 'read committed', false), ${settings(limits, false)},
            (SELECT count(set_config(name, '0', false))
               FROM unnest('{idle_session_timeout,transaction_timeout}'::text[]) name
              WHERE current_setting(name, true) IS NOT NULL)`,
  );
}

/** Until the end of the transaction, the session sees only what belongs to the tenant. */
export async function limitToTenant(client: pg.ClientBase, tenantId: string): Promise<void> {
  await client.query("SELECT set_config('waybill.tenant_id', $1, true)", [tenantId]);
}

/** For connections through a pooler. Costs three round trips instead of one. */
export async function inLimitedTransaction<T>(
  client: pg.ClientBase,
  limits: SessionLimits,
  work: () => Promise<T>,
): Promise<T> {
  try {
    await client.query(`BEGIN ISOLATION LEVEL READ COMMITTED; SELECT ${settings(limits, true)}`);
    const result = await work();
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {});
    throw error;
  }
}

/**
 * One expression for all settings, so that a connection costs one statement. DateStyle is set because times are parsed
 * as ISO.
 */
function settings(limits: SessionLimits, isLocal: boolean): string {
  return [
    ['statement_timeout', limits.statementTimeoutMs],
    ['lock_timeout', limits.lockTimeoutMs],
    ['idle_in_transaction_session_timeout', limits.idleInTransactionTimeoutMs],
    // compiling a query over sixty partitions takes longer than running it
    ['jit', 'off'],
    ['DateStyle', 'ISO'],
  ]
    .map(([name, value]) => `set_config('${name}', '${value}', ${isLocal})`)
    .join(', ');
}
