// A message that is too large to read, which only the owner of the schema can write: it becomes a dead letter without
// being read, other messages are delivered, and its key keeps its order. Commands and the page do not read it either.

import { describe, expect, it } from 'vitest';

import { batchHandler, handler } from '../../src/destinations/handler.js';
import { readableBytes } from '../../src/core/message.js';
import { defineDestination } from '../support/destinations.js';
import { only } from '../support/only.js';
import { makeQueue, misplaced } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { numbered, send, startRelay, untilPlaces } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import { releaseLease } from '../support/settling.js';
import { collect, enqueue } from '../support/streams.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

/** As text; a few bytes stored. */
/** The size of 1e131071 as text, with its comma; a few bytes are stored. */
const numberBytes = 131_074;
const numbers = Math.ceil(readableBytes / numberBytes);
/** PostgreSQL has no text of more than 1 GiB: reading such a message as text fails. */
const numbersBeyondText = Math.ceil(2 ** 30 / numberBytes);

async function makeTooLarge(id: string | undefined, count = numbers): Promise<string> {
  await db.query(
    `UPDATE ${db.quoted}.messages m SET payload = p.payload, bytes = ${count * numberBytes}
       FROM (SELECT jsonb_agg('1e131071'::jsonb) AS payload FROM generate_series(1, ${count})) p WHERE m.id = $1`,
    [id],
  );
  return id ?? '';
}

/** Without the payload, which would crash this process. */
async function deadLetters(destination: string) {
  const { rows } = await db.query<Record<string, unknown>>(
    `SELECT d.message_id, d.reason, d.error_code, d.bytes > ${readableBytes} AS large, d.payload IS NOT NULL AS kept
       FROM ${db.quoted}.dead_letters d JOIN ${db.quoted}.destinations t ON t.id = d.destination_id
      WHERE t.name = $1 ORDER BY d.message_id`,
    [destination],
  );
  return rows;
}

async function explanation(id: string) {
  const { rows } = await db.query<{ reason: string; sentence: string; remedy: string }>(
    `SELECT reason, sentence, remedy FROM ${db.quoted}.explain($1)`,
    [id],
  );
  return only(rows);
}

const tooLarge = (message_id: string) => ({
  message_id,
  reason: 'rejected',
  error_code: 'too_large_to_read',
  large: true,
  kept: true,
});

describe('a relay', () => {
  it.each(['single', 'batch'] as const)(
    'M13 delivers the neighbours, and explain says why it did not read the message: %s',
    async (kind) => {
      const received: string[] = [];
      const destination =
        kind === 'single'
          ? handler((message) => void received.push(message.id))
          : batchHandler((messages) => {
              received.push(...messages.map(({ id }) => id));
              return Promise.resolve();
            });
      const definition = { destinations: { [kind]: destination } };
      // the routes must exist before the first message is sent
      await (await startRelay(db, definition)).stop();
      const ids = await send(db, numbered(kind, 3));
      const large = await makeTooLarge(ids[1]);
      const relay = await startRelay(db, definition);
      await untilPlaces(db, kind, { waiting: 0, leased: 0, dead: 1, delivered: 2 });
      expect(new Set(received)).toEqual(new Set([ids[0], ids[2]]));
      expect(await deadLetters(kind)).toEqual([tooLarge(large)]);
      expect(relay.of('trouble')).toEqual([]);
      const { reason, sentence, remedy } = await explanation(large);
      expect(reason).toBe('dead');
      expect(sentence).toMatch(
        /^It has been dead since .+ and was not read: its payload and headers have \d{8} bytes as text, and nothing larger than 68157440 is read\.$/,
      );
      expect(remedy).toContain(`waybill dead-letters discard ${large}`);
    },
  );

  it.each([
    ['continue', { waiting: 0, dead: 1, delivered: 3 }],
    ['block', { waiting: 2, dead: 1, delivered: 1 }],
    ['park', { waiting: 0, dead: 3, delivered: 1 }],
  ] as const)(
    'P2 keeps the order of a key whose message is too large: %s',
    async (whenDead, places) => {
      const name = `keyed-${whenDead}`;
      const received: string[] = [];
      const definition = {
        destinations: {
          [name]: handler((message) => void received.push(message.id), { whenDead }),
        },
      };
      await (await startRelay(db, definition)).stop();
      const ids = await send(db, numbered(name, 4, { key: 'k' }));
      const large = await makeTooLarge(ids[1]);
      await startRelay(db, definition);
      await untilPlaces(db, name, { leased: 0, ...places });
      expect(received).toEqual(ids.filter((id) => id !== large).slice(0, places.delivered));
      expect((await deadLetters(name))[0]).toEqual(tooLarge(large));
      expect(await misplaced(db)).toEqual([]);
    },
  );
});

it.each(['relay', 'worker', 'reaper', 'parking', 'fewer attempts'] as const)(
  'M13 a message whose text would be too large becomes a dead letter without being read: %s',
  async (how) => {
    const queue = await makeQueue(db, { maxAttempts: 2, whenDead: 'park' });
    const key = { key: 'k', namespace: queue.name };
    const [head = '', second] = await queue.enqueueAll([key, key]);
    const large = await makeTooLarge(how === 'parking' ? second : head, numbersBeyondText);
    const name = queue.name;
    if (how === 'worker')
      await db.query(`SELECT ${db.quoted}.claim($1, gen_random_uuid())`, [name]);
    else if (how === 'relay' || how === 'parking') await queue.kill(head);
    else {
      await db.query(`UPDATE ${db.quoted}.deliveries SET tries = 1 WHERE message_id = $1`, [large]);
      if (how === 'reaper') {
        await queue.claim({ limit: 1 });
        await db.query(`UPDATE ${db.quoted}.leases SET expires_at = '-infinity'`);
        await db.query(`SELECT ${db.quoted}.reap()`);
      } else {
        await releaseLease(db, await queue.claim());
        await defineDestination(db, name, { maxAttempts: 1 });
      }
    }
    const letters = await deadLetters(name);
    expect(letters).toContainEqual(
      expect.objectContaining({ message_id: large, large: true, kept: true }),
    );
    await db.query(`SELECT ${db.quoted}.retry_dead_letters($1)`, [name]);
    expect(await deadLetters(name)).toEqual([]);
  },
);

it('M13 a worker gets the neighbours, and a retry makes the message a dead letter again', async () => {
  const queue = await makeQueue(db);
  const ids = await queue.enqueue(3);
  const large = await makeTooLarge(ids[1]);
  const claim = async () => {
    const { rows } = await db.query<{ message_id: string }>(
      `SELECT message_id FROM ${db.quoted}.claim($1, gen_random_uuid())`,
      [queue.name],
    );
    return rows.map(({ message_id }) => message_id);
  };
  expect(await claim()).toEqual([ids[0], ids[2]]);
  expect(await deadLetters(queue.name)).toEqual([tooLarge(large)]);
  await db.query(`SELECT ${db.quoted}.retry_dead_letters($1)`, [queue.name]);
  expect(await deadLetters(queue.name)).toEqual([]);
  expect(await claim()).toEqual([]);
  expect(await deadLetters(queue.name)).toEqual([tooLarge(large)]);
});

it('N4 N5 a reader of the log parks it without reading it, and continues in order', async () => {
  const topic = 'log.large';
  const ids = (
    await enqueue(db, db.pool, ...Array.from({ length: 5 }, () => ({ topic })))
  ).toSorted();
  const large = await makeTooLarge(ids[2]);
  const reader = await collect(db, { topics: [topic] });
  await waitFor(() => reader.ids.length === 4, { what: 'the others' });
  expect(reader.ids).toEqual(ids.filter((id) => id !== large));
  const { cursor } = only(reader.events.filter((event) => event.name === 'stream_taken'));
  await waitFor(async () => (await deadLetters(cursor)).length === 1, { what: 'the dead letter' });
  expect(await deadLetters(cursor)).toEqual([tooLarge(large)]);
});

it('the API shows it without its payload, and refuses to read the payload', async () => {
  const queue = await makeQueue(db);
  const large = await makeTooLarge((await queue.enqueue(1))[0]);
  const ask = await (await serveDatabase(db)).as('read');
  const { status, body } = await ask('GET', `/api/messages/${large}`);
  expect(status).toBe(200);
  expect(body).toMatchObject({ id: large, payloadText: '', headers: null });
  expect(body['payloadBytes']).toBeGreaterThan(readableBytes);
  expect(await ask('GET', `/api/messages/${large}/payload`)).toMatchObject({ status: 413 });
});
