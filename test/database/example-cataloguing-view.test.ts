// The cataloguing service's view `_private.outbox`: it shows every event once, in whatever state, and a poll or a lookup
// reads no more of the history than it returns.

import { randomUUID } from 'node:crypto';

import type pg from 'pg';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';

import {
  addJobs,
  claimNotifications,
  connectService,
  installCatalogue,
  jobEvents,
  notifyAll,
  organizationId,
} from '../support/cataloguing.js';
import type { JobEvent } from '../support/cataloguing.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { replay } from '../support/replays.js';
import { addHistory, rowsRead } from '../support/rows-read.js';

const db = testDatabase();
let app: pg.Client;
let service: pg.Client;

const poll =
  'SELECT * FROM _private.outbox WHERE processed_at IS NULL ORDER BY created_at, event_id LIMIT 100';

beforeAll(async () => {
  await installCatalogue(db);
  app = await db.connect();
  await app.query('SET ROLE cataloguing_app');
  service = await connectService(db);
});
afterAll(() => service.end());

async function polled(): Promise<string[]> {
  return (await service.query<JobEvent>(poll)).rows.map(({ record_id }) => record_id);
}

test('N5 N13 the view has every event once, and a poll gets those whose processing has not ended', async () => {
  const jobs = await addJobs(app, 'states', 6);
  const [pending = '', retried = '', held = '', sent = '', dead = '', discarded = ''] = jobs;
  const token = randomUUID();
  const claimed = await claimNotifications(service, token);
  const idOf = (job: string) =>
    claimed.find(({ aggregate_id }) => aggregate_id === job)?.message_id ?? '';
  await db.query('SELECT outbox.nack($1, $2, $3)', [token, idOf(retried), 'busy']);
  await db.query('SELECT outbox.ack($1, $2)', [token, idOf(sent)]);
  for (const job of [dead, discarded])
    await db.query("SELECT outbox.nack($1, $2, 'gone', 'gone', terminal => true)", [
      token,
      idOf(job),
    ]);
  await db.query('SELECT outbox.discard_dead_letters(ids => ARRAY[$1::uuid])', [idOf(discarded)]);
  await db.query(
    "SELECT outbox.settle(id, relay_id, ARRAY[$1::uuid], '{1}', '{release}') FROM outbox.leases",
    [idOf(pending)],
  );

  const states = async () => {
    const events = await jobEvents(service, 'states');
    expect(events.map(({ record_id }) => record_id).toSorted()).toEqual(jobs.toSorted());
    return Object.fromEntries(
      events.map(({ record_id, processed_at, retry_count, last_error }) => [
        record_id,
        [processed_at === null ? 'open' : 'ended', retry_count, last_error],
      ]),
    );
  };
  expect(await states()).toEqual({
    [pending]: ['open', 0, null],
    [retried]: ['open', 1, 'busy'],
    [held]: ['open', 0, null],
    [sent]: ['ended', 0, null],
    [dead]: ['ended', 1, 'gone'],
    [discarded]: ['ended', 1, 'gone'],
  });
  expect((await polled()).toSorted()).toEqual([pending, retried, held].toSorted());
  const { rows } = await service.query<{ metric: string; value: string }>(
    "SELECT value FROM outbox_health_metrics WHERE metric = 'unprocessed_events'",
  );
  expect(Number(only(rows).value), 'the metric counts the same').toBe(3);

  // brought back, they are unprocessed again: waiting, then in flight, then processed a second time
  await db.query('SELECT outbox.retry_dead_letters(ids => ARRAY[$1::uuid])', [idOf(dead)]);
  await replay(db, 'notifications', { ids: [idOf(sent)] });
  expect(await states()).toMatchObject({
    [sent]: ['open', 0, null],
    [dead]: ['open', 0, 'gone'],
  });
  const again = randomUUID();
  const ids = (await claimNotifications(service, again)).map(({ message_id }) => message_id);
  expect(ids).toContain(idOf(sent));
  expect(await states()).toMatchObject({ [sent]: ['open', 0, null], [dead]: ['open', 0, 'gone'] });
  await service.query('SELECT outbox.mark_delivered($1, $2)', [again, ids]);
  expect(await states()).toMatchObject({
    [sent]: ['ended', 0, null],
    [dead]: ['ended', 0, 'gone'],
  });
  await service.query('SELECT outbox.mark_delivered($1, $2)', [token, [idOf(held)]]);
});

test('N16 events without the route, and unrouted ones, are in the view and unprocessed', async () => {
  // one of the first test waits for its retry
  await db.query("SELECT outbox.retry_now('notifications')");
  await notifyAll(service);
  const removed = await db.query(
    "DELETE FROM outbox.routes r USING outbox.destinations d WHERE d.id = r.destination_id AND d.name = 'notifications'",
  );
  expect(removed.rowCount).toBe(1);
  const [unrouted] = await addJobs(app, 'unrouted', 1);
  await db.query("SELECT outbox.define_destination('reader', 'subscription')");
  await db.query("SELECT outbox.define_cursor('reader', 'now', '{job.*}')");
  const [read] = await addJobs(app, 'read', 1);
  expect(await polled()).toEqual([unrouted, read]);
  await db.query("SELECT outbox.define_route('job.*', 'notifications')");
  const [routed] = await addJobs(app, 'routed', 1);
  expect((await polled()).filter((job) => job !== unrouted)).toEqual([read, routed]);
  expect(await jobEvents(service, 'unrouted')).toHaveLength(1);
  expect(await jobEvents(service, 'read')).toHaveLength(1);
  await notifyAll(service);
});

test('C4 N6 a poll and a lookup read no more of the delivered history than they return', async () => {
  const client = await db.connect();
  onTestFinished(() => client.end());
  const kept = await addHistory(db.pool, 'notifications', { topic: 'job.created' });
  // the test above used it
  await db.query('ANALYZE outbox.unrouted_messages');
  const [job = ''] = await addJobs(app, 'news', 50);
  const event = only((await jobEvents(service, 'news')).slice(0, 1)).event_id;
  await client.query('SET ROLE cataloguing_service');
  const list = 'SELECT * FROM _private.outbox';
  for (const query of [
    poll,
    'SELECT count(*) FROM _private.outbox WHERE processed_at IS NULL',
    `${list} WHERE event_id = '${event}'`,
    `${list} WHERE record_id = '${job}'`,
    `${list} WHERE event_type = 'deleted'`,
    `${list} WHERE organization_id = '${organizationId('news')}'`,
  ])
    expect(await rowsRead(client, query), query).toBeLessThan(200);
  // the measure finds a query that reads everything
  expect(
    await rowsRead(client, 'SELECT count(processed_at) FROM _private.outbox'),
  ).toBeGreaterThanOrEqual(kept);
});
