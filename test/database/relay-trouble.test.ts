// A relay with failures around it: killed connections, held locks, lost responses and lost leases. It continues by
// itself, and none of this counts as a failed delivery.

import { setTimeout as delay } from 'node:timers/promises';

import { describe, expect, it, onTestFinished } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { only } from '../support/only.js';
import { misplaced } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openWire } from '../support/relay-proxy.js';
import {
  attemptsOf,
  Gate,
  Meter,
  numbered,
  waitLimitMs,
  places,
  send,
  sendOne,
  startRelay,
  terminateWaybill,
  untilPlaces,
} from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

async function states(destination: string): Promise<Record<string, number>> {
  const { rows } = await db.query<{ state: string; count: number }>(
    `SELECT a.state::text, count(*)::int AS count FROM ${db.quoted}.attempts a
       JOIN ${db.quoted}.destinations t ON t.id = a.destination_id WHERE t.name = $1 GROUP BY a.state`,
    [destination],
  );
  return Object.fromEntries(rows.map(({ state, count }) => [state, count]));
}

function gateway(): Gate {
  const gate = new Gate();
  onTestFinished(() => gate.open());
  return gate;
}

/** Makes the lease expire and be reaped in one step. */
async function takeAway(destination: string): Promise<void> {
  await db.inTransaction(async (client) => {
    await client.query(
      `UPDATE ${db.quoted}.leases SET expires_at = clock_timestamp() - interval '1 second'
        WHERE destination_id = (SELECT id FROM ${db.quoted}.destinations WHERE name = $1)`,
      [destination],
    );
    await client.query(`SELECT ${db.quoted}.reap()`);
  });
}

describe('the database', () => {
  it('a relay continues by itself after all its connections were killed, and no try is used', async () => {
    const received = new Set<string>();
    const relay = await startRelay(db, {
      destinations: {
        survivor: handler(async (message) => {
          await new Promise(setImmediate);
          received.add(message.id);
        }),
      },
      relay: { batchSize: 20 },
    });
    const ids: string[] = [];
    for (let round = 0; round < 4; round += 1) {
      ids.push(...(await send(db, numbered('survivor', 100))));
      const claims = relay.of('claimed').length;
      await waitFor(() => relay.of('claimed').length > claims, { what: 'a claim' });
      expect(await terminateWaybill(db)).toBeGreaterThan(0);
    }
    await untilPlaces(db, 'survivor', { waiting: 0, leased: 0, delivered: 400 });
    expect(received).toEqual(new Set(ids));
    expect(Object.keys(await states('survivor')).filter((s) => s !== 'released')).toEqual([
      'dispatched',
    ]);
    const { rows } = await db.query<{ tries: number }>(
      `SELECT DISTINCT tries FROM ${db.quoted}.attempts WHERE message_id = ANY ($1) AND state = 'dispatched'`,
      [ids],
    );
    expect(rows).toEqual([{ tries: 1 }]);
    expect(await misplaced(db)).toEqual([]);
  });

  it('a lock that is held too long delays a claim and costs no attempt', async () => {
    const relay = await startRelay(db, {
      destinations: { patient: handler(() => undefined) },
      relay: { fallbackPollMs: 20 },
      database: { lockTimeoutMs: 100 },
    });
    const id = await db.inTransaction(async (client) => {
      const { rows } = await client.query<{ id: string }>(
        `SELECT id FROM ${db.quoted}.enqueue(topic => 'patient')`,
      );
      await client.query(`LOCK TABLE ${db.quoted}.deliveries IN ACCESS EXCLUSIVE MODE`);
      await relay.event('trouble', ({ what }) => /^(claim|look for work)/.test(what));
      return only(rows).id;
    });
    await untilPlaces(db, 'patient', { delivered: 1, waiting: 0, leased: 0 });
    expect(await attemptsOf(db, id, 'patient')).toMatchObject([
      { state: 'dispatched', claim_no: 1, tries: 1 },
    ]);
  });

  it('a lock that is held too long delays a settle, and the message is not sent again', async () => {
    let calls = 0;
    const gate = gateway();
    const relay = await startRelay(db, {
      destinations: {
        settled: handler(async () => {
          calls += 1;
          await gate.pass();
        }),
      },
      database: { lockTimeoutMs: 100 },
    });
    const id = await sendOne(db, { topic: 'settled' });
    await untilPlaces(db, 'settled', { leased: 1 });
    await db.inTransaction(async (client) => {
      await client.query(`SELECT FROM ${db.quoted}.leases FOR UPDATE`);
      gate.open();
      await relay.event('trouble', ({ what }) => what === 'settle');
    });
    await untilPlaces(db, 'settled', { delivered: 1, waiting: 0, leased: 0 });
    expect(calls).toBe(1);
    expect(await attemptsOf(db, id, 'settled')).toMatchObject([{ state: 'dispatched', tries: 1 }]);
  });

  it.each([
    ['40001', 'a serialization failure'],
    ['40P01', 'a deadlock'],
  ])('%s, %s, is retried and costs no attempt', async (sqlState) => {
    const name = `conflict-${sqlState}`;
    let calls = 0;
    const relay = await startRelay(db, {
      destinations: { [name]: handler(() => void (calls += 1)) },
    });
    await db.query(`
      CREATE SEQUENCE failures;
      CREATE FUNCTION fail_twice() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
        IF nextval('public.failures') <= 2 THEN RAISE EXCEPTION USING ERRCODE = '${sqlState}', MESSAGE = 'a conflict'; END IF;
        RETURN NULL;
      END $$;
      CREATE TRIGGER fail_twice BEFORE INSERT ON ${db.quoted}.attempts FOR EACH STATEMENT EXECUTE FUNCTION fail_twice()`);
    const id = await sendOne(db, { topic: name });
    await untilPlaces(db, name, { delivered: 1, waiting: 0, leased: 0 });
    await db.query(
      `DROP TRIGGER fail_twice ON ${db.quoted}.attempts; DROP FUNCTION fail_twice; DROP SEQUENCE failures`,
    );
    expect(relay.of('trouble').map(({ what, error }) => `${what}: ${error}`)).toEqual([
      'settle: a conflict',
      'settle: a conflict',
    ]);
    expect(calls).toBe(1);
    expect(await attemptsOf(db, id, name)).toMatchObject([{ state: 'dispatched', tries: 1 }]);
  });

  it('M6 a claim whose response was lost is released, and no try is used', async () => {
    const wire = await openWire(db.url);
    const received: number[] = [];
    const relay = await startRelay(db, {
      destinations: { answerless: handler((message) => void received.push(message.tries)) },
      relay: { listen: false, fallbackPollMs: 20 },
      database: { url: wire.url },
    });
    wire.loseAnswerWith('unheard-of');
    const id = await sendOne(db, { topic: 'answerless', payload: 'unheard-of' });
    await relay.event('leases_released', ({ count }) => count === 1);
    await untilPlaces(db, 'answerless', { delivered: 1, waiting: 0, leased: 0 });
    expect(wire.lost).toBe(1);
    expect(received).toEqual([1]);
    expect(await attemptsOf(db, id, 'answerless')).toMatchObject([
      { state: 'released', claim_no: 1, tries: 0 },
      { state: 'dispatched', claim_no: 2, tries: 1 },
    ]);
  });

  it('M9 a settle whose response was lost is repeated and recognised, and is no lost lease', async () => {
    const wire = await openWire(db.url);
    let calls = 0;
    const relay = await startRelay(db, {
      destinations: { repeated: handler(() => void (calls += 1)) },
      database: { url: wire.url },
    });
    wire.loseAnswerTo('.deliver_leases(');
    const id = await sendOne(db, { topic: 'repeated' });
    await relay.event('trouble', ({ what }) => what === 'settle');
    await relay.event('settled');
    await untilPlaces(db, 'repeated', { delivered: 1, waiting: 0, leased: 0 });
    expect(wire.lost).toBe(1);
    expect(calls).toBe(1);
    expect(relay.of('lease_lost')).toEqual([]);
    expect(await attemptsOf(db, id, 'repeated')).toMatchObject([{ state: 'dispatched', tries: 1 }]);
  });

  it('M12 a stop over a dead network still ends in time', async () => {
    const wire = await openWire(db.url);
    const relay = await startRelay(db, {
      destinations: { severed: handler(() => undefined) },
      relay: { stopDeadlineMs: 500 },
      database: { url: wire.url },
    });
    await sendOne(db, { topic: 'severed' });
    await untilPlaces(db, 'severed', { delivered: 1 });
    wire.silent = true;
    const startedMs = performance.now();
    await relay.stop();
    expect(performance.now() - startedMs).toBeLessThan(3500);
  });
});

describe('leases', () => {
  it('M6 a lease is extended for as long as its delivery takes', async () => {
    const gate = gateway();
    let calls = 0;
    const relay = await startRelay(db, {
      destinations: {
        lengthy: handler(
          () => {
            calls += 1;
            return gate.pass();
          },
          { timeoutMs: 60_000 },
        ),
      },
      relay: { leaseMs: 1000, reapMs: 50, fallbackPollMs: 50 },
    });
    const id = await sendOne(db, { topic: 'lengthy' });
    await untilPlaces(db, 'lengthy', { leased: 1 });
    // three times its duration later it is still the same lease
    await waitFor(
      async () => {
        const { rows } = await db.query<{ old: boolean }>(
          `SELECT clock_timestamp() > claimed_at + 3 * duration AS old FROM ${db.quoted}.leases`,
        );
        return only(rows).old;
      },
      { what: 'the lease to grow old', timeoutMs: waitLimitMs },
    );
    gate.open();
    await untilPlaces(db, 'lengthy', { delivered: 1, waiting: 0, leased: 0 });
    expect(await attemptsOf(db, id, 'lengthy')).toMatchObject([
      { state: 'dispatched', claim_no: 1, tries: 1 },
    ]);
    expect([...relay.of('zombies_requeued'), ...relay.of('lease_lost')]).toEqual([]);
    expect(calls).toBe(1);
  });

  it('M9 a lease that was lost while its message was delivered is logged, and is not a failed publish', async () => {
    const gate = gateway();
    const relay = await startRelay(db, {
      destinations: {
        overtaken: handler(() => gate.pass(), { retry: { delaysMs: [3_600_000] } }),
      },
      relay: { reapMs: 60_000, leaseMs: 600_000 },
    });
    const id = await sendOne(db, { topic: 'overtaken' });
    await waitFor(() => gate.waiting === 1, { what: 'the delivery' });
    await takeAway('overtaken');
    gate.open();
    const lost = await relay.event('lease_lost');
    expect(lost).toMatchObject({
      destination: 'overtaken',
      messageIds: [id],
      noticedBy: 'settle',
    });
    expect(relay.of('delivery_failed')).toEqual([]);
    // the next holder sees only what the reaper wrote
    expect(await attemptsOf(db, id, 'overtaken')).toMatchObject([
      { state: 'zombie_requeue', claim_no: 1, tries: 1 },
    ]);
    expect(await places(db, 'overtaken')).toMatchObject({ waiting: 1, leased: 0, delivered: 0 });
  });

  it('M9 a lease that is gone because it was settled is not lost, while the response is on its way', async () => {
    const wire = await openWire(db.url);
    const relay = await startRelay(db, {
      destinations: { answered: handler(() => undefined) },
      relay: { leaseMs: 1000, reapMs: 300, fallbackPollMs: 300 },
      database: { url: wire.url, statementTimeoutMs: 4000 },
    });
    wire.holdAnswerTo('.deliver_leases(');
    await sendOne(db, { topic: 'answered' });
    await untilPlaces(db, 'answered', { delivered: 1, leased: 0 });
    const extensions = wire.countRequests('.extend_leases(');
    // the first was answered when the second is sent: the lease no longer exists
    await waitFor(() => extensions.count >= 2 || relay.of('lease_lost').length > 0, {
      what: 'two extensions',
    });
    await relay.event('settled');
    expect(wire.held).toBeGreaterThan(0);
    expect(relay.of('lease_lost')).toEqual([]);
  });

  it('M9 messages of a lost lease are not sent any more', async () => {
    const gate = gateway();
    const meter = new Meter();
    const relay = await startRelay(db, {
      destinations: {
        stripped: handler(() => meter.during(() => gate.pass()), {
          concurrency: 1,
          retry: { delaysMs: [3_600_000] },
        }),
      },
      relay: { leaseMs: 1500, reapMs: 500, fallbackPollMs: 500 },
    });
    const ids = await send(db, numbered('stripped', 5));
    await untilPlaces(db, 'stripped', { leased: 5 });
    await takeAway('stripped');
    // noticed when the lease is to be extended, while the first delivery is still in flight
    const lost = await relay.event('lease_lost');
    expect(lost).toMatchObject({ noticedBy: 'extension' });
    expect(lost.messageIds.toSorted()).toEqual(ids.toSorted());
    expect(meter.now).toBe(1);
    gate.open();
    await waitFor(() => meter.now === 0, { what: 'the delivery to end' });
    await relay.stop();
    expect(meter.total).toBe(1);
    for (const id of ids) {
      expect(await attemptsOf(db, id, 'stripped')).toMatchObject([
        { state: 'zombie_requeue', claim_no: 1 },
      ]);
    }
    expect(await misplaced(db)).toEqual([]);
  });

  it('M9 a settle that finds the lease lost ends its deliveries at once', async () => {
    const gate = gateway();
    const meter = new Meter();
    const relay = await startRelay(db, {
      destinations: {
        robbed: handler(() => meter.during(() => gate.pass().then(() => delay(300))), {
          concurrency: 1,
          retry: { delaysMs: [3_600_000] },
        }),
      },
    });
    await send(db, numbered('robbed', 5));
    await untilPlaces(db, 'robbed', { leased: 5 });
    await takeAway('robbed');
    // the next extension is ten seconds away
    gate.open();
    expect(await relay.event('lease_lost')).toMatchObject({ noticedBy: 'settle' });
    const sent = meter.total;
    await relay.stop();
    expect(meter.total).toBe(sent);
    expect(sent).toBeLessThan(5);
    expect(relay.of('lease_lost')).toHaveLength(1);
    expect(await misplaced(db)).toEqual([]);
  });

  it('P12 M6 deliveries of a dead relay get a zombie_requeue attempt, and are delivered with the same id', async () => {
    const received: string[] = [];
    const definition = {
      destinations: {
        inherited: handler((message) => void received.push(message.id), {
          retry: { delaysMs: [1, 1] },
        }),
      },
      relay: { reapMs: 50 },
    };
    const definer = await startRelay(db, definition);
    await definer.stop();
    const ids = await send(db, numbered('inherited', 3));
    await db.query(
      `SELECT FROM ${db.quoted}.claim('inherited', gen_random_uuid(), lease => '300 ms')`,
    );
    const relay = await startRelay(db, definition);
    await relay.event('zombies_requeued', ({ count }) => count === 3);
    await untilPlaces(db, 'inherited', { delivered: 3, waiting: 0, leased: 0 });
    expect(received.toSorted()).toEqual(ids.toSorted());
    for (const id of ids) {
      expect(await attemptsOf(db, id, 'inherited')).toMatchObject([
        { state: 'zombie_requeue', claim_no: 1, tries: 1 },
        { state: 'dispatched', claim_no: 2, tries: 2 },
      ]);
    }
    // each of them could have killed the relay: they were claimed one by one
    expect(relay.of('claimed').map(({ count }) => count)).toEqual([1, 1, 1]);
  });
});
