// Messages that no route wanted are kept; when one wants them later, an operator hands them over.

import { expect, it } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { routeUnrouted } from '../../src/database/definitions.js';
import { addRoute, defineDestination } from '../support/destinations.js';
import { enqueueMany, misplaced } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

it('unrouted messages become deliveries when a route wants them, once, and the rest stay', async () => {
  const early = await enqueueMany(
    db,
    db.pool,
    Array.from({ length: 1500 }, (_, n) => ({
      topic: n % 3 === 0 ? 'late.wanted' : 'never.wanted',
    })),
  );
  expect(early).toHaveLength(1500);
  const [one, two] = [await defineDestination(db, 'one'), await defineDestination(db, 'two')];
  for (const destination of [one, two]) await addRoute(db, destination, 'late.*');

  const database = new Database(resolveDatabaseOptions({ url: db.url, schema: db.schema }), {
    connections: 1,
    applicationName: 'test',
  });
  try {
    expect(await routeUnrouted(database, 'tester')).toBe(500);
    expect(await routeUnrouted(database, 'tester')).toBe(0);
  } finally {
    await database.close();
  }
  const { rows } = await db.query<{ waiting: number; unrouted: number; recorded: number }>(
    `SELECT (SELECT count(*)::int FROM ${db.quoted}.deliveries) AS waiting,
            (SELECT count(*)::int FROM ${db.quoted}.unrouted_messages) AS unrouted,
            (SELECT sum(count)::int FROM ${db.quoted}.operator_actions WHERE action = 'route_unrouted') AS recorded`,
  );
  expect(rows).toEqual([{ waiting: 1000, unrouted: 1000, recorded: 500 }]);
  expect(await misplaced(db)).toEqual([]);
});
