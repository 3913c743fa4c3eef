// Shows which backend waits for which, so that a test can play a race step by step.

import { only } from './only.js';
import type { Connection } from './outbox.js';
import type { TestDatabase } from './postgres.js';
import { waitFor } from './wait.js';

export async function backendId(client: Connection): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  return only(rows).pid;
}

/** Waits until the backend waits for a lock that another backend holds. */
export async function waitUntilBlocked(db: TestDatabase, backend: number): Promise<void> {
  await waitFor(
    async () => {
      const { rows } = await db.query<{ blocked: boolean }>(
        'SELECT cardinality(pg_blocking_pids($1)) > 0 AS blocked',
        [backend],
      );
      return rows[0]?.blocked;
    },
    { what: `backend ${backend} to wait for a lock` },
  );
}

/** Waits until another backend waits for a lock of this client. */
export async function waitUntilBlocking(db: TestDatabase, client: Connection): Promise<void> {
  const backend = await backendId(client);
  await waitFor(
    async () => {
      const { rows } = await db.query(
        'SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))',
        [backend],
      );
      return rows.length > 0;
    },
    { what: `a backend to wait for backend ${backend}` },
  );
}
