// Unrouted messages by topic, namespace, tenant and time: what a filter of a list or a discard selects, what routes of
// tenants select, and the confirmations of the command line.

import { expect, it } from 'vitest';

import {
  discardUnrouted,
  listUnrouted,
  routeUnrouted,
} from '../../src/features/unrouted/database.js';
import type { UnroutedFilter } from '../../src/features/unrouted/database.js';
import { cli, environmentOf, writeConfig } from '../support/cli.js';
import { addRoute, defineDestination } from '../support/destinations.js';
import { enqueueMany } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { oldMessage } from '../support/retention.js';

// each test has its own database
const db = testDatabase({ eachTestFrom: () => Promise.resolve() });

async function unroutedIds(): Promise<string[]> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT message_id AS id FROM ${db.quoted}.unrouted_messages ORDER BY 1`,
  );
  return rows.map(({ id }) => id);
}

const yesterday = new Date(Date.now() - 86_400_000);

it.each<[string, UnroutedFilter, number[]]>([
  ['topic', { topic: 'cart.viewed' }, [1]],
  ['namespace', { namespace: 'shop' }, [1, 2]],
  ['tenant', { tenantId: 'acme' }, [2, 3]],
  ['time', { before: yesterday }, [0]],
  ['namespace and tenant', { namespace: 'shop', tenantId: 'acme' }, [2]],
])('W8 a %s finds and discards only what it names', async (_, filter, wanted) => {
  const old = await oldMessage(db, 30);
  await db.query(`INSERT INTO ${db.quoted}.unrouted_messages VALUES ($1)`, [old]);
  const sent = await enqueueMany(db, db.pool, [
    { topic: 'cart.viewed', namespace: 'shop', tenantId: 'beta' },
    { topic: 'order.placed', namespace: 'shop', tenantId: 'acme' },
    { topic: 'order.placed', tenantId: 'acme' },
  ]);
  const ids = [old, ...sent.map(({ id }) => id)];
  const { count, groups } = await listUnrouted(openDatabase(db), filter);
  expect(count).toBe(wanted.length);
  expect(groups.map(({ example }) => example).toSorted()).toEqual(wanted.map((n) => ids[n]));
  expect(await discardUnrouted(openDatabase(db), filter, 'ann')).toBe(wanted.length);
  expect(await unroutedIds()).toEqual(ids.filter((__, n) => !wanted.includes(n)));
});

it('W8 a route of another tenant selects nothing', async () => {
  await enqueueMany(db, db.pool, [
    { topic: 'late', tenantId: 'acme' },
    { topic: 'late', tenantId: 'beta' },
    { topic: 'late' },
  ]);
  await addRoute(db, await defineDestination(db, 'late'), 'late', { tenantId: 'beta' });
  const { groups } = await listUnrouted(openDatabase(db));
  expect(groups.map(({ tenantId, hasRoute }) => [tenantId, hasRoute])).toEqual([
    ['acme', false],
    ['beta', true],
    [null, false],
  ]);
  expect(await routeUnrouted(openDatabase(db), 'ann')).toBe(1);
  expect(await unroutedIds()).toHaveLength(2);
});

it('W8 a discard skips a message that is being routed, and does not wait for it', async () => {
  const [routing] = await enqueueMany(db, db.pool, [{ topic: 'late' }]);
  await enqueueMany(db, db.pool, [{ topic: 'late' }]);
  await addRoute(db, await defineDestination(db, 'late'), 'late');
  const [router, operator] = [await db.connect(), await db.connect()];
  await router.query('BEGIN');
  await router.query(`SELECT ${db.quoted}.route_unrouted(NULL, 1, 'ann')`);
  await operator.query(`SET lock_timeout = '5s'`);
  const { rows } = await operator.query(`SELECT discarded FROM ${db.quoted}.discard_unrouted()`);
  expect(rows).toEqual([{ discarded: 1 }]);
  await router.query('ROLLBACK');
  expect(await unroutedIds()).toEqual([routing?.id]);
});

it('W8 N3 nothing is routed without a confirmation', async () => {
  await enqueueMany(db, db.pool, [{ topic: 'late' }]);
  await addRoute(db, await defineDestination(db, 'late'), 'late');
  const environment = environmentOf(db);
  expect(await cli(['unrouted', 'route'], { environment })).toMatchObject({ code: 4 });
  expect(await unroutedIds()).toHaveLength(1);
});

it('N13 the command drain reports their number, and where to look', async () => {
  await enqueueMany(db, db.pool, [{ topic: 'not.routed' }]);
  const config = writeConfig(`{ destinations: { here: handler(() => {}) }, routes: [] }`);
  const drained = await cli(['drain', '--config', config], { environment: environmentOf(db) });
  expect(drained).toMatchObject({
    code: 0,
    stdout: 'processed 0, succeeded 0, failed 0, released 0, unrouted 1\n',
    stderr: expect.stringContaining(
      'messages without a route: 1; waybill unrouted list shows their topics',
    ) as string,
  });
});
