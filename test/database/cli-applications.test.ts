// waybill status shows which application and version declares what.

import { expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import { cliAs, json } from '../support/cli.js';
import { addEndpoint } from '../support/endpoints.js';
import { testDatabase } from '../support/postgres.js';
import { startRelay } from '../support/relay.js';

const db = testDatabase();
const several = testDatabase();
const cliOn = cliAs('test_control');

const shop = (version: string, ...topics: string[]) => ({
  application: 'shop',
  version,
  destinations: { orders: handler(() => undefined) },
  routes: topics.map((topic) => ({ topic, to: 'orders' })),
  relay: { name: `relay-${version}` },
});

it('W5 M2 status shows the declarations, the destinations and the routes of each application', async () => {
  await db.query(`SELECT ${db.quoted}.define_destination('worker')`);
  await db.query(`SELECT ${db.quoted}.define_route('work', 'worker')`);
  const old = await startRelay(db, shop('1.4', 'kept', 'dropped'));
  await startRelay(db, shop('1.5', 'kept'));
  const during = await cliOn(db, ['status']);
  expect(during.stderr).toContain(
    'warning: relays of the application shop run with different configurations',
  );
  await old.stop();
  const status = json(await cliOn(db, ['status', '--json'])) as { applications: unknown };
  const by = ['relay-1.5'];
  expect(status.applications).toEqual([
    {
      name: 'shop',
      declarations: [{ by: 'relay-1.5', version: '1.5', since: expect.any(String) as string }],
      destinations: [{ name: 'orders', by }],
      routes: [
        { topic: 'dropped', to: 'orders', by: [] },
        { topic: 'kept', to: 'orders', by },
      ],
    },
    {
      name: 'sql',
      declarations: [],
      destinations: [{ name: 'worker', by: [] }],
      routes: [{ topic: 'work', to: 'worker', by: [] }],
    },
  ]);
  const { stdout } = await cliOn(db, ['status']);
  expect(stdout).toMatch(
    /shop +relay-1\.5 \(1\.5\) +dropped -> orders \(no longer declared\), kept/,
  );
  expect(stdout).toMatch(/sql +work -> worker *$/m);
});

it('W5 M2 status distinguishes applications that share a destination and a route', async () => {
  const shared = (application: string, ...topics: string[]) => ({
    application,
    destinations: { crm: webhook({ url: 'http://127.0.0.1:9', allowedNetworks: ['127.0.0.0/8'] }) },
    routes: topics.map((topic) => ({ topic, to: 'crm' })),
    relay: { name: `relay of ${application}` },
  });
  await addEndpoint(several, { url: 'https://example.com/hooks' });
  await startRelay(several, shared('billing', 'paid'));
  await startRelay(several, shared('support', 'paid', 'asked'));
  await several.query(`SELECT ${several.quoted}.apply_definitions($1, 'tool', '2.0')`, [
    { destinations: [], routes: [] },
  ]);
  const status = await cliOn(several, ['status', '--json']);
  const { applications } = json(status) as { applications: unknown };
  const of = (name: string, ...topics: string[]) => {
    const by = [`relay of ${name}`];
    return {
      name,
      declarations: [expect.objectContaining({ by: `relay of ${name}` })],
      destinations: [{ name: 'crm', by }],
      routes: topics.map((topic) => ({ topic, to: 'crm', by })),
    };
  };
  expect(applications).toEqual([
    of('billing', 'paid'),
    of('support', 'asked', 'paid'),
    {
      name: 'tool',
      declarations: [{ by: 'waybill apply', version: '2.0', since: expect.any(String) as string }],
      destinations: [],
      routes: [],
    },
  ]);
  expect((await cliOn(several, ['status'])).stderr).not.toContain('different configurations');
});
