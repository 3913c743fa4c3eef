// Expiry of messages for an endpoint: older ones are not sent, and the record and the statistics say so. The age counts
// by the clock of the database, from the enqueue or from the time that the producer gave.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import {
  addEndpoint,
  endpointsOf,
  startEndpointRelay,
  startReceiver,
} from '../support/endpoints.js';
import { enqueueMany, makeQueue, misplaced } from '../support/outbox.js';
import type { Claim, MessageFields, Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { attemptsOf, untilEnded } from '../support/relay.js';
import { settle } from '../support/settling.js';
import { waitFor } from '../support/wait.js';
import { readDestinationStatistics } from '../../src/listing/destination-statistics.js';
import { openDatabase } from '../support/relay.js';

const db = testDatabase();
const hourMs = 3_600_000;

/** Lets messages have been enqueued an hour ago. */
async function age(ids: readonly string[]): Promise<void> {
  await db.query(
    `UPDATE ${db.quoted}.messages SET created_at = created_at - interval '1 hour',
            available_at = available_at - interval '1 hour'
      WHERE id = ANY ($1)`,
    [ids],
  );
  await db.query(
    `UPDATE ${db.quoted}.deliveries SET available_at = available_at - interval '1 hour'
      WHERE message_id = ANY ($1) AND delay_ms IS NULL`,
    [ids],
  );
}

type Expiring = Claim & { expired: (boolean | null)[] };

async function claimExpiring(queue: Queue, expireAfterMs: number | null): Promise<Expiring> {
  const [leaseId, relayId] = [randomUUID(), randomUUID()];
  const { rows } = await db.query<Claim['rows'][number] & { expired: boolean | null }>(
    `SELECT * FROM ${db.quoted}.claim_batch($1::int, $2, $3, 100, 1000000, 30000, p_expire_after_ms => $4)`,
    [queue.id, leaseId, relayId, expireAfterMs],
  );
  const ids = rows.map(({ message_id }) => message_id);
  const expired = rows.map((row) => row.expired);
  return { destinationId: queue.id, leaseId, relayId, rows, ids, expired };
}

describe('a claim', () => {
  it('tells which messages are older than the endpoint allows', async () => {
    const queue = await makeQueue(db);
    const [old = '', fresh = ''] = await queue.enqueue(2);
    await age([old]);
    const claim = await claimExpiring(queue, hourMs / 2);
    expect([claim.ids, claim.expired]).toEqual([
      [old, fresh],
      [true, false],
    ]);
  });

  it('counts from the time that the producer gave', async () => {
    const queue = await makeQueue(db);
    const availableAt = new Date(Date.now() - 60_000).toISOString();
    const [delayed = ''] = await queue.enqueue(1, { availableAt });
    await db.query(
      `UPDATE ${db.quoted}.messages SET created_at = created_at - interval '1 hour' WHERE id = $1`,
      [delayed],
    );
    expect((await claimExpiring(queue, hourMs / 2)).expired).toEqual([false]);
  });

  it('counts the first try of a delayed message from when it is due', async () => {
    const queue = await makeQueue(db);
    const [delayed = ''] = await queue.enqueue(1, { delayMs: hourMs });
    await age([delayed]);
    await queue.makeDue();
    const claim = await claimExpiring(queue, hourMs / 2);
    expect(claim.expired).toEqual([false]);
    await settle(db, claim, [{ id: delayed, outcome: 'retry', errorCode: 'timeout' }]);
    await queue.makeDue();
    expect((await claimExpiring(queue, hourMs / 2)).expired).toEqual([true]);
  });

  it('without an expiry says nothing', async () => {
    const queue = await makeQueue(db);
    await age(await queue.enqueue(1));
    expect((await claimExpiring(queue, null)).expired).toEqual([null]);
  });
});

it('a discarded claim ends without a try, a retry or a dead letter, and frees its key', async () => {
  const queue = await makeQueue(db, { whenDead: 'block' });
  const [first = '', second = '', plain = ''] = await queue.enqueueAll([
    { key: 'k' },
    { key: 'k' },
    {},
  ]);
  const claim = await queue.claim();
  expect(claim.ids.toSorted()).toEqual([first, second, plain].toSorted());
  const ended = await settle(
    db,
    claim,
    [first, plain].map((id) => ({ id, outcome: 'discard' as const, errorCode: 'expired' })),
  );
  expect(ended).toEqual({ settled: 2, lost: [] });
  await settle(db, claim, [{ id: second, outcome: 'release' }]);
  for (const id of [first, plain]) {
    expect(await queue.attempts(id)).toMatchObject([
      { state: 'discarded', error_code: 'expired', tries: 0 },
    ]);
    expect(await queue.status(id)).toMatchObject({ status: 'discarded' });
  }
  const next = await queue.claim();
  expect(next.rows).toMatchObject([{ message_id: second, previous_sequence: '1' }]);
  expect(await queue.deadLetters()).toEqual([]);
  expect(await misplaced(db)).toEqual([]);
});

it('W2 a relay does not send expired messages, with and without a key, and records them', async () => {
  const receiver = await startReceiver();
  const topic = `expiring.${randomUUID()}`;
  const names: string[] = [];
  for (const expireAfterMs of [hourMs / 2, hourMs / 2, undefined])
    names.push(
      (
        await addEndpoint(db, {
          url: `${receiver.url}/${names.length}`,
          topics: [topic],
          ...(expireAfterMs && { expireAfterMs }),
        })
      ).name,
    );
  const message = (fields: MessageFields = {}) => ({ topic, ...fields });
  const old = (
    await enqueueMany(db, db.pool, [message(), message({ key: 'a' }), message({ key: 'a' })])
  ).map(({ id }) => id);
  await age(old);
  const fresh = (await enqueueMany(db, db.pool, [message(), message({ key: 'a' })])).map(
    ({ id }) => id,
  );
  await startEndpointRelay(db);
  for (const name of names) await untilEnded(db, name);
  const at = (place: number) =>
    receiver.requests.filter(({ path }) => path === `/${place}`).map(({ id }) => id);
  expect(at(0).toSorted()).toEqual(fresh.toSorted());
  expect(at(1).toSorted()).toEqual(fresh.toSorted());
  expect(at(2).toSorted()).toEqual([...old, ...fresh].toSorted());
  for (const id of old)
    expect((await attemptsOf(db, id, names[0] ?? '')).at(-1)).toMatchObject({
      state: 'discarded',
      error_code: 'expired',
      error_message: 'it is older than the endpoint allows',
    });
  const explained = await db.query<{ sentence: string }>(
    `SELECT sentence FROM ${db.quoted}.explain($1) WHERE destination = $2`,
    [old[0], names[0]],
  );
  expect(explained.rows).toEqual([
    {
      sentence: expect.stringMatching(
        /^It was older than the endpoint allows at .+, and was not/,
      ) as string,
    },
  ]);
  const database = openDatabase(db);
  const statistics = await waitFor(
    async () => {
      const found = await readDestinationStatistics(database, names[0] ?? '', 10);
      return found.expired + found.delivered === 5 ? found : undefined;
    },
    { what: 'statistics', timeoutMs: 30_000 },
  );
  expect(statistics).toMatchObject({ expired: 3, delivered: 2, failed: 0, died: 0 });
});

it('an expiry that is set while the relay runs counts for what waits', async () => {
  const receiver = await startReceiver();
  const topic = `late.${randomUUID()}`;
  const { name } = await addEndpoint(db, { url: receiver.url, topics: [topic] });
  const endpoints = endpointsOf(db);
  const relay = await startEndpointRelay(db);
  const [first] = await enqueueMany(db, db.pool, [{ topic }]);
  await receiver.has(first?.id ?? '');
  await endpoints.disable(db.pool, { name });
  const waiting = (await enqueueMany(db, db.pool, [{ topic }])).map(({ id }) => id);
  await age(waiting);
  await endpoints.change(db.pool, { name }, { expireAfterMs: 60_000 });
  await relay.event('endpoints_changed', ({ changed }) => changed === 1);
  await endpoints.enable(db.pool, { name });
  await untilEnded(db, name);
  const [attempt] = (await attemptsOf(db, waiting[0] ?? '', name)).slice(-1);
  expect(attempt).toMatchObject({ state: 'discarded', error_code: 'expired' });
});
