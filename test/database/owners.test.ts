// Destinations and routes belong to an owner: an application, or SQL. Starting a relay changes only those of its own
// application, and two owners that define one destination differently are refused.

import { describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import { tendDefinitions } from '../../src/features/applications/database.js';
import { only } from '../support/only.js';
import { letTimePassFor, routesOf, settingsOf } from '../support/owners.js';
import { testDatabase } from '../support/postgres.js';
import { makeRelay, openDatabase, sendOne, startRelay, untilPlaces } from '../support/relay.js';
import type { RelaySettings } from '../support/relay.js';

const db = testDatabase({ eachTestFrom: async () => {} });

const nothing = () => handler(() => undefined);

/** An application with a handler for each name, and a route from the topic of that name. */
function app(application: string, ...names: string[]): RelaySettings {
  return { application, destinations: Object.fromEntries(names.map((name) => [name, nothing()])) };
}

const hook = (url: string) => webhook({ url, allowedNetworks: ['127.0.0.0/8'] });

async function isUnrouted(id: string): Promise<boolean> {
  const { rows } = await db.query<{ unrouted: boolean }>(
    `SELECT EXISTS (SELECT FROM ${db.quoted}.unrouted_messages WHERE message_id = $1) AS unrouted`,
    [id],
  );
  return only(rows).unrouted;
}

describe('two applications in one schema', () => {
  it('M2 a second application keeps the routes of the first, and both deliver', async () => {
    await startRelay(db, app('shop', 'orders'));
    await startRelay(db, app('billing', 'invoices'));
    expect(await routesOf(db)).toEqual(['billing: invoices -> invoices', 'shop: orders -> orders']);
    expect(await isUnrouted(await sendOne(db, { topic: 'orders' }))).toBe(false);
    await sendOne(db, { topic: 'invoices' });
    await untilPlaces(db, 'orders', { delivered: 1 });
    await untilPlaces(db, 'invoices', { delivered: 1 });
  });

  it('M2 routes defined in SQL stay when relays start and stop', async () => {
    await db.query(`SELECT ${db.quoted}.define_destination('worker')`);
    await db.query(`SELECT ${db.quoted}.define_route('work.*', 'worker')`);
    const relay = await startRelay(db, app('shop', 'orders'));
    await letTimePassFor(db, '1 hour', [relay.relay.id]);
    await tendDefinitions(openDatabase(db), relay.relay.id, 'test');
    expect(await routesOf(db, 'sql')).toEqual(['sql: work.* -> worker']);
    expect(await settingsOf(db, 'worker')).toMatchObject({ configured: true, owners: ['sql'] });
    expect(await isUnrouted(await sendOne(db, { topic: 'work.now' }))).toBe(false);
  });

  it('W1 a message that routes of two applications send to one destination is delivered once', async () => {
    const url = 'http://127.0.0.1:9/in';
    const settings = { destinations: { crm: hook(url) }, routes: [{ topic: 'x', to: 'crm' }] };
    await makeRelay(db, { application: 'shop', ...settings }).relay.drain(briefly);
    await makeRelay(db, { application: 'billing', ...settings }).relay.drain(briefly);
    expect(await routesOf(db)).toEqual(['billing: x -> crm', 'shop: x -> crm']);
    await sendOne(db, { topic: 'x' });
    await untilPlaces(db, 'crm', { waiting: 1 });
    expect(await settingsOf(db, 'crm')).toMatchObject({ owners: ['billing', 'shop'] });
  });

  it('M2 a living relay of another application is not reported as another configuration', async () => {
    const shop = await startRelay(db, app('shop', 'orders'));
    const billing = await startRelay(db, app('billing', 'invoices'));
    const another = await startRelay(db, app('billing', 'invoices', 'receipts'));
    expect(await another.event('other_configuration')).toMatchObject({
      relays: [billing.relay.name],
    });
    expect(shop.of('other_configuration')).toEqual([]);
  });
});

const briefly = { maxMs: 1000, maxMessages: 10 };

describe('one destination of two owners', () => {
  it('M2 functions of the same name are refused, with both owners and the remedy', async () => {
    await startRelay(db, app('shop', 'crm'));
    const second = makeRelay(db, app('billing', 'crm')).relay.start();
    await expect(second).rejects.toThrow(
      /the destination "crm" is defined by the application "shop" and by the application "billing", and its code cannot be compared: give it another name in one of them/,
    );
    expect(await routesOf(db, 'billing')).toEqual([]);
  });

  it('M2 webhooks with different addresses are refused, and those with the same settings are shared', async () => {
    const to = (url: string, application: string) =>
      makeRelay(db, { application, destinations: { crm: hook(url) } }).relay.drain(briefly);
    await to('http://127.0.0.1:9/one', 'shop');
    await expect(to('http://127.0.0.1:9/two', 'billing')).rejects.toThrow(
      /"crm" is defined by the application "shop" and by the application "billing", with different settings/,
    );
    await to('http://127.0.0.1:9/one', 'billing');
    expect(await settingsOf(db, 'crm')).toMatchObject({ owners: ['billing', 'shop'] });
    await expect(to('http://127.0.0.1:9/two', 'shop')).rejects.toThrow(/with different settings/);
  });

  it('M2 webhooks of which one has a breaker, or another rate, are refused', async () => {
    const to = (application: string, settings: object) =>
      makeRelay(db, {
        application,
        destinations: {
          crm: webhook({
            url: 'http://127.0.0.1:9/one',
            allowedNetworks: ['127.0.0.0/8'],
            ...settings,
          }),
        },
      }).relay;
    await to('shop', {}).drain(briefly);
    for (const settings of [{ breaker: {} }, { rate: { perSecond: 5 } }])
      await expect(to('billing', settings).drain(briefly)).rejects.toThrow(
        /"crm" is defined by the application "shop" and by the application "billing", with different settings/,
      );
  });

  it('M2 a destination defined in SQL is refused to applications, and the reverse', async () => {
    await db.query(`SELECT ${db.quoted}.define_destination('worker')`);
    await expect(makeRelay(db, app('shop', 'worker')).relay.start()).rejects.toThrow(
      /"worker" is defined by SQL and by the application "shop".*remove_destination\('worker'\)/,
    );
    await db.query(`SELECT ${db.quoted}.remove_destination('worker')`);
    await startRelay(db, app('shop', 'worker'));
    await expect(db.query(`SELECT ${db.quoted}.define_destination('worker')`)).rejects.toThrow(
      /"worker" is defined by the application "shop" and by SQL/,
    );
  });

  it('M2 a rollout belongs to one application', async () => {
    const rolled = (application: string, topic: string): RelaySettings => ({
      application,
      destinations: { [topic]: nothing() },
      routes: [{ topic, to: topic, rollout: 'move' }],
    });
    await startRelay(db, rolled('shop', 'orders'));
    await expect(makeRelay(db, rolled('billing', 'invoices')).relay.start()).rejects.toThrow(
      /"move.shadow" is defined by the application "shop" and by the application "billing"/,
    );
  });

  it('M2 the definitions of an application that is gone for good can be removed', async () => {
    const shop = await startRelay(db, app('shop', 'crm'));
    const remove = () => db.query(`SELECT ${db.quoted}.remove_application('shop') AS changes`);
    await expect(remove()).rejects.toThrow(/its relay .* is running; stop its relays first/);
    await shop.stop();
    expect(only((await remove()).rows)).toEqual({
      changes: [
        { change: 'remove', route: { to: 'crm', topic: 'crm' } },
        { change: 'remove', destination: 'crm' },
      ],
    });
    await startRelay(db, app('billing', 'crm'));
    await expect(remove()).rejects.toThrow(/application "shop" does not exist/);
  });
});

describe('routes in SQL', () => {
  const defineRoute = (topic: string | null, destination: string) =>
    db.query<{ added: boolean }>(`SELECT ${db.quoted}.define_route($1, $2) AS added`, [
      topic,
      destination,
    ]);

  it('M2 are added once, removed once, and recorded', async () => {
    await db.query(`SELECT ${db.quoted}.define_destination('worker')`);
    expect(only((await defineRoute('a', 'worker')).rows).added).toBe(true);
    expect(only((await defineRoute('a', 'worker')).rows).added).toBe(false);
    const remove = () =>
      db.query<{ removed: boolean }>(`SELECT ${db.quoted}.remove_route('a', 'worker') AS removed`);
    expect(only((await remove()).rows).removed).toBe(true);
    expect(only((await remove()).rows).removed).toBe(false);
    const { rows } = await db.query<{ subject: unknown }>(
      `SELECT subject FROM ${db.quoted}.operator_actions WHERE action = 'change_routes' ORDER BY id`,
    );
    const routes = [{ topic: 'a', to: 'worker' }];
    expect(rows.map((row) => row.subject)).toEqual([
      { owner: 'sql', added: routes },
      { owner: 'sql', removed: routes },
    ]);
  });

  it('M2 may lead to the destination of an application, which does not remove them', async () => {
    const relay = await startRelay(db, app('shop', 'orders'));
    await defineRoute('extra', 'orders');
    await letTimePassFor(db, '1 hour', [relay.relay.id]);
    await tendDefinitions(openDatabase(db), relay.relay.id, 'test');
    expect(await routesOf(db)).toEqual(['shop: orders -> orders', 'sql: extra -> orders']);
  });

  it('M2 stay when remove_destination is called for a destination of an application', async () => {
    await startRelay(db, app('shop', 'orders'));
    await defineRoute('extra', 'orders');
    const { rows } = await db.query<{ removed: boolean }>(
      `SELECT ${db.quoted}.remove_destination('orders') AS removed`,
    );
    expect(only(rows).removed).toBe(false);
    expect(await routesOf(db)).toEqual(['shop: orders -> orders', 'sql: extra -> orders']);
  });

  it('M2 a malformed topic and an unknown destination are refused', async () => {
    await db.query(`SELECT ${db.quoted}.define_destination('worker')`);
    await expect(defineRoute('a b', 'worker')).rejects.toThrow(
      'topic is "a b": give an exact topic, user.* or *',
    );
    await expect(defineRoute(null, 'worker')).rejects.toThrow('topic is null');
    await expect(defineRoute('a', 'nowhere')).rejects.toThrow(
      'destination "nowhere" does not exist',
    );
  });
});

it.each(['sql', 'endpoints', 'a b', ''])(
  'N10 an application cannot be called %j',
  async (application) => {
    expect(() => makeRelay(db, app(application, 'a'))).toThrow(/config.application is/);
    await expect(
      db.query(`SELECT ${db.quoted}.apply_definitions('{"destinations": [], "routes": []}', $1)`, [
        application,
      ]),
    ).rejects.toThrow(/p_application is/);
  },
);
