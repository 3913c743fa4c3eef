// What an idle relay asks its database, as PostgreSQL counts it: with one destination and with thirty, at most one
// statement a second, heartbeats and all other periodic tasks included.

import { afterAll, beforeAll, expect, test } from 'vitest';

import { createRelay } from '../../src/config.js';
import { handler } from '../../src/destinations/handler.js';
import type { PostgresServer } from '../../src/dev/embedded-postgres.js';
import { countedDatabase, startCountingPostgres } from '../support/counted-statements.js';

/** Longer than most intervals; those of a minute come at most once. */
const countedSeconds = 30;

let server: PostgresServer;
beforeAll(async () => {
  server = await startCountingPostgres();
});
afterAll(() => server.remove());

test.concurrent.each([1, 30])(
  'X3 an idle relay with %i destinations sends at most one statement a second',
  { timeout: 120_000 },
  async (destinations) => {
    const database = await countedDatabase(server);
    const names = Array.from({ length: destinations }, (_, n) => `idle-${n}`);
    const relay = createRelay({
      database: { url: database.url },
      destinations: Object.fromEntries(names.map((name) => [name, handler(() => undefined)])),
      routes: names.map((name) => ({ topic: name, to: name })),
    });
    await relay.start();
    try {
      // the statements of the start; the server does the waiting
      await database.pool.query('SELECT pg_sleep(2)');
      await database.reset();
      await database.pool.query('SELECT pg_sleep($1)', [countedSeconds]);
      const statements = await database.statements();
      const count = statements.reduce((sum, { calls }) => sum + calls, 0);
      expect(count, 'it still works').toBeGreaterThan(countedSeconds / 5);
      expect(count, JSON.stringify(statements, null, 1)).toBeLessThanOrEqual(countedSeconds);
    } finally {
      await relay.stop();
      await database.close();
    }
  },
);
