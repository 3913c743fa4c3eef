// PostgreSQL stops and starts again, cleanly or by a crash; the relay is neither informed nor restarted.

import pg from 'pg';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { startPostgres } from '../../src/dev/embedded-postgres.js';
import type { PostgresServer } from '../../src/dev/embedded-postgres.js';
import { waitFor } from '../support/wait.js';
import { isSettle } from './crash/faults.js';
import { RelayUnderTest } from './crash/relay-under-test.js';

let server: PostgresServer;
let pool: pg.Pool;
let relay: RelayUnderTest;

beforeAll(async () => {
  server = await startPostgres();
  await migrateUp({ url: server.url });
  pool = new pg.Pool({ connectionString: server.url });
  pool.on('error', () => {});
});
afterEach(async () => relay.stop());
afterAll(async () => {
  await pool.end();
  await server.remove();
});

test.each(['fast', 'immediate'] as const)(
  'a relay continues by itself after PostgreSQL was stopped (%s) and started again',
  async (mode) => {
    relay = await RelayUnderTest.start({ databaseUrl: server.url, pool });
    const [before = ''] = await relay.enqueue();
    await relay.waitUntilDelivered(before);

    await server.stop(mode);
    await waitFor(() => relay.count('trouble') > 0, { what: 'the relay to notice' });
    await server.restart();
    const [after = ''] = await relay.enqueue();
    await relay.waitUntilDelivered(after);

    expect(relay.handled).toEqual([before, after]);
    expect(await relay.attempts(after)).toMatchObject([
      { claim_no: 1, tries: 1, state: 'dispatched' },
    ]);
  },
);

test('deliveries sent before a crash and not yet settled are settled after it, and not sent again', async () => {
  relay = await RelayUnderTest.start({ databaseUrl: server.url, pool });
  const caught = relay.proxy.hold(isSettle);
  const ids = await relay.enqueue(5);
  const held = await caught;
  await waitFor(() => relay.handled.length === ids.length, { what: 'all to be sent' });

  await server.crash();
  held.drop();
  await server.restart();
  for (const id of ids) await relay.waitUntilDelivered(id);

  for (const id of ids)
    expect(await relay.attempts(id)).toMatchObject([
      { claim_no: 1, tries: 1, state: 'dispatched' },
    ]);
  expect(relay.handled).toHaveLength(ids.length);
});
