// Quarantined deliveries, whose last holder died, are sent while no other delivery of their destination is at risk. A
// relay without room does not keep other relays from being notified.

import { expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { pause } from '../../src/core/outcome.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import {
  attemptsOf,
  Gate,
  Meter,
  send,
  sendOne,
  startRelay,
  untilCount,
  untilPlaces,
} from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

async function sendQuarantined(topic: string): Promise<string> {
  return db.inTransaction(async (client) => {
    const { rows } = await client.query<{ id: string }>(`SELECT id FROM ${db.quoted}.enqueue($1)`, [
      topic,
    ]);
    await client.query(
      `UPDATE ${db.quoted}.deliveries SET quarantined = true WHERE message_id = $1`,
      [only(rows).id],
    );
    return only(rows).id;
  });
}

it('M6 P12 a quarantined delivery that waits longer than a lease stays held, is sent once, and nothing runs beside it', async () => {
  const gate = new Gate();
  const meter = new Meter();
  const definer = await startRelay(db, { destinations: { warden: handler(() => undefined) } });
  await definer.stop();
  let besideQuarantined = 0;
  let quarantinedId = '';
  const relay = await startRelay(db, {
    destinations: {
      warden: handler((message) =>
        meter.during(async () => {
          if (message.id === quarantinedId) besideQuarantined = meter.now;
          else await gate.pass();
        }),
      ),
    },
    relay: { leaseMs: 1000, reapMs: 50, fallbackPollMs: 50 },
  });
  const slow = await sendOne(db, { topic: 'warden' });
  await waitFor(() => meter.now === 1, { what: 'the slow call' });
  quarantinedId = await sendQuarantined('warden');
  // it is claimed, and its lease is extended beyond its first end while it waits
  const heldUntil = async (): Promise<Date | undefined> => {
    const { rows } = await db.query<{ expires_at: Date }>(
      `SELECT expires_at FROM ${db.quoted}.leases WHERE $1 = ANY (message_ids)`,
      [quarantinedId],
    );
    return rows[0]?.expires_at;
  };
  const first = await waitFor(heldUntil, { what: 'the quarantined delivery to be claimed' });
  await waitFor(async () => ((await heldUntil())?.getTime() ?? 0) > first.getTime() + 1500, {
    what: 'its lease to be extended',
  });
  gate.open();
  await untilPlaces(db, 'warden', { delivered: 2, waiting: 0, leased: 0 });
  expect(besideQuarantined).toBe(1);
  for (const id of [slow, quarantinedId]) {
    expect(await attemptsOf(db, id, 'warden')).toMatchObject([
      { state: 'dispatched', claim_no: 1, tries: 1 },
    ]);
  }
  expect(relay.of('lease_lost')).toEqual([]);
});

it('P7 a relay that is full for a long time lets producers notify other relays', async () => {
  const gate = new Gate();
  const received: string[] = [];
  let isJammed = false;
  await startRelay(db, {
    destinations: {
      jammed: handler(() => (isJammed ? gate.pass() : undefined), {
        concurrency: 1,
        timeoutMs: 3_600_000,
      }),
    },
    relay: { batchSize: 2, fallbackPollMs: null, name: 'jammed' },
  });
  const silenced = async (): Promise<boolean> => {
    const { rows } = await db.query<{ silenced: boolean | null }>(
      `SELECT bool_or(b.active_until > clock_timestamp()) AS silenced FROM ${db.quoted}.listeners b`,
    );
    return rows[0]?.silenced ?? false;
  };
  // many small claims make it active; then its destination hangs, with its window full
  await send(
    db,
    Array.from({ length: 60 }, () => ({ topic: 'jammed' })),
  );
  await waitFor(silenced, { what: 'the relay to be active' });
  isJammed = true;
  await send(
    db,
    Array.from({ length: 100 }, () => ({ topic: 'jammed' })),
  );
  await waitFor(() => gate.waiting > 0, { what: 'the jam' });
  const other = await startRelay(db, {
    destinations: { jammed: handler((message) => void received.push(message.id)) },
    relay: { fallbackPollMs: null, name: 'free' },
  });
  await untilCount(received, 1, 'deliveries of the free relay');
  await waitFor(async () => !(await silenced()), {
    what: 'no relay to suppress notifications',
    timeoutMs: 20_000,
  });
  const id = await sendOne(db, { topic: 'jammed' });
  await waitFor(() => received.includes(id), { what: 'the notification' });
  await other.stop();
  gate.open();
});

it('P2 P12 a waiting quarantined delivery does not block a lane in flight', async () => {
  const gate = new Gate();
  const received: string[] = [];
  await startRelay(db, {
    destinations: {
      usher: handler(async (message) => {
        received.push(message.id);
        if (received.length === 1) await gate.pass();
      }),
    },
    relay: { fallbackPollMs: 50 },
  });
  const lane = await send(db, [
    { topic: 'usher', key: 'k' },
    { topic: 'usher', key: 'k' },
  ]);
  await waitFor(() => received.length === 1, { what: 'the head of the lane' });
  const quarantined = await sendQuarantined('usher');
  await untilPlaces(db, 'usher', { waiting: 0, leased: 3 });
  gate.open();
  await untilPlaces(db, 'usher', { delivered: 3, leased: 0 });
  expect(received).toEqual([...lane, quarantined]);
});

it('M6 P12 a quarantined delivery whose lease is lost while it waits is claimed again before it is sent', async () => {
  const gate = new Gate();
  const received: string[] = [];
  const relay = await startRelay(db, {
    destinations: {
      bailiff: handler(async (message) => {
        received.push(message.id);
        if (received.length === 1) await gate.pass();
      }),
    },
    relay: { leaseMs: 1000, reapMs: 50, fallbackPollMs: 50 },
  });
  const slow = await sendOne(db, { topic: 'bailiff' });
  await untilCount(received, 1, 'the slow call');
  const quarantined = await sendQuarantined('bailiff');
  await untilPlaces(db, 'bailiff', { waiting: 0, leased: 2 });
  // the relay extends its leases meanwhile, so the end of this one is set until the reaper has seen it
  const isReaped = async (): Promise<boolean> => {
    const { rowCount } = await db.query(
      `UPDATE ${db.quoted}.leases SET expires_at = '-infinity' WHERE $1 = ANY (message_ids)`,
      [quarantined],
    );
    return rowCount === 0;
  };
  await waitFor(isReaped, { what: 'the end of the lease' });
  await relay.event('lease_lost', ({ messageIds }) => messageIds.includes(quarantined));
  gate.open();
  await untilPlaces(db, 'bailiff', { delivered: 2, waiting: 0, leased: 0 });
  expect(received).toEqual([slow, quarantined]);
  expect(await attemptsOf(db, quarantined, 'bailiff')).toMatchObject([
    { state: 'zombie_requeue', claim_no: 1 },
    { state: 'dispatched', claim_no: 2 },
  ]);
});

it('M6 P12 a waiting quarantined delivery is released, not sent, when another call pauses its destination', async () => {
  const gates = [new Gate(), new Gate()];
  const received: string[] = [];
  const relay = await startRelay(db, {
    destinations: {
      porter: handler(async (message) => {
        const gate = gates[received.push(message.id) - 1];
        await gate?.pass();
        return gate === gates[0] ? pause({ code: 'account_blocked' }) : undefined;
      }),
    },
    relay: { fallbackPollMs: 50 },
  });
  const slow = await send(db, [{ topic: 'porter' }, { topic: 'porter' }]);
  await untilCount(received, 2, 'the slow calls');
  await sendQuarantined('porter');
  await untilPlaces(db, 'porter', { waiting: 0, leased: 3 });
  gates[0]?.open();
  await relay.event('destination_paused');
  gates[1]?.open();
  await untilPlaces(db, 'porter', { waiting: 2, leased: 0, delivered: 1 });
  expect(received).toEqual(slow);
});
