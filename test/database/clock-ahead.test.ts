// A database clock that ran ahead and was corrected: misdated deliveries are found, corrected and reported to operators,
// and stop no other work. The rows are written as such a clock would write them; test/fault/clock.test.ts moves the clock
// of a real server.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { freeHold, postponeHold } from '../support/holds.js';
import { expectWell, follow, look } from '../support/doctor.js';
import { defineDestination } from '../support/destinations.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { makeRelay, send, startRelay } from '../support/relay.js';
import { settle } from '../support/settling.js';

const db = testDatabase();

/** Makes the clock look as if it had been two years ahead when these were queued and their lanes were set. */
async function dateAhead(queue: Queue, ids: readonly string[]): Promise<void> {
  await db.query(
    `UPDATE ${db.quoted}.deliveries SET available_at = available_at + interval '2 years'
      WHERE destination_id = $1 AND message_id = ANY ($2)`,
    [queue.id, ids],
  );
  await db.query(
    `UPDATE ${db.quoted}.lanes l SET available_at = l.available_at + interval '2 years'
      WHERE l.destination_id = $1 AND l.available_at IS NOT NULL AND l.key_id IN (
        SELECT d.key_id FROM ${db.quoted}.deliveries d WHERE d.message_id = ANY ($2))`,
    [queue.id, ids],
  );
}

async function release(): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT ${db.quoted}.release_misdated('ada') AS count`,
  );
  return only(rows).count;
}

async function secondsUntilDue(id: string): Promise<number> {
  const { rows } = await db.query<{ seconds: number }>(
    `SELECT extract(epoch FROM available_at - clock_timestamp())::float8 AS seconds
       FROM ${db.quoted}.deliveries WHERE message_id = $1`,
    [id],
  );
  return only(rows).seconds;
}

/** Lanes exist, and wait for the due time of their first message. */
async function wakeLanes(queue: Queue): Promise<void> {
  await db.query(
    `SELECT ${db.quoted}.wake_lanes(d, 1000) FROM ${db.quoted}.destinations d WHERE id = $1`,
    [queue.id],
  );
}

async function health(metric: string): Promise<{ value: number | null; alarm: string | null }> {
  const { rows } = await db.query<{ value: number | null; alarm: string | null }>(
    `SELECT value::float8, alarm FROM ${db.quoted}.health WHERE metric = $1`,
    [metric],
  );
  return only(rows);
}

async function isFiring(alert: string): Promise<boolean> {
  const { rows } = await db.query<{ firing: boolean }>(
    `SELECT firing FROM ${db.quoted}.alerts() WHERE alert = $1`,
    [alert],
  );
  return only(rows).firing;
}

describe('P14 deliveries dated by a clock that ran ahead', () => {
  it('become due after their original delay; a time that the producer gave stays', async () => {
    const queue = await makeQueue(db, { retryBaseMs: 3_600_000, retryMaxMs: 3_600_000 });
    const tried = await queue.enqueueOne();
    const claim = await queue.claim();
    await settle(db, claim, [{ id: tried, outcome: 'retry' }]);
    const asked = await queue.enqueueOne();
    await settle(db, await queue.claim(), [{ id: asked, outcome: 'retry', retryAfterMs: 7000 }]);
    const tomorrow = new Date(Date.now() + 86_400_000).toISOString();
    const [due = '', delayed = '', scheduled = ''] = await queue.enqueueAll([
      {},
      { delayMs: 7_200_000 },
      { availableAt: tomorrow },
    ]);
    const single = await queue.enqueueOne({ delayMs: 600_000 });
    const before = await queue.waiting();
    expect(await release(), 'while the clock is right').toBe(0);
    expect(await queue.waiting()).toEqual(before);

    await dateAhead(queue, [tried, asked, due, delayed, single]);
    expect(await queue.claim().then(({ ids }) => ids)).toEqual([]);
    expect(await release()).toBe(5);
    expect(await release()).toBe(0);
    expect(await queue.claim().then(({ ids }) => ids)).toEqual([due]);
    expect(await secondsUntilDue(tried)).toBeGreaterThan(1700);
    expect(await secondsUntilDue(tried)).toBeLessThanOrEqual(3600);
    expect(await secondsUntilDue(asked)).toBeLessThanOrEqual(7);
    expect(await secondsUntilDue(delayed)).toBeGreaterThan(7100);
    expect(await secondsUntilDue(delayed)).toBeLessThanOrEqual(7200);
    expect(await secondsUntilDue(single)).toBeLessThanOrEqual(600);
    expect(await secondsUntilDue(scheduled)).toBeGreaterThan(86_000);
    const { rows } = await db.query(
      `SELECT actor, action, count::int FROM ${db.quoted}.operator_actions ORDER BY id DESC LIMIT 1`,
    );
    expect(rows).toEqual([{ actor: 'ada', action: 'release_misdated', count: 5 }]);
  });

  it('no longer block their keys: each key continues in order', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(3, { key: 'a' });
    await wakeLanes(queue);
    await dateAhead(queue, ids.slice(0, 2));
    ids.push(...(await queue.enqueue(2, { key: 'a' })));
    expect(await queue.claim().then((claim) => claim.ids)).toEqual([]);
    expect(await release()).toBe(2);
    expect(await queue.claim().then((claim) => claim.ids)).toEqual(ids);
  });

  it('also include keys whose lane was scheduled by such a clock', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(2, { key: 'a' });
    await wakeLanes(queue);
    await db.query(
      `UPDATE ${db.quoted}.lanes SET available_at = available_at + interval '1 hour' WHERE destination_id = $1`,
      [queue.id],
    );
    expect(await queue.claim().then((claim) => claim.ids)).toEqual([]);
    expect(await release()).toBe(1);
    expect(await queue.claim().then((claim) => claim.ids)).toEqual(ids);
  });

  it('are counted once, and only where they were corrected', async () => {
    const queue = await makeQueue(db);
    const [locked = ''] = await queue.enqueue(2);
    await queue.enqueue(2, { key: 'a' });
    await queue.enqueue(1, { key: 'b' });
    await wakeLanes(queue);
    await dateAhead(
      queue,
      (await queue.waiting()).map(({ message_id }) => message_id),
    );
    const other = await db.connect();
    await other.query('BEGIN');
    await other.query(`SELECT FROM ${db.quoted}.deliveries WHERE message_id = $1 FOR UPDATE`, [
      locked,
    ]);
    await other.query(
      `SELECT FROM ${db.quoted}.lanes l JOIN ${db.quoted}.keys s ON s.id = l.key_id
        WHERE l.destination_id = $1 AND s.key = 'b' FOR UPDATE OF l`,
      [queue.id],
    );
    expect(await release(), 'all except the locked delivery').toBe(4);
    expect(await release(), 'the locked ones are left').toBe(0);
    await other.query('ROLLBACK');
    expect(await release(), 'the delivery, and the key that was still waiting').toBe(2);
    expect(await release()).toBe(0);
    const { rows } = await db.query(
      `SELECT count::int FROM ${db.quoted}.operator_actions
        WHERE action = 'release_misdated' AND subject ->> 'destination' = $1 ORDER BY id`,
      [queue.name],
    );
    expect(rows).toEqual([{ count: 4 }, { count: 2 }]);
    expect((await queue.claim()).ids).toHaveLength(5);
  });

  it('are sent by a running relay within seconds, which reports it', async () => {
    const received: string[] = [];
    const name = 'ahead-relay';
    const relay = await startRelay(db, {
      destinations: { [name]: handler(({ id }) => void received.push(id)) },
    });
    await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [name]);
    const { rows } = await db.query<{ id: number }>(
      `SELECT id FROM ${db.quoted}.destinations WHERE name = $1`,
      [name],
    );
    const { rows: sent } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.enqueue_many($1)`,
      [JSON.stringify([{ topic: name }, { topic: name, key: 'k' }])],
    );
    const ids = sent.map(({ id }) => id);
    await dateAhead({ id: only(rows).id } as Queue, ids);
    await db.query(`SELECT ${db.quoted}.set_paused($1, false)`, [name]);
    await relay.event('misdated_released');
    await relay.event('settled');
    await relay.event('settled', () => received.length === 2);
    expect(received.toSorted()).toEqual(ids.toSorted());
  });

  it.each([{}, { maintain: true }])(
    'are corrected by a drain when it begins: %j',
    async (limits) => {
      const name = `drained-${randomUUID()}`;
      const received: string[] = [];
      const settings = { destinations: { [name]: handler(({ id }) => void received.push(id)) } };
      await makeRelay(db, settings).relay.drain();
      const { rows } = await db.query<{ id: number }>(
        `SELECT id FROM ${db.quoted}.destinations WHERE name = $1`,
        [name],
      );
      const ids = await send(db, [{ topic: name }, { topic: name, key: 'k' }]);
      const queue = { id: only(rows).id } as Queue;
      await wakeLanes(queue);
      await dateAhead(queue, ids);
      const drain = makeRelay(db, settings);
      expect(await drain.relay.drain(limits)).toMatchObject({ processed: 2, finished: true });
      expect(received.toSorted()).toEqual(ids.toSorted());
      expect(drain.of('misdated_released')).toMatchObject([{ count: 2 }]);
    },
  );

  it('are reported by health, the alert, explain and the doctor, whose remedy corrects them', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await queue.enqueue(1);
    await expectWell(db, 'deliveries_misdated');
    expect(await health('misdated')).toEqual({ value: 0, alarm: null });
    await dateAhead(queue, [id]);
    const { value, alarm } = await health('misdated');
    expect(value).toBe(1);
    expect(alarm).toContain(queue.name);
    expect(await isFiring('clock_ahead')).toBe(true);
    const { rows } = await db.query(`SELECT reason, sentence FROM ${db.quoted}.explain($1)`, [id]);
    expect(rows).toMatchObject([{ reason: 'misdated' }]);
    const finding = await look(db, 'deliveries_misdated');
    expect(finding).toMatchObject({
      state: 'error',
      found: `dated into the future: ${queue.name} (1)`,
    });
    await follow(db, finding);
    await expectWell(db, 'deliveries_misdated');
    expect(await isFiring('clock_ahead'), 'for ten minutes more').toBe(true);
  });

  it('are also corrected by "retry now"', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(2);
    const waits = await queue.enqueueOne({ delayMs: 60_000 });
    await dateAhead(queue, ids);
    const { rows } = await db.query<{ count: number }>(
      `SELECT ${db.quoted}.retry_now($1) AS count`,
      [queue.name],
    );
    expect(rows).toEqual([{ count: 2 }]);
    expect(await queue.claim().then((claim) => claim.ids)).toEqual(ids);
    expect(await secondsUntilDue(waits)).toBeGreaterThan(0);
  });
});

it('P14 no duration is negative, and future dates do not count as the last minutes', async () => {
  const before = (await health('delivered')).value ?? 0;
  const queue = await makeQueue(db);
  await queue.enqueue(3);
  const claim = await queue.claim();
  // ids of tomorrow, ended today
  await db.query(
    `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
     SELECT ${db.quoted}.id_at(clock_timestamp() + n * interval '1 day'), $1::int, 1, 1, 'dispatched'::${db.quoted}.attempt_state, clock_timestamp()
       FROM generate_series(1, 3) n
     UNION ALL
     SELECT ${db.quoted}.id_at(clock_timestamp() + interval '30 seconds'), $1::int, 1, 1, 'dispatched', clock_timestamp()`,
    [queue.id],
  );
  await settle(
    db,
    claim,
    claim.ids.map((id) => ({ id, outcome: 'delivered' as const })),
  );
  expect((await health('average_delivery_ms')).value).toBeGreaterThanOrEqual(0);
  expect((await health('delivered')).value).toBe(before + 4);
  const { rows } = await db.query<{ average_ms: number; p50_ms: number; p99_ms: number }>(
    `SELECT average_ms::float8, p50_ms::float8, p99_ms::float8 FROM ${db.quoted}.delivery_times('5 minutes')`,
  );
  for (const value of Object.values(only(rows))) expect(value).toBeGreaterThanOrEqual(0);
});

describe('P14 other work continues after a clock that ran ahead', () => {
  it('daily tasks run, and are taken over from a holder of that time', async () => {
    const begin = async (held: boolean) => {
      const { rows } = await db.query<{ begun: boolean }>(
        `SELECT ${db.quoted}.begin_maintenance(clock_timestamp(), $1, 1000) IS NOT NULL AS begun`,
        [randomUUID()],
      );
      expect(only(rows).begun).toBe(held);
    };
    await begin(true);
    await begin(false);
    await postponeHold(db, 'retention', '2 years');
    await begin(true);
    await freeHold(db, 'retention');
    await db.query(
      `UPDATE ${db.quoted}.maintenance_runs SET done_at = clock_timestamp() + interval '2 years' WHERE task = 'retention'`,
    );
    await begin(true);
  });

  it('notifications resume for a relay that died then, and it counts as living for a minute at most', async () => {
    const relay = randomUUID();
    const destination = await defineDestination(db, 'ahead-listener');
    await db.query(`SELECT ${db.quoted}.register_listener($1, $2, 15000, 30000)`, [
      relay,
      [destination],
    ]);
    await db.query(
      `UPDATE ${db.quoted}.listeners SET active_until = active_until + interval '2 years' WHERE relay_id = $1`,
      [relay],
    );
    const { rows } = await db.query<{ unwatched: number[] }>(
      `SELECT ${db.quoted}.remove_stale_listeners() AS unwatched`,
    );
    expect(only(rows).unwatched).toContain(destination);
    const beat = async (id: string) =>
      db.query(`SELECT ${db.quoted}.heartbeat($1, 'ahead', '99.0.0', '', '{}')`, [id]);
    await beat(relay);
    await db.query(
      `UPDATE ${db.quoted}.relays SET heartbeat_at = heartbeat_at + interval '2 years' WHERE id = $1`,
      [relay],
    );
    await beat(randomUUID());
    const { rows: left } = await db.query<{ ahead: boolean }>(
      `SELECT heartbeat_at > clock_timestamp() AS ahead FROM ${db.quoted}.relays WHERE id = $1`,
      [relay],
    );
    expect(left).toEqual([{ ahead: false }]);
  });

  it('an alert that was sent or held by that clock is sent', async () => {
    const take = async () => {
      const { rows } = await db.query<{ alert: string }>(
        `SELECT alert FROM ${db.quoted}.take_alerts($1, '1 hour', '1 minute')`,
        [randomUUID()],
      );
      return rows.map(({ alert }) => alert);
    };
    expect(await take()).toContain('clock_ahead');
    expect(await take()).not.toContain('clock_ahead');
    await postponeHold(db, 'alerts', '2 years');
    expect(await take()).toContain('clock_ahead');
    for (const ahead of ['retry_at', 'last_notified_at', 'firing_since']) {
      await freeHold(db, 'alerts');
      await db.query(
        `UPDATE ${db.quoted}.alert_states SET retry_at = '-infinity', last_notified = CASE WHEN $1 = 'last_notified_at' THEN 'firing' END
          WHERE alert = 'clock_ahead'`,
        [ahead],
      );
      await db.query(
        `UPDATE ${db.quoted}.alert_states SET ${ahead} = clock_timestamp() + interval '2 years' WHERE alert = 'clock_ahead'`,
      );
      expect(await take(), ahead).toContain('clock_ahead');
    }
  });

  it('statistics of that time no longer count as the last minutes', async () => {
    const queue = await makeQueue(db);
    await db.query(
      `INSERT INTO ${db.quoted}.statistics VALUES (date_bin('10 seconds', clock_timestamp() + interval '1 day', 'epoch'), $1, 1, 1, 1)`,
      [queue.id],
    );
    await db.query(`DELETE FROM ${db.quoted}.samples`);
    await db.query(`SELECT ${db.quoted}.take_sample()`);
    const { rowCount } = await db.query(
      `SELECT FROM ${db.quoted}.statistics WHERE slice > clock_timestamp() + interval '1 hour'`,
    );
    expect(rowCount).toBe(0);
  });
});
