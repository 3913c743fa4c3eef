// Rolling deploys: while relays of two versions of an application run, the definitions of both exist; definitions that no
// running relay has declared for ten minutes are removed. The tests let ten minutes pass by moving the declarations into
// the past.

import { describe, expect, it } from 'vitest';

import { confirmDeclaration } from '../../src/features/applications/database.js';
import { handler } from '../../src/destinations/handler.js';
import { letTimePass, letTimePassFor, routesOf, settingsOf } from '../support/owners.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase, startRelay } from '../support/relay.js';
import type { TestRelay } from '../support/relay.js';
import { apply, drain, tend, version } from '../support/versions.js';

const db = testDatabase({ eachTestFrom: async () => {} });

const old = version(3, 'kept', 'dropped');
const next = version(5, 'kept', 'added');

const all = ['shop: added -> crm', 'shop: dropped -> crm', 'shop: kept -> crm'];
const nextAlone = ['shop: added -> crm', 'shop: kept -> crm'];

/** Moves time on while these relays keep running. */
const later = (interval: string, ...running: TestRelay[]) =>
  letTimePassFor(
    db,
    interval,
    running.map(({ relay }) => relay.id),
  );

describe('a rolling deploy', () => {
  it('M2 no route disappears while a running relay declares it', async () => {
    const before = await startRelay(db, old);
    const after = await startRelay(db, next);
    expect(await routesOf(db)).toEqual(all);
    await later('1 hour', before, after);
    expect(await tend(db, after)).toEqual([]);
    expect(await tend(db, before)).toEqual([]);
    expect(await routesOf(db)).toEqual(all);
  });

  it('M2 a definition that the new version lacks is removed ten minutes after the last relay that declared it', async () => {
    const before = await startRelay(db, old);
    const after = await startRelay(db, next);
    await later('1 hour', before, after);
    await before.stop();
    await tend(db, after);
    expect(await routesOf(db)).toEqual(all);
    await later('9 minutes', after);
    await tend(db, after);
    expect(await routesOf(db)).toEqual(all);
    await later('2 minutes', after);
    expect(await tend(db, after)).toEqual([
      { change: 'remove', route: { topic: 'dropped', to: 'crm' } },
    ]);
    expect(await routesOf(db)).toEqual(nextAlone);
    expect(await tend(db, after)).toEqual([]);
  });

  it('M2 a route that an old relay adds again is gone once the deploy is complete', async () => {
    const after = await startRelay(db, next);
    await later('1 hour', after);
    expect(await routesOf(db)).toEqual(nextAlone);
    const restarted = await startRelay(db, old);
    expect(await routesOf(db)).toEqual(all);
    await restarted.stop();
    await later('11 minutes', after);
    await tend(db, after);
    expect(await routesOf(db)).toEqual(nextAlone);
  });

  it('M2 the settings end as those of the newest version, also when an old relay starts in between', async () => {
    const before = await startRelay(db, old);
    const after = await startRelay(db, next);
    expect(await settingsOf(db, 'crm')).toMatchObject({ max_attempts: 5 });
    await tend(db, before);
    expect(await settingsOf(db, 'crm')).toMatchObject({ max_attempts: 5 });
    const restarted = await startRelay(db, old);
    expect(await settingsOf(db, 'crm')).toMatchObject({ max_attempts: 3 });
    await before.stop();
    await restarted.stop();
    expect(await tend(db, after)).toEqual([{ change: 'change', destination: 'crm' }]);
    expect(await settingsOf(db, 'crm')).toMatchObject({ max_attempts: 5 });
  });

  it('M2 a destination of no remaining version is unconfigured then, and not before', async () => {
    const before = await startRelay(db, {
      application: 'shop',
      destinations: { crm: handler(() => undefined), fax: handler(() => undefined) },
    });
    await before.stop();
    const after = await startRelay(db, next);
    await later('9 minutes', after);
    await tend(db, after);
    expect(await settingsOf(db, 'fax')).toMatchObject({ configured: true, owners: ['shop'] });
    await later('2 minutes', after);
    await tend(db, after);
    expect(await settingsOf(db, 'fax')).toMatchObject({ configured: false, owners: [] });
  });
});

describe('definitions that no relay declares', () => {
  it('M2 stays while all relays of the application are down, and until one has run for ten minutes', async () => {
    const before = await startRelay(db, old);
    await before.stop();
    await letTimePass(db, '3 days');
    const after = await startRelay(db, next);
    await tend(db, after);
    expect(await routesOf(db)).toEqual(all);
    await later('11 minutes', after);
    await tend(db, after);
    expect(await routesOf(db)).toEqual(nextAlone);
  });

  it('M2 is not removed by relays of another application', async () => {
    const before = await startRelay(db, old);
    await before.stop();
    const other = await startRelay(db, {
      application: 'billing',
      destinations: { ledger: handler(() => undefined) },
    });
    await later('1 hour', other);
    await tend(db, other);
    expect(await routesOf(db, 'shop')).toEqual(['shop: dropped -> crm', 'shop: kept -> crm']);
  });

  it('M2 is not removed by a drain, however often it runs', async () => {
    await drain(db, old);
    await letTimePass(db, '1 hour');
    await drain(db, next);
    expect(await routesOf(db)).toEqual(all);
  });

  it('M2 a relay that was cut off for longer declares itself again', async () => {
    const cutOff = await startRelay(db, old);
    await letTimePass(db, '11 minutes');
    const database = openDatabase(db);
    expect(await confirmDeclaration(database, cutOff.relay.id)).toBe(false);
    const after = await startRelay(db, next);
    await letTimePassFor(db, '11 minutes', [after.relay.id]);
    await db.query(`DELETE FROM ${db.quoted}.relays WHERE id = $1`, [cutOff.relay.id]);
    await tend(db, after);
    expect(await routesOf(db)).toEqual(nextAlone);
    await cutOff.relay.tendDefinitions();
    expect(await routesOf(db)).toEqual(all);
    expect(await confirmDeclaration(database, cutOff.relay.id)).toBe(true);
  });
});

describe('applied definitions', () => {
  it('M2 stay without any relay, until another apply drops them', async () => {
    await apply(db, old);
    const relay = await startRelay(db, next);
    await later('1 hour', relay);
    await tend(db, relay);
    expect(await routesOf(db)).toEqual(all);
    expect(await apply(db, next)).toEqual([
      { change: 'leave', route: { topic: 'dropped', to: 'crm' } },
    ]);
    expect(await routesOf(db)).toEqual(all);
    await tend(db, relay);
    expect(await routesOf(db)).toEqual(nextAlone);
  });

  it('M2 prune removes at once what no running relay declares, and nothing else', async () => {
    const relay = await startRelay(db, old);
    await apply(db, next, { prune: true });
    expect(await routesOf(db)).toEqual(all);
    await relay.stop();
    expect(await apply(db, next, { prune: true, dryRun: true })).toEqual([
      { change: 'remove', route: { topic: 'dropped', to: 'crm' } },
    ]);
    expect(await routesOf(db)).toEqual(all);
    await apply(db, next, { prune: true });
    expect(await routesOf(db)).toEqual(nextAlone);
  });

  it('M2 are not overruled by relays that were started before', async () => {
    const relay = await startRelay(db, old);
    await apply(db, next);
    expect(await settingsOf(db, 'crm')).toMatchObject({ max_attempts: 5 });
    expect(await tend(db, relay)).toEqual([]);
    expect(await settingsOf(db, 'crm')).toMatchObject({ max_attempts: 5 });
  });
});
