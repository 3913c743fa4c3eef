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

export async function limitSession(client: pg.ClientBase, limits: SessionLimits): Promise<void> {
  await client.query(
    `SET default_transaction_isolation = 'read committed'; ${settings('SET', limits)}`,
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
    await client.query(`BEGIN ISOLATION LEVEL READ COMMITTED; ${settings('SET LOCAL', limits)}`);
    const result = await work();
    await client.query('COMMIT');
    return result;
  } catch (error) {
    await client.query('ROLLBACK').catch(() => {});
    throw error;
  }
}

/** DateStyle is set because times are parsed as ISO. */
function settings(set: 'SET' | 'SET LOCAL', limits: SessionLimits): string {
  return [
    `statement_timeout = ${limits.statementTimeoutMs}`,
    `lock_timeout = ${limits.lockTimeoutMs}`,
    `idle_in_transaction_session_timeout = ${limits.idleInTransactionTimeoutMs}`,
    // compiling a query over sixty partitions takes longer than running it
    'jit = off',
    "DateStyle = 'ISO'",
  ]
    .map((setting) => `${set} ${setting}`)
    .join('; ');
}
