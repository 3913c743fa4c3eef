// Unrouted messages: they are kept, with their day of the log, until they are routed or an operator discards them;
// health, alerts and drains report them meanwhile.

import { describe, expect, it } from 'vitest';

import { applyDefinitions } from '../../src/features/applications/database.js';
import { readHealth } from '../../src/listing/reports.js';
import { readAlerts } from '../../src/features/alerts/database.js';
import {
  discardUnrouted,
  listUnrouted,
  routeUnrouted,
} from '../../src/features/unrouted/database.js';
import { createRelay, handler } from '../../src/index.js';
import { definitionsOf } from '../../src/relay/setup.js';
import { cli, environmentOf } from '../support/cli.js';
import { addRoute, defineDestination } from '../support/destinations.js';
import { only } from '../support/only.js';
import { enqueueMany, makeQueue, misplaced } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { oldMessage, partitionDays, pruneNow } from '../support/retention.js';
import { settleDelivered } from '../support/settling.js';
import { waitFor } from '../support/wait.js';

// each test has its own database
const db = testDatabase({ eachTestFrom: () => Promise.resolve() });

async function leaveUnrouted(id: string): Promise<void> {
  await db.query(`INSERT INTO ${db.quoted}.unrouted_messages VALUES ($1)`, [id]);
}

async function unroutedIds(): Promise<string[]> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT message_id AS id FROM ${db.quoted}.unrouted_messages ORDER BY 1`,
  );
  return rows.map(({ id }) => id);
}

async function recorded(action: string): Promise<{ actor: string; count: number }[]> {
  const { rows } = await db.query<{ actor: string; count: number }>(
    `SELECT actor, sum(count)::int AS count FROM ${db.quoted}.operator_actions WHERE action = $1 GROUP BY 1`,
    [action],
  );
  return rows;
}

describe('retention', () => {
  it('C9 keeps the day of an unrouted message until it is routed or discarded', async () => {
    const [discarded, routed] = [await oldMessage(db, 40), await oldMessage(db, 30)];
    const ended = await oldMessage(db, 20);
    await leaveUnrouted(discarded);
    await leaveUnrouted(routed);
    const days = async () => ({
      messages: (await partitionDays(db, 'messages')).filter((ago) => ago > 8),
      attempts: (await partitionDays(db, 'attempts')).filter((ago) => ago > 8),
    });

    await pruneNow(db, { messagesDays: 7, attemptsDays: 7 });
    expect(await days(), `all but that of ${ended}`).toEqual({
      messages: [30, 40],
      attempts: [30, 40],
    });
    expect(await unroutedIds()).toEqual([discarded, routed]);

    await discardUnrouted(
      openDatabase(db),
      { before: new Date(Date.now() - 35 * 86_400_000) },
      'ann',
    );
    const destinationId = await defineDestination(db, 'late');
    await addRoute(db, destinationId, 'old');
    expect(await routeUnrouted(openDatabase(db), 'ann')).toBe(1);
    await pruneNow(db, { messagesDays: 7, attemptsDays: 7 });
    expect(await days(), 'its delivery keeps it now').toEqual({ messages: [30], attempts: [30] });
  });

  it('C9 reports what keeps the day, in one step of an index however many there are', async () => {
    const id = await oldMessage(db, 30);
    await db.query(
      `INSERT INTO ${db.quoted}.unrouted_messages SELECT ($1::text::uuid) UNION SELECT ${db.quoted}.new_id() FROM generate_series(1, 20000)`,
      [id],
    );
    await db.query(`ANALYZE ${db.quoted}.unrouted_messages`);
    const { rows } = await db.query<{ in_use: string }>(
      `SELECT DISTINCT in_use FROM ${db.quoted}.expired_partitions('20 days', '20 days') WHERE day = (now() AT TIME ZONE 'UTC')::date - 30`,
    );
    expect(rows).toEqual([{ in_use: 'messages without a route wait for one' }]);
    const plan = await db.query<{ 'QUERY PLAN': string }>(
      `EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF)
       SELECT EXISTS (SELECT FROM ${db.quoted}.unrouted_messages u
                       WHERE u.message_id >= ${db.quoted}.id_at(now() - interval '31 days') AND u.message_id < ${db.quoted}.id_at(now() - interval '29 days'))`,
    );
    const text = plan.rows.map((row) => row['QUERY PLAN']).join('\n');
    expect(text).toMatch(/Index Only Scan using unrouted_messages_pkey/);
    expect(text).not.toMatch(/Seq Scan/);
  });
});

describe('an operator', () => {
  it('routes what a route wants now, once, and the rest stays', async () => {
    await enqueueMany(
      db,
      db.pool,
      Array.from({ length: 1500 }, (_, n) => ({
        topic: n % 3 === 0 ? 'late.wanted' : 'never.wanted',
      })),
    );
    for (const name of ['one', 'two'])
      await addRoute(db, await defineDestination(db, name), 'late.*');
    const database = openDatabase(db);
    expect(await routeUnrouted(database, 'tester')).toBe(500);
    expect(await routeUnrouted(database, 'tester')).toBe(0);
    expect(await unroutedIds()).toHaveLength(1000);
    expect(await recorded('route_unrouted')).toEqual([{ actor: 'tester', count: 500 }]);
    const { rows } = await db.query(`SELECT count(*)::int AS count FROM ${db.quoted}.deliveries`);
    expect(rows).toEqual([{ count: 1000 }]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('routes a delayed message at its time, also by a replay', async () => {
    const sent = await enqueueMany(db, db.pool, [
      { topic: 'late', delayMs: 86_400_000 },
      { topic: 'replayed', delayMs: 86_400_000 },
    ]);
    const destinationId = await defineDestination(db, 'late');
    await db.query(`SELECT ${db.quoted}.bring_back($1, $2)`, [destinationId, [sent[1]?.id]]);
    await addRoute(db, destinationId, 'late');
    expect(await routeUnrouted(openDatabase(db), 'tester')).toBe(1);
    const { rows } = await db.query(
      `SELECT available_at > now() + interval '23 hours' AS later, delay_ms FROM ${db.quoted}.deliveries`,
    );
    const delayed = { later: true, delay_ms: '86400000' };
    expect(rows).toEqual([delayed, delayed]);
  });

  it('C4 waits for a concurrent operator, so that a key stays in order', async () => {
    const [first, second] = [
      await enqueueMany(db, db.pool, [{ topic: 'late', key: 'k' }]),
      await enqueueMany(db, db.pool, [{ topic: 'late', key: 'k' }]),
    ].map((sent) => only(sent).id);
    await addRoute(db, await defineDestination(db, 'late'), 'late');
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`SELECT ${db.quoted}.route_unrouted(NULL, 1, 'one')`);
    // another operator, who is further ahead
    const other = db.query<{ routed: number }>(
      `SELECT routed FROM ${db.quoted}.route_unrouted($1, 1000, 'two')`,
      [first],
    );
    const isWaiting = async () => {
      const { rows } = await db.query(
        `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      );
      return rows.length > 0;
    };
    await waitFor(isWaiting, { what: 'the other operator to wait' });
    expect(await unroutedIds()).toEqual([first, second]);
    await client.query('COMMIT');
    expect((await other).rows).toEqual([{ routed: 1 }]);
    expect(await unroutedIds()).toEqual([]);
  });

  it('C4 W8 sees how many would arrive after later messages of their key, and gets a warning', async () => {
    const keyed = (key: string) => ({ topic: 'late', key });
    await enqueueMany(db, db.pool, [keyed('ended'), keyed('in flight'), keyed('waiting')]);
    await enqueueMany(db, db.pool, [{ topic: 'late' }, keyed('alone')]);
    const queue = await makeQueue(db);
    await addRoute(db, queue.id, 'late');
    const late = async () =>
      (await listUnrouted(openDatabase(db))).groups.map((group) => group.late);
    expect(await late(), 'no later message was sent').toEqual([0]);
    const send = (key: string) => enqueueMany(db, db.pool, [keyed(key)]);
    await send('ended');
    await settleDelivered(db, await queue.claimOne());
    await send('in flight');
    await queue.claimOne();
    await send('waiting');
    expect(await late()).toEqual([2]);

    const environment = environmentOf(db);
    const run = (...words: string[]) => cli(['unrouted', ...words], { environment });
    const warning = 'warning: 2 messages arrive after later messages of the same key';
    const planned = await run('route', '--dry-run');
    expect(planned).toMatchObject({ code: 0, stderr: expect.stringContaining(warning) as string });
    expect(await unroutedIds()).toHaveLength(5);
    const done = await run('route', '--yes', '--json');
    expect(JSON.parse(done.stdout)).toEqual({ routed: 5, late: 2 });
    expect(done.stderr).toContain(warning);
  });

  it('W8 finds what a filter selects behind any number of others', async () => {
    await enqueueMany(db, db.pool, [
      ...Array.from({ length: 5 }, () => ({ topic: 'noise' })),
      { topic: 'cart.viewed' },
      { topic: 'cart.viewed' },
    ]);
    const found = (most: number) => listUnrouted(openDatabase(db), { topic: 'cart.viewed' }, most);
    expect(await found(3)).toMatchObject({ count: 2, isExact: true });
    expect(await found(1)).toMatchObject({ count: 1, isExact: false });
    expect(await listUnrouted(openDatabase(db), { topic: 'none' }, 3)).toMatchObject({ count: 0 });
  });

  it('W8 sees which ones only a split route wants, and does not route them', async () => {
    await enqueueMany(db, db.pool, [{ topic: 'orders' }, { topic: 'bills' }, { topic: 'others' }]);
    const definitions = definitionsOf({
      destinations: { new: handler(() => undefined) },
      routes: ['orders', 'bills'].map((topic) => ({ topic, to: 'new', rollout: 'trial' })),
    });
    const application = { name: 'shop', version: null };
    const options = { prune: false, dryRun: false, actor: 'test' };
    await applyDefinitions(openDatabase(db), { application, definitions }, options);
    await addRoute(db, await defineDestination(db, 'bills'), 'bills');
    const { groups } = await listUnrouted(openDatabase(db));
    expect(groups).toMatchObject([
      { topic: 'bills', hasRoute: true, onlySplit: false },
      { topic: 'orders', hasRoute: false, onlySplit: true },
      { topic: 'others', hasRoute: false, onlySplit: false },
    ]);
    const { stderr } = await cli(['unrouted', 'list'], { environment: environmentOf(db) });
    expect(stderr).toContain('messages that match only split routes are not routed');
    expect(await routeUnrouted(openDatabase(db), 'tester')).toBe(1);
  });

  it('W8 sees them by topic, namespace and tenant, and discards some, which is recorded', async () => {
    const sent = await enqueueMany(db, db.pool, [
      { topic: 'cart.viewed', tenantId: 'acme' },
      { topic: 'cart.viewed', tenantId: 'acme' },
      { topic: 'cart.viewed', tenantId: 'beta' },
      { topic: 'order.placed', namespace: 'shop' },
    ]);
    const database = openDatabase(db);
    const { groups, ...all } = await listUnrouted(database);
    expect(all).toEqual({ count: 4, isExact: true });
    expect(groups).toMatchObject([
      { topic: 'cart.viewed', tenantId: 'acme', count: 2, hasRoute: false, example: sent[1]?.id },
      { topic: 'cart.viewed', tenantId: 'beta', count: 1 },
      { topic: 'order.placed', namespace: 'shop', tenantId: null, count: 1 },
    ]);
    expect(await listUnrouted(database, {}, 3)).toMatchObject({ count: 3, isExact: false });

    const filter = { topic: 'cart.viewed', tenantId: 'acme' };
    expect(await discardUnrouted(database, filter, 'ann')).toBe(2);
    expect(await unroutedIds()).toEqual(sent.slice(2).map(({ id }) => id));
    expect(await recorded('discard_unrouted')).toEqual([{ actor: 'ann', count: 2 }]);
    const { rows } = await db.query(
      `SELECT status, reason, sentence FROM ${db.quoted}.explain($1)`,
      [sent[0]?.id],
    );
    expect(rows).toMatchObject([{ status: 'ended', reason: 'no_destination' }]);
    expect(only(rows).sentence).toContain('an operator discarded it');
  });

  it('W8 lists and discards them with the role operator alone', async () => {
    await enqueueMany(db, db.pool, [{ topic: 'cart.viewed' }]);
    const environment = environmentOf(db, 'test_operator');
    expect(await cli(['unrouted', 'list', '--json'], { environment })).toMatchObject({ code: 0 });
    const discard = ['unrouted', 'discard', '--topic', 'cart.viewed', '--yes', '--json'];
    expect(await cli(discard, { environment })).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('"discarded":1') as string,
    });
  });

  it('W8 does so from the command line, after a preview', async () => {
    await enqueueMany(db, db.pool, [{ topic: 'cart.viewed' }, { topic: 'order.placed' }]);
    const environment = environmentOf(db);
    const run = (...words: string[]) => cli(['unrouted', ...words], { environment });
    const listed = await run('list');
    expect(listed.stdout).toMatch(/cart\.viewed +default +1 /);
    expect(listed.stderr).toContain('in all 2 messages');
    expect(await run('discard')).toMatchObject({ code: 2 });
    expect(await run('discard', '--topic', 'cart.seen', '--yes')).toMatchObject({ code: 3 });
    const planned = await run('discard', '--topic', 'cart.viewed', '--dry-run', '--json');
    expect(JSON.parse(planned.stdout)).toMatchObject({
      count: 1,
      groups: [{ topic: 'cart.viewed' }],
    });
    expect(await unroutedIds()).toHaveLength(2);
    expect((await run('discard', '--topic', 'cart.viewed', '--json')).code, 'not asked').toBe(4);
    const done = await run('discard', '--topic', 'cart.viewed', '--yes', '--json');
    expect(JSON.parse(done.stdout)).toEqual({ discarded: 1 });
    await addRoute(db, await defineDestination(db, 'orders'), 'order.*');
    expect((await run('list')).stderr).toContain('waybill unrouted route');
    expect(await run('route', '--yes')).toMatchObject({ stdout: 'routed: 1\n' });
    expect(await unroutedIds()).toEqual([]);
  });
});

describe('unrouted messages are reported', () => {
  it('N13 in health and among the alerts, until none is left', async () => {
    const database = openDatabase(db);
    const seen = async () => {
      const health = (await readHealth(database)).find(({ metric }) => metric === 'unrouted');
      const alert = (await readAlerts(database)).find((each) => each.alert === 'unrouted');
      return { value: health?.value, alarm: health?.alarm, firing: alert?.firing };
    };
    expect(await seen()).toEqual({ value: 0, alarm: null, firing: false });
    await enqueueMany(db, db.pool, [{ topic: 'not.routed' }]);
    expect(await seen()).toMatchObject({
      value: 1,
      alarm: expect.stringMatching(
        /^1 message without a route: waybill unrouted list shows/,
      ) as string,
      firing: true,
    });
    await db.query(
      `INSERT INTO ${db.quoted}.unrouted_messages SELECT ${db.quoted}.new_id() FROM generate_series(1, 10010)`,
    );
    expect(await seen()).toMatchObject({
      value: 10_000,
      alarm: expect.stringContaining('at least 10000 messages') as string,
    });
    await discardUnrouted(database, {}, 'ann');
    expect(await seen()).toEqual({ value: 0, alarm: null, firing: false });
  });

  it('N13 in the result of a drain', async () => {
    await enqueueMany(db, db.pool, [{ topic: 'not.routed' }, { topic: 'not.routed' }]);
    const relay = createRelay({
      database: { url: db.url, schema: db.schema },
      destinations: { here: handler(() => undefined) },
      routes: [{ topic: 'order.*', to: 'here' }],
    });
    expect(await relay.drain()).toMatchObject({ processed: 0, finished: true, unrouted: 2 });
  });
});

describe('a message that a destination has already', () => {
  it('C9 is no longer unrouted after a cursor has handed it over', async () => {
    const queue = await makeQueue(db);
    const [id] = await enqueueMany(db, db.pool, [{ topic: 'nowhere' }]);
    expect(await unroutedIds()).toEqual([id?.id]);
    await db.query(`SELECT ${db.quoted}.deliver_unread($1, ARRAY[$2]::uuid[])`, [queue.id, id?.id]);
    expect(await unroutedIds()).toEqual([]);
    expect((await queue.claim()).ids).toEqual([id?.id]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('C9 M6 is not sent there again when it is routed', async () => {
    const queue = await makeQueue(db);
    const [pending, held, ended] = await queue.enqueue(3);
    const later = await queue.claim({ limit: 1 });
    await settleDelivered(db, later);
    const claim = await queue.claim({ limit: 1 });
    for (const id of [pending, held, ended]) await leaveUnrouted(id ?? '');
    expect(await routeUnrouted(openDatabase(db), 'ann')).toBe(3);
    expect(await unroutedIds()).toEqual([]);
    expect(await queue.waiting()).toHaveLength(1);
    await settleDelivered(db, claim);
    await settleDelivered(db, await queue.claim());
    expect(await misplaced(db)).toEqual([]);
  });
});
