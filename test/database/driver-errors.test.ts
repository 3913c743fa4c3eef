// An exception while the driver handles data of its socket closes only that connection: its query fails, and the
// process lives. test/fault/driver-errors.test.ts reads a value longer than the longest string.

import { expect, it } from 'vitest';

import { resolveDatabaseOptions } from '../../src/database/connection.js';
import { connectDirectly } from '../../src/database/direct-connection.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

it('a listener that throws breaks its own connection, whose queries fail with that error', async () => {
  const client = await connectDirectly(resolveDatabaseOptions({ url: db.url, schema: db.schema }));
  client.on('notification', () => {
    throw new Error('the listener failed');
  });
  await client.query('LISTEN broken');
  const ended = new Promise<void>((resolve) => void client.once('end', resolve));
  const waiting = client.query('SELECT pg_notify($1, $2), pg_sleep(0)', ['broken', '']);
  await expect(waiting.then(() => client.query('SELECT pg_sleep(60)'))).rejects.toThrow(
    /the listener failed|not queryable/,
  );
  await ended;
});
