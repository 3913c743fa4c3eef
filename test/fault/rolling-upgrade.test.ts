// A rolling upgrade as docs/operate/upgrade.md describes it, with real processes of two versions: the schema first,
// then one relay after the other, under load, and back again. The newer version is this one with a higher number and
// one more migration. Incompatible versions are refused; a migration that wrongly claims to be compatible is noticed.

import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { expect, it, onTestFinished } from 'vitest';

import { version } from '../../src/core/version.js';
import { waitFor } from '../support/wait.js';
import { World } from './order/world.js';
import { Checkout, laterVersion } from './upgrade/checkout.js';
import { complaints, Load } from './upgrade/load.js';

const present = new Checkout(process.cwd());

function later(migration: string): Checkout {
  const checkout = laterVersion('99.0.0', migration);
  onTestFinished(() => checkout.remove());
  return checkout;
}

/** The schema, the relays and the producers are all of the present version. */
async function worldBefore(): Promise<World> {
  const world = await World.start({
    mostProducers: 3,
    plain: true,
    migrate: async (url) =>
      expect(await present.waybill(url, ['migrate', 'up'])).toMatchObject({ code: 0 }),
  });
  onTestFinished(() => world.remove());
  return world;
}

const wrong = (load: Load) =>
  load.verdicts.flatMap((verdict) => verdict.wrong.map((line) => `${verdict.seed}: ${line}`));

it('loses nothing and keeps the order of keys with relays of two versions on one schema, there and back', async () => {
  const next = later(
    `-- Works with relays of Waybill ${version} and newer.\nALTER TABLE deliveries ADD COLUMN note text;\n`,
  );
  const world = await worldBefore();
  const [oldA, oldB, oldC] = world.relays;
  if (!oldA || !oldB || !oldC) throw new Error('there are three relays');
  const load = new Load(world);
  await load.deliversBy([oldA, oldB, oldC]);

  expect(await next.waybill(world.server.url, ['migrate', 'up'])).toMatchObject({ code: 0 });
  await load.deliversBy([oldA, oldB, oldC]);

  const newA = world.addRelay('new-a', 300, next.root);
  await newA.start();
  expect(await oldA.stop()).toBe(0);
  world.produceWith(next.root);
  await load.deliversBy([newA], [oldB, oldC]);

  const newB = world.addRelay('new-b', 25, next.root);
  await newB.start();
  const held = await world.sink.trap((name) => [oldB.name, oldC.name].includes(name), 60_000);
  const [victim, other] = held?.relay === oldB.name ? [oldB, oldC] : [oldC, oldB];
  expect(held?.relay, 'the victim holds messages').toBe(victim.name);
  await victim.kill();
  held?.answer();
  expect(await other.stop()).toBe(0);
  await load.deliversBy([newA, newB]);

  // the way back: the schema stays
  const again = world.addRelay('again');
  await again.start();
  world.produceWith(undefined);
  expect(await Promise.all([newA.stop(), newB.stop()])).toEqual([0, 0]);
  await load.deliversBy([again]);

  await load.end();
  const { verdicts } = load;
  expect(wrong(load)).toEqual([]);
  expect(complaints(world)).toEqual([]);
  expect(world.relays.flatMap(({ troubles }) => troubles)).toEqual([]);
  const sum = (count: (verdict: (typeof verdicts)[number]) => number) =>
    verdicts.reduce((total, verdict) => total + count(verdict), 0);
  const seen = {
    seeds: verdicts.length,
    committed: sum(({ committed }) => committed),
    repeated: sum(({ received, arrived }) => received - arrived),
    dead: sum(({ dead }) => dead),
  };
  console.log('rolling upgrade', seen);
  expect(seen.committed).toBeGreaterThan(200);
  expect(seen.repeated).toBeGreaterThan(0);
}, 240_000);

it('incompatible combinations are refused: a relay newer than the schema, a migration while older relays run, and older relays after it', async () => {
  const world = await worldBefore();
  const { url } = world.server;
  const next = later(
    '-- Works with relays of Waybill 99.0.0 and newer.\nALTER TABLE deliveries ADD COLUMN note text;\n',
  );
  await expect(world.addRelay('too-new', 25, next.root).start()).rejects.toThrow(
    /the schema "outbox" is older than Waybill .*: run npx waybill migrate up with this version first/,
  );

  const refused = await next.waybill(url, ['migrate', 'up']);
  expect(refused.code).toBe(4);
  expect(refused.stderr).toContain(
    `9000_later.sql works with relays of Waybill 99.0.0 and newer, and older ones are running: relay-a-1 (${version}), relay-b-1 (${version}), relay-c-1 (${version})`,
  );
  const touched = `SELECT FROM outbox.applied_files WHERE version <> '${version}'`;
  expect(await world.query(touched)).toEqual([]);

  await Promise.all(world.relays.map((relay) => relay.stop()));
  expect(await next.waybill(url, ['migrate', 'up'])).toMatchObject({ code: 0 });
  await expect(world.addRelay('too-old').start()).rejects.toThrow(
    `the schema outbox works with relays of Waybill 99.0.0 and newer, and this relay is Waybill ${version}: upgrade it`,
  );
  await world.addRelay('later', 25, next.root).start();
}, 240_000);

it('a migration that claims to be compatible, but changes the arguments of a function in use, is noticed', async () => {
  const world = await worldBefore();
  const next = later(
    `-- Works with relays of Waybill ${version} and newer.\nDROP FUNCTION reap;\n`,
  );
  const file = path.join(next.directory, 'dist/database/sql-texts.js');
  const changed = readFileSync(file, 'utf8').replace(
    'FUNCTION reap(p_max_leases int DEFAULT 100)',
    'FUNCTION reap(p_max_leases int, p_relay_id uuid)',
  );
  writeFileSync(file, changed);
  expect(complaints(world)).toEqual([]);
  await next.waybill(world.server.url, ['migrate', 'up']);
  await waitFor(() => complaints(world).some((line) => /relay-.*does not exist/.test(line)), {
    what: 'a relay to complain',
  });
}, 240_000);
