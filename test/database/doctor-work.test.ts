// The doctor's findings about work that stands still: paused and vanished destinations, topics without a route, broken
// watches, cursors that do not move, retention and alerts. Each is really caused, and fixed by the printed remedy.

import { describe, expect, it } from 'vitest';

import { subscribe } from '../../src/consumer/subscribe.js';
import { freeHold, giveHold } from '../support/holds.js';
import { expectWell, follow, look, untilState } from '../support/doctor.js';
import { addRoute } from '../support/destinations.js';
import { enqueueMany, makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { watch } from '../support/watch.js';

const db = testDatabase();

describe('destinations', () => {
  it('a paused one is found once something is pending there', async () => {
    const queue = await makeQueue(db);
    await db.query(`SELECT ${db.quoted}.set_paused($1, true, 'ada', 'they migrate')`, [queue.name]);
    await expectWell(db, 'destinations_paused');
    await queue.enqueue(2);
    const finding = await look(db, 'destinations_paused');
    expect(finding).toMatchObject({
      state: 'warning',
      found: `paused with work: ${queue.name} (2 waiting; paused by ada they migrate)`,
    });
    await follow(db, finding);
    await expectWell(db, 'destinations_paused');
  });

  it('one that left the configuration is found while something is pending for it', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(3);
    await expectWell(db, 'destinations_gone');
    await db.query(
      `SELECT ${db.quoted}.apply_definitions('{"destinations": [], "routes": []}', p_prune => true)`,
    );
    const finding = await look(db, 'destinations_gone');
    expect(finding).toMatchObject({ state: 'warning' });
    expect(finding.found).toContain(`${queue.name} (3 waiting)`);
    await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [queue.name]);
    await expectWell(db, 'destinations_paused');
    await follow(db, finding);
    await db.query(`SELECT ${db.quoted}.discard_deliveries(name) FROM ${db.quoted}.destinations`);
    await expectWell(db, 'destinations_gone');
  });
});

it('topics without a route are found, with counts and examples, and routed once they have one', async () => {
  await expectWell(db, 'topics_unrouted');
  const sent = await enqueueMany(db, db.pool, [
    { topic: 'lost.often' },
    { topic: 'lost.often' },
    { topic: 'lost.once' },
  ]);
  const today = new Date().toISOString().slice(0, 10);
  const finding = await look(db, 'topics_unrouted');
  expect(finding).toMatchObject({
    state: 'warning',
    found: `without a route: lost.often (2 messages, such as ${sent[1]?.id}); lost.once (1 message, such as ${sent[2]?.id}). They are of 1 day, from ${today} on; retention does not remove them`,
  });
  const queue = await makeQueue(db);
  await addRoute(db, queue.id, 'lost.*');
  expect((await look(db, 'topics_unrouted')).found).toContain('it has a route now');
  await follow(db, finding, { yes: true });
  await expectWell(db, 'topics_unrouted');
  expect(await queue.waiting()).toHaveLength(3);
});

describe('watches', () => {
  it('one whose trigger is disabled is found, and works again', async () => {
    await expectWell(db, 'watches_broken');
    await db.query('CREATE TABLE public."Orders" (id int PRIMARY KEY)');
    await watch(db, 'public."Orders"', 'order');
    await expectWell(db, 'watches_broken');
    await db.query('ALTER TABLE public."Orders" DISABLE TRIGGER USER');
    const finding = await look(db, 'watches_broken');
    expect(finding).toMatchObject({ state: 'error' });
    expect(finding.found).toMatch(/order of .*"Orders".*: trigger .* is disabled/);
    await follow(db, finding);
    await expectWell(db, 'watches_broken');
  });

  it('one whose table was dropped is found, and ended', async () => {
    await db.query('CREATE TABLE public.gone (id int PRIMARY KEY)');
    await watch(db, 'public.gone', 'gone');
    await expectWell(db, 'watches_broken');
    await db.query('DROP TABLE public.gone');
    const finding = await look(db, 'watches_broken');
    expect(finding).toMatchObject({ state: 'error' });
    expect(finding.found).toMatch(/the table was dropped/);
    await follow(db, finding);
    await expectWell(db, 'watches_broken');
  });
});

describe('cursors', () => {
  it('one without a reader is found once it is behind', async () => {
    await expectWell(db, 'cursors_behind');
    const subscription = await subscribe(
      { name: 'index', database: { url: db.url, schema: db.schema }, pollMs: 5 },
      () => {},
    );
    await subscription.stop();
    await untilState(db, 'cursors_behind', 'ok');
    await enqueueMany(db, db.pool, [{ topic: 'a' }, { topic: 'b' }]);
    const finding = await look(db, 'cursors_behind');
    expect(finding).toMatchObject({ state: 'warning' });
    expect(finding.found).toMatch(
      /^index is 2 messages behind, the oldest for .*: it has no reader$/,
    );
  });

  it('one whose destination is paused is found, and resumed', async () => {
    await db.query(`SELECT ${db.quoted}.set_paused('index', true)`);
    const finding = await look(db, 'cursors_behind');
    expect(finding.found).toMatch(/: its destination is paused$/);
    await follow(db, finding);
    expect((await look(db, 'cursors_behind')).found).toMatch(/: it has no reader$/);
  });

  it('one that is read but does not keep up for five minutes is found', async () => {
    await db.query(`UPDATE ${db.quoted}.cursors SET reader_name = 'slow'`);
    await giveHold(db, 'cursor index');
    await expectWell(db, 'cursors_behind');
    const { rows } = await db.query<{ id: string }>(
      `INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
       SELECT 2, ${db.quoted}.id_at(now() - interval '6 minutes'), now(), pg_current_xact_id(), 'default', 'a', '{}' RETURNING id`,
    );
    const finding = await look(db, 'cursors_behind');
    expect(finding.found).toMatch(
      /3 messages behind, the oldest for 6 min.*: slow does not keep up$/,
    );
    await follow(db, finding);
    await db.query(`DELETE FROM ${db.quoted}.messages WHERE id = $1`, [rows[0]?.id]);
    await freeHold(db, 'cursor index');
  });

  it('one with a failing message is found', async () => {
    const subscription = await subscribe(
      {
        name: 'index',
        database: { url: db.url, schema: db.schema },
        pollMs: 5,
        retry: { maxAttempts: 100, baseMs: 60_000, maxMs: 60_000 },
      },
      () => {
        throw new Error('no');
      },
    );
    const finding = await untilState(db, 'cursors_behind', 'warning');
    expect(finding.state).toBe('warning');
    await expect
      .poll(async () => (await look(db, 'cursors_behind')).found, { timeout: 20_000 })
      .toMatch(/its next message fails \(thrown, 1 try\)/);
    await subscription.stop();
    // the next reader would wait for the rest of the minute
    await db.query(`UPDATE ${db.quoted}.cursors SET retry_at = clock_timestamp()`);
    const mended = await subscribe(
      { name: 'index', database: { url: db.url, schema: db.schema }, pollMs: 5 },
      () => {},
    );
    await untilState(db, 'cursors_behind', 'ok');
    await mended.stop();
  });

  it("one that contains another server's transaction ids is found, and repaired", async () => {
    await expectWell(db, 'cursors_foreign');
    await db.query(`UPDATE ${db.quoted}.cursors SET system_id = 4711`);
    const finding = await look(db, 'cursors_foreign');
    expect(finding).toMatchObject({ state: 'error', paste: [expect.stringMatching(/repair/)] });
    expect(finding.found).toMatch(/cursor index: it comes from another server/);
    await follow(db, finding, { yes: true });
    await expectWell(db, 'cursors_foreign');
  });
});

it('retention that was not done for days is found', async () => {
  await expectWell(db, 'retention_late');
  await db.query(
    `UPDATE ${db.quoted}.maintenance_runs SET done_at = clock_timestamp() - interval '1 day'`,
  );
  await expectWell(db, 'retention_late');
  await db.query(
    `UPDATE ${db.quoted}.maintenance_runs SET done_at = clock_timestamp() - interval '3 days 5 hours'`,
  );
  const finding = await look(db, 'retention_late');
  expect(finding).toMatchObject({ state: 'warning' });
  expect(finding.found).toMatch(/^it was last done 3 d 5 h ago/);
  await follow(db, finding);
  await giveHold(db, 'retention');
  await expectWell(db, 'retention_late');
});

it('a firing alert is found', async () => {
  await expectWell(db, 'alerts');
  const queue = await makeQueue(db);
  await queue.enqueue(1001);
  const finding = await look(db, 'alerts');
  expect(finding).toMatchObject({ state: 'warning' });
  expect(finding.found).toMatch(/10\d\d deliveries to .+ wait \(alert above 1000\)/);
  await follow(db, finding);
});
