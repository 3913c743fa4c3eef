// A rolling upgrade as docs/deployment.md tells it, on real processes of two versions: the schema first, then relay
// after relay, under load all the while, and back again. The version before is an earlier commit of this repository.
// Versions that do not fit are refused; and one that says that it fits, and does not, is noticed by the same judge.

import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';

import { isNewer, version } from '../../src/version.js';
import { waitFor } from '../support/wait.js';
import { World } from './order/world.js';
import { Checkout, checkOut, findBaseline, laterVersion } from './upgrade/checkout.js';
import { complaints, Load } from './upgrade/load.js';

const commit = findBaseline();
const present = new Checkout(process.cwd());
let before: Checkout;

/** The schema, the relays and the producers are all of the version before. */
async function worldBefore(): Promise<World> {
  const world = await World.start({
    root: before.root,
    mostProducers: 3,
    migrate: async (url) =>
      expect(await before.waybill(url, ['migrate', 'up'])).toMatchObject({ code: 0 }),
  });
  onTestFinished(() => world.remove());
  return world;
}

const wrong = (load: Load) =>
  load.verdicts.flatMap((verdict) => verdict.wrong.map((line) => `${verdict.seed}: ${line}`));

describe.skipIf(commit === undefined)('a rolling upgrade', () => {
  beforeAll(() => {
    before = checkOut(commit ?? '');
  }, 60_000);
  afterAll(() => before.remove());

  it('loses nothing and keeps the order of keys with relays of two versions on one schema, there and back', async () => {
    const world = await worldBefore();
    const [oldA, oldB, oldC] = world.relays;
    if (!oldA || !oldB || !oldC) throw new Error('there are three relays');
    const load = new Load(world);
    await load.deliversBy([oldA, oldB, oldC]);

    expect(await present.waybill(world.server.url, ['migrate', 'up'])).toMatchObject({ code: 0 });
    await load.deliversBy([oldA, oldB, oldC]);

    const newA = world.addRelay('new-a', 300);
    await newA.start();
    expect(await oldA.stop()).toBe(0);
    world.produceWith(undefined);
    await load.deliversBy([newA], [oldB, oldC]);

    const newB = world.addRelay('new-b');
    await newB.start();
    const held = await world.sink.trap((name) => [oldB.name, oldC.name].includes(name), 20_000);
    const [victim, other] = held?.relay === oldB.name ? [oldB, oldC] : [oldC, oldB];
    expect(held?.relay, 'the victim holds messages').toBe(victim.name);
    await victim.kill();
    held?.answer();
    expect(await other.stop()).toBe(0);
    await load.deliversBy([newA, newB]);

    // back again: the schema stays
    const again = world.addRelay('again', 25, before.root);
    await again.start();
    world.produceWith(before.root);
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
  }, 120_000);

  it('what does not fit is refused: a relay that is newer than the schema, a migration while older relays run, and those once it has run', async () => {
    const world = await worldBefore();
    const { url } = world.server;
    const old = before.version;
    expect(isNewer(version, old), 'each knows which is older').toBe(true);
    await expect(world.addRelay('too-new').start()).rejects.toThrow(
      /the schema "outbox" is older than Waybill .*: run waybill migrate up with this version first/,
    );

    const later = laterVersion(
      '99.0.0',
      '-- Works with relays of Waybill 99.0.0 and newer.\nDROP FUNCTION settle;\n',
    );
    onTestFinished(() => later.remove());
    const refused = await later.waybill(url, ['migrate', 'up']);
    expect(refused.code).toBe(4);
    expect(refused.stderr).toContain(
      `9000_later.sql works with relays of Waybill 99.0.0 and newer, and older ones are running: relay-a-1 (${old}), relay-b-1 (${old}), relay-c-1 (${old})`,
    );
    const touched = `SELECT FROM outbox.applied_files WHERE version <> '${old}'`;
    expect(await world.query(touched)).toEqual([]);

    await Promise.all(world.relays.map((relay) => relay.stop()));
    expect(await later.waybill(url, ['migrate', 'up'])).toMatchObject({ code: 0 });
    const refusal = (its: string) =>
      `the schema outbox works with relays of Waybill 99.0.0 and newer, and this relay is Waybill ${its}: upgrade it`;
    await expect(world.addRelay('too-old', 25, before.root).start()).rejects.toThrow(refusal(old));
    await expect(world.addRelay('too-old-too').start()).rejects.toThrow(refusal(version));
    await world.addRelay('later', 25, later.root).start();
  }, 120_000);

  it('a migration that says that the version before works with it, and changes the arguments of what that calls, is noticed', async () => {
    const world = await worldBefore();
    const later = laterVersion(
      '99.0.0',
      `-- Works with relays of Waybill ${before.version} and newer.\nDROP FUNCTION reap;\n`,
    );
    const file = path.join(later.directory, 'sql', 'functions', 'settle.sql');
    const changed = readFileSync(file, 'utf8').replace(
      'FUNCTION reap(p_max_leases int DEFAULT 100)',
      'FUNCTION reap(p_max_leases int, p_relay_id uuid)',
    );
    writeFileSync(file, changed);
    onTestFinished(() => later.remove());
    expect(complaints(world)).toEqual([]);
    await later.waybill(world.server.url, ['migrate', 'up']);
    await waitFor(() => complaints(world).some((line) => /relay-.*does not exist/.test(line)), {
      what: 'a relay to complain',
    });
  }, 120_000);
});
