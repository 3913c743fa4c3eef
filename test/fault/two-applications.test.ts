// Two applications share a schema, and both deploy a new version at the same time, under load: relays of both are killed,
// and old ones are started again during the deploy. No committed message stays unrouted or is lost, not even those from
// before the first relay, and every key keeps its order.

import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { expect, it, onTestFinished } from 'vitest';

import { tendDefinitions } from '../../src/features/applications/database.js';
import { only } from '../support/only.js';
import { misplaced } from '../support/outbox.js';
import { letTimePassFor, routesOf } from '../support/owners.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { ApplicationUnderTest } from './applications/application.js';

const db = testDatabase();

async function unrouted(): Promise<string[]> {
  const { rows } = await db.query<{ topic: string }>(
    `SELECT DISTINCT m.topic FROM ${db.quoted}.unrouted_messages u JOIN ${db.quoted}.messages m ON m.id = u.message_id`,
  );
  return rows.map((row) => row.topic);
}

/** Makes its relays look as if they had run for a quarter of an hour, so that they remove old definitions. */
async function quarterOfAnHour(applications: readonly ApplicationUnderTest[]): Promise<void> {
  const ids = applications.flatMap(({ relayIds }) => relayIds);
  await letTimePassFor(db, '15 minutes', ids);
  for (const id of ids) await tendDefinitions(openDatabase(db), id, 'test');
}

it('C4 P1 M2 nothing is unrouted or lost, and keys keep their order, while two applications roll out a version each', async () => {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-applications-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const applications = ['shop', 'billing'].map(
    (name) => new ApplicationUnderTest(name, db, directory),
  );
  onTestFinished(async () => void (await Promise.all(applications.map((each) => each.remove()))));
  const forBoth = (work: (application: ApplicationUnderTest) => Promise<void>) =>
    Promise.all(applications.map(work));
  const routes = (...topics: string[]) =>
    ['billing', 'shop'].flatMap((name) =>
      topics.map((topic) => `${name}: ${name}.${topic} -> ${name}`),
    );

  // messages before the first relay
  for (const application of applications) application.produce();
  await forBoth(async (application) => {
    await application.start('old-a', 1);
    await application.start('old-b', 1);
    await application.goOn();
  });

  // the deploy: one new relay each, one old relay killed, another restarted, with the topics of both versions all the
  // time
  await forBoth(async (application) => {
    await application.start('new-a', 2);
    application.send('kept', 'dropped', 'added');
    await application.goOn();
    await application.kill('old-a');
    await application.start('old-a', 1);
  });
  await quarterOfAnHour(applications);
  await forBoth(async (application) => {
    await application.goOn();
    await application.kill('new-a');
    await application.stop('old-b');
    await application.start('new-b', 2);
  });
  await quarterOfAnHour(applications);
  expect(await routesOf(db)).toEqual(routes('added', 'dropped', 'kept'));
  await forBoth(async (application) => {
    await application.goOn();
    await application.kill('old-a');
    await application.start('new-a', 2);
    // sent until now, and still routed: the last old relay has only just stopped
    await application.goOn();
    application.send('kept', 'added');
    await application.goOn();
  });

  // the deploy is complete
  await quarterOfAnHour(applications);
  expect(await routesOf(db)).toEqual(routes('added', 'kept'));
  await forBoth((application) => application.goOn());
  await forBoth((application) => application.end());

  expect(await unrouted()).toEqual([]);
  expect(await misplaced(db)).toEqual([]);
  for (const application of applications) {
    const delivered = new Set(application.deliveries.map(({ id }) => id));
    expect(application.committed.filter((id) => !delivered.has(id))).toEqual([]);
    expect(application.outOfOrder).toEqual([]);
  }
  const { rows } = await db.query<{ applied: number }>(
    `SELECT count(*)::int AS applied FROM ${db.quoted}.messages`,
  );
  const sent = applications.reduce((sum, { committed }) => sum + committed.length, 0);
  expect(only(rows).applied).toBe(sent);
  const received = applications.reduce((sum, { deliveries }) => sum + deliveries.length, 0);
  console.log('two applications', { sent, repeated: received - sent });
}, 240_000);
