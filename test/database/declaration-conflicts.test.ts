// Relays of one application that disagree: an old relay that comes back, one whose configuration is refused, one that
// starts during `apply --prune`, and one that lacks a route of a rollout.

import { describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import { letTimePass, letTimePassFor, routesOf, settingsOf } from '../support/owners.js';
import { testDatabase } from '../support/postgres.js';
import { makeRelay, startRelay } from '../support/relay.js';
import type { RelaySettings } from '../support/relay.js';
import { apply, declarer, drain, version } from '../support/versions.js';

const db = testDatabase({ eachTestFrom: async () => {} });

describe('an old relay that was cut off', () => {
  it.each(['20 minutes', '2 hours'])(
    'M2 does not count as the newest after %s',
    async (interval) => {
      const old = declarer(db, version(3, 'a', 'old'));
      await old.declare();
      await letTimePass(db, interval);
      const next = declarer(db, version(5, 'a'));
      await next.declare();
      await next.beat();
      await old.tend();
      await old.beat();
      expect(await settingsOf(db, 'crm')).toMatchObject({ max_attempts: 5 });
      await old.tend();
      expect(await settingsOf(db, 'crm')).toMatchObject({ max_attempts: 5 });
      expect(await routesOf(db)).toEqual(['shop: a -> crm', 'shop: old -> crm']);
    },
  );
});

describe('a destination that another application defines differently', () => {
  const to = (application: string, path: string): RelaySettings => ({
    application,
    destinations: {
      crm: webhook({ url: `http://127.0.0.1:9/${path}`, allowedNetworks: ['127.0.0.0/8'] }),
    },
    routes: [],
  });
  const without: RelaySettings = { application: 'shop', destinations: {}, routes: [] };

  it('M2 is refused for its own instance, and not for another one of its application', async () => {
    await apply(db, to('billing', 'one'));
    const running = declarer(db, to('shop', 'one'));
    await running.declare();
    await running.beat();
    await expect(drain(db, to('shop', 'two'))).rejects.toThrow(
      /"crm" is defined by the application "billing" and by the application "shop", with different settings/,
    );
    await running.signOff();
    await declarer(db, without).declare();
    await running.tend();
  });
});

describe('a relay that starts while waybill apply prunes', () => {
  it('M2 keeps its declaration before its first heartbeat', async () => {
    const starting = declarer(db, version(3, 'a'));
    await starting.declare();
    await apply(db, version(5, 'b'), { prune: true });
    expect(await routesOf(db)).toEqual(['shop: a -> crm', 'shop: b -> crm']);
    await starting.beat();
    await apply(db, version(5, 'b'), { prune: true });
    expect(await routesOf(db)).toEqual(['shop: a -> crm', 'shop: b -> crm']);
    await starting.signOff();
    await apply(db, version(5, 'b'), { prune: true });
    expect(await routesOf(db)).toEqual(['shop: b -> crm']);
  });

  it('M2 loses it when the start fails', async () => {
    const failing = {
      ...handler(() => undefined),
      open: () => Promise.reject(new Error('no broker')),
    };
    const { relay } = makeRelay(db, {
      application: 'shop',
      destinations: { crm: failing },
      routes: [{ topic: 'a', to: 'crm' }],
    });
    await expect(relay.start()).rejects.toThrow('no broker');
    await apply(db, version(5, 'b'), { prune: true });
    expect(await routesOf(db)).toEqual(['shop: b -> crm']);
  });
});

describe('a configuration that lacks a route of a rollout', () => {
  it('M2 is a problem of its relay, which continues with everything else', async () => {
    const rolled: RelaySettings = {
      ...version(3, 'x', 'gone'),
      routes: [
        { topic: 'x', to: 'crm' },
        { topic: 'gone', to: 'crm' },
        { topic: 'pay', to: 'crm', rollout: 'r' },
      ],
    };
    const old = await startRelay(db, rolled);
    await db.query(`SELECT ${db.quoted}.set_rollout('r', 50, false, 'ops')`);
    const next = await startRelay(db, version(5, 'x'));
    await old.stop();
    await letTimePassFor(db, '30 minutes', [next.relay.id]);
    await next.relay.tendDefinitions();
    const problem = /the route "pay" is gone and its rollout "r" stands at 50/;
    expect(await next.event('trouble')).toMatchObject({
      what: 'tend definitions',
      error: expect.stringMatching(problem) as string,
    });
    expect(await problems(next.relay.id)).toEqual([expect.stringMatching(problem)]);
    expect(await routesOf(db)).toEqual(['shop: pay -> crm', 'shop: x -> crm']);
    await db.query(`SELECT ${db.quoted}.set_rollout('r', 0, false, 'ops')`);
    await next.relay.tendDefinitions();
    expect(await problems(next.relay.id)).toEqual([]);
    expect(await routesOf(db)).toEqual(['shop: x -> crm']);
  });
});

async function problems(relayId: string): Promise<string[]> {
  const { rows } = await db.query<{ problems: string[] }>(
    `SELECT problems FROM ${db.quoted}.relays WHERE id = $1`,
    [relayId],
  );
  return rows[0]?.problems ?? [];
}
