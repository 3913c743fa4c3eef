// What Waybill's statements run under: its limits, and READ COMMITTED, whatever the defaults of the role and
// the database are. On a connection to PostgreSQL itself these are settings of the session, made once. Behind
// a pooler there may be no session: the next transaction runs on another server connection, and what was set
// before stays behind for somebody else. There they are made anew in each transaction, and end with it.

import type pg from 'pg';

export type SessionLimits = {
  statementTimeoutMs: number;
  lockTimeoutMs: number;
  idleInTransactionTimeoutMs: number;
};

/** True if a pooler answers: it introduces itself with a process id of its own making. */
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

/** Three round trips instead of one: what it takes behind a pooler. */
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

/** Times are read as ISO. */
function settings(set: 'SET' | 'SET LOCAL', limits: SessionLimits): string {
  return [
    `statement_timeout = ${limits.statementTimeoutMs}`,
    `lock_timeout = ${limits.lockTimeoutMs}`,
    `idle_in_transaction_session_timeout = ${limits.idleInTransactionTimeoutMs}`,
    // compiling a look at sixty partitions takes longer than the look
    'jit = off',
    "DateStyle = 'ISO'",
  ]
    .map((setting) => `${set} ${setting}`)
    .join('; ');
}
