// Which declaration counts: those of drains and of relays without a heartbeat, after an outage of the database, and
// after its clock ran ahead.

import { describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { letTimePass, letTimePassFor, routesOf, settingsOf } from '../support/owners.js';
import { testDatabase } from '../support/postgres.js';
import { numbered, places, send, startRelay } from '../support/relay.js';
import type { RelaySettings } from '../support/relay.js';
import { apply, declarer, drain, tend, version } from '../support/versions.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase({ eachTestFrom: async () => {} });

/** The route "pay" belongs to a rollout. */
const withRollout: RelaySettings = {
  ...version(3, 'x'),
  routes: [
    { topic: 'x', to: 'crm' },
    { topic: 'pay', to: 'crm', rollout: 'r' },
  ],
};
const bothRoutes = ['shop: pay -> crm', 'shop: x -> crm'];

describe('a drain', () => {
  it('M2 of an old version does not change settings and deliveries of a running relay', async () => {
    const failing = handler(
      () => {
        throw new Error('no');
      },
      { retry: { maxAttempts: 10, baseMs: 500, maxMs: 600_000 } },
    );
    await startRelay(db, { ...version(10, 'x'), destinations: { crm: failing } });
    await send(db, numbered('x', 1));
    await waitFor(
      async () => {
        const { rows } = await db.query<{ tries: number }>(
          `SELECT tries FROM ${db.quoted}.deliveries`,
        );
        return (rows[0]?.tries ?? 0) >= 2;
      },
      { what: 'two tries', timeoutMs: 15_000 },
    );
    await drain(db, version(2, 'x'));
    expect(await settingsOf(db, 'crm')).toMatchObject({ max_attempts: 10 });
    expect(await places(db, 'crm')).toMatchObject({ dead: 0 });
  });

  it('M2 does not change what waybill apply declared, and adds what it lacks', async () => {
    await apply(db, version(5, 'x'), { prune: true });
    await drain(db, version(2, 'x', 'y'));
    expect(await settingsOf(db, 'crm')).toMatchObject({ max_attempts: 5 });
    expect(await routesOf(db)).toEqual(['shop: x -> crm', 'shop: y -> crm']);
  });

  it('M2 changes settings that no running relay and no waybill apply declares', async () => {
    await drain(db, version(3, 'x'));
    await drain(db, version(5, 'x'));
    expect(await settingsOf(db, 'crm')).toMatchObject({ max_attempts: 5 });
  });

  it('M2 does not change settings while it routes earlier messages', async () => {
    await startRelay(db, version(10));
    await send(db, numbered('x', 1));
    await drain(db, version(2, 'x'));
    expect(await settingsOf(db, 'crm')).toMatchObject({ max_attempts: 10 });
  });

  it('M2 removes no route of a rollout, at any percentage', async () => {
    await drain(db, withRollout);
    await drain(db, version(3, 'x'));
    expect(await routesOf(db)).toEqual(bothRoutes);
    await db.query(`SELECT ${db.quoted}.set_rollout('r', 50, false, 'ops')`);
    await drain(db, version(3, 'x'));
    expect(await routesOf(db)).toEqual(bothRoutes);
  });
});

describe('a clock that ran ahead', () => {
  const ahead = (...columns: string[]) =>
    db.query(
      `UPDATE ${db.quoted}.declarations SET ${columns.map((each) => `${each} = ${each} + interval '1 day'`).join(', ')}`,
    );

  it('M2 a relay that started then does not keep its settings and routes', async () => {
    const early = await startRelay(db, version(3, 'a', 'gone'));
    await ahead('made_at', 'seen_at');
    await early.stop();
    const { relay } = await startRelay(db, version(5, 'a'));
    expect(await settingsOf(db, 'crm')).toMatchObject({ max_attempts: 5 });
    await letTimePassFor(db, '11 minutes', [relay.id]);
    await tend(db, { relay });
    expect(await routesOf(db)).toEqual(['shop: a -> crm']);
  });

  it('M2 a running relay confirms, and removes after ten minutes as usual', async () => {
    await (await startRelay(db, version(3, 'a', 'gone'))).stop();
    const { relay } = await startRelay(db, version(5, 'a'));
    await ahead('made_at', 'seen_at');
    await relay.tendDefinitions();
    await letTimePassFor(db, '11 minutes', [relay.id]);
    await tend(db, { relay });
    expect(await routesOf(db)).toEqual(['shop: a -> crm']);
  });

  it('M2 a relay that was killed then blocks neither prune nor remove_application', async () => {
    const killed = declarer(db, version(3, 'gone'));
    await killed.declare();
    await killed.beat();
    await ahead('made_at', 'seen_at');
    await db.query(`UPDATE ${db.quoted}.relays SET heartbeat_at = heartbeat_at + interval '1 day'`);
    await apply(db, version(5, 'a'), { prune: true });
    expect(await routesOf(db)).toEqual(['shop: a -> crm']);
    expect(await settingsOf(db, 'crm')).toMatchObject({ max_attempts: 5 });
    await db.query(`SELECT ${db.quoted}.remove_application('shop')`);
    expect(await routesOf(db)).toEqual([]);
  });
});

describe('without a heartbeat', () => {
  it('M2 no route disappears when relays reach the database again after an outage', async () => {
    const one = await startRelay(db, version(3, 'a', 'old'));
    const two = await startRelay(db, version(3, 'a'));
    await letTimePassFor(db, '30 minutes', [one.relay.id, two.relay.id]);
    await letTimePass(db, '11 minutes');
    await two.relay.tendDefinitions();
    expect(await routesOf(db)).toEqual(['shop: a -> crm', 'shop: old -> crm']);
  });

  it('M2 an outage of eight minutes restarts the ten minutes of a relay', async () => {
    const one = await startRelay(db, version(3, 'a', 'old'));
    const two = await startRelay(db, version(3, 'a'));
    await letTimePassFor(db, '30 minutes', [two.relay.id]);
    await one.stop();
    await letTimePass(db, '8 minutes');
    await two.relay.tendDefinitions();
    expect(await routesOf(db)).toEqual(['shop: a -> crm', 'shop: old -> crm']);
  });

  it('M2 a relay with heartbeats keeps its routes, although it confirms late', async () => {
    const one = await startRelay(db, version(3, 'a', 'old'));
    const two = await startRelay(db, version(3, 'a'));
    await letTimePassFor(db, '30 minutes', [two.relay.id]);
    await db.query(`UPDATE ${db.quoted}.relays SET heartbeat_at = clock_timestamp()`);
    await tend(db, two);
    expect(await routesOf(db)).toEqual(['shop: a -> crm', 'shop: old -> crm']);
    await one.stop();
    await tend(db, two);
    expect(await routesOf(db)).toEqual(['shop: a -> crm']);
  });

  it('M2 a late heartbeat removes no route of a rollout', async () => {
    const plain = await startRelay(db, version(3, 'x'));
    const rolled = await startRelay(db, withRollout);
    await letTimePassFor(db, '30 minutes', [plain.relay.id, rolled.relay.id]);
    await db.query(
      `UPDATE ${db.quoted}.relays SET heartbeat_at = clock_timestamp() - interval '16 seconds' WHERE id = $1`,
      [rolled.relay.id],
    );
    await tend(db, plain);
    expect(await routesOf(db)).toEqual(bothRoutes);
  });
});

it(
  'M2 the check of every minute stays short with 10,000 routes',
  { timeout: 120_000 },
  async () => {
    const routes = Array.from({ length: 10_000 }, (_, index) => ({
      topic: 'order.*',
      to: 'crm',
      tenantId: `tenant-${index}`,
    }));
    const relay = declarer(db, { ...version(3), routes });
    await relay.declare();
    const before = Date.now();
    expect(await tend(db, relay)).toEqual([]);
    const tookMs = Date.now() - before;
    expect(tookMs).toBeLessThan(5000);
  },
);
