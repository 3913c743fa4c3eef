// Removed endpoints are deleted when nothing refers to them any more, and their names can be used again.

import { beforeEach, describe, expect, it } from 'vitest';

import { addEndpoint, endpointsOf } from '../support/endpoints.js';
import { destinationId } from '../support/listeners.js';
import { testDatabase } from '../support/postgres.js';
import { send } from '../support/relay.js';

const db = testDatabase();
const endpoints = endpointsOf(db);

/** An endpoint that was removed 40 days ago, and before the first day of messages. */
async function removedEndpoint(topic: string): Promise<{ name: string; id: number }> {
  const { name } = await addEndpoint(db, { url: 'https://example.com', topics: [topic] });
  const id = await destinationId(db, name);
  await send(db, [{ topic, key: 'a key' }]);
  await db.query(
    `INSERT INTO ${db.quoted}.lanes (destination_id, key_id, namespace) VALUES ($1, 1, 'default')`,
    [id],
  );
  await db.query(`DELETE FROM ${db.quoted}.deliveries`);
  await endpoints.remove(db.pool, { name });
  await db.query(
    `UPDATE ${db.quoted}.endpoints SET removed_at = now() - interval '40 days' WHERE destination_id = $1`,
    [id],
  );
  return { name, id };
}

async function prune(): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT ${db.quoted}.prune_endpoints() AS count`,
  );
  return rows[0]?.count ?? -1;
}

/** The tables that still have rows of this destination. */
async function leftIn(id: number): Promise<string[]> {
  const tables = ['lanes', 'lane_tickets', 'listeners', 'destination_owners', 'endpoints'];
  const left: string[] = [];
  for (const [table, column] of [
    ...tables.map((name) => [name, 'destination_id']),
    ['destinations', 'id'],
  ]) {
    const { rowCount } = await db.query(
      `SELECT FROM ${db.quoted}.${table} WHERE ${column} = ${id}`,
    );
    if (rowCount !== 0) left.push(table ?? '');
  }
  return left;
}

describe('an endpoint that was removed long ago', () => {
  beforeEach(() => db.query(`DELETE FROM ${db.quoted}.deliveries`));

  it('is deleted with everything of it, and its name can be used again', async () => {
    const { name, id } = await removedEndpoint('pruned.once');
    expect(await leftIn(id)).toContain('lanes');
    expect(await prune()).toBe(1);
    expect(await leftIn(id)).toEqual([]);
    await addEndpoint(db, { name, url: 'https://example.com', topics: ['pruned.again'] });
    expect(await prune()).toBe(0);
  });

  it('stays while a dead letter, a delivery or a day of its record is left', async () => {
    const { id } = await removedEndpoint('pruned.never');
    const [message] = await send(db, [{ topic: 'pruned.other' }]);
    await db.query(
      `INSERT INTO ${db.quoted}.deliveries (message_id, destination_id, available_at, bytes, namespace)
       VALUES ($1, $2, now(), 1, 'default')`,
      [message, id],
    );
    expect(await prune()).toBe(0);
    await db.query(`DELETE FROM ${db.quoted}.deliveries`);
    await db.query(`SELECT ${db.quoted}.make_partitions(1, (now() - interval '45 days')::date)`);
    expect(await prune()).toBe(0);
    expect(await leftIn(id)).toContain('endpoints');
  });
});

it('counts of tenants whose period ended more than a day ago are deleted', async () => {
  await db.query(
    `INSERT INTO ${db.quoted}.tenant_limits (tenant_id, action, since, count)
     VALUES ('gone', 'test', now() - interval '25 hours', 3), ('active', 'test', now(), 3)`,
  );
  await prune();
  const { rows } = await db.query(`SELECT tenant_id FROM ${db.quoted}.tenant_limits`);
  expect(rows).toEqual([{ tenant_id: 'active' }]);
});
