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
