// Rollouts: two systems share the messages of some routes. No message is sent by both or by neither, whatever changes
// meanwhile. What a configuration may change is in rollout-configuration.test.ts.

import { describe, expect, it } from 'vitest';

import { setRollout } from '../../src/features/rollouts/database.js';
import { handler } from '../../src/destinations/handler.js';
import { createOutbox } from '../../src/producer/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase, sendOne, startRelay, untilPlaces } from '../support/relay.js';
import { Rollouts } from '../support/rollouts.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const rollouts = new Rollouts(db);

describe('a share of the keys', () => {
  it('W6 is stable for each key, and a larger share contains all keys of a smaller one', async () => {
    await rollouts.define('stable');
    const keys = Array.from({ length: 400 }, (_, n) => `user-${n}`);
    const sentAt = async (percent: number) => {
      await rollouts.set('stable', percent);
      const sent = new Set<string>();
      for (const key of keys) if ((await rollouts.decide('stable', key)) === 'new') sent.add(key);
      return sent;
    };
    expect((await sentAt(0)).size).toBe(0);
    const tenth = await sentAt(10);
    const half = await sentAt(50);
    expect(tenth.size).toBeGreaterThan(20);
    expect(tenth.size).toBeLessThan(70);
    expect(half.size).toBeGreaterThan(150);
    expect([...tenth].every((key) => half.has(key))).toBe(true);
    expect((await sentAt(100)).size).toBe(keys.length);
    expect(await sentAt(10)).toEqual(tenth);
  });

  it('W6 a bucket never changes: md5, in every version', async () => {
    const { rows } = await db.query<{ bucket: number }>(
      `SELECT ${db.quoted}.rollout_bucket(key) AS bucket FROM unnest(ARRAY['user-1', 'Zoë', '']) WITH ORDINALITY k(key, n) ORDER BY n`,
    );
    expect(rows.map(({ bucket }) => bucket)).toEqual([3219, 2579, 6393]);
  });

  it('W6 enqueue and rolloutDecision agree, by key, or by id without one', async () => {
    await rollouts.define('agreed');
    await rollouts.set('agreed', 40);
    const outbox = createOutbox({ schema: db.schema });
    const expected = new Set<string>();
    await db.inTransaction(async (client) => {
      const messages = Array.from({ length: 200 }, (_, n) => ({
        topic: 'agreed',
        ...(n % 2 === 0 && { key: `k${n}` }),
      }));
      const enqueued = await outbox.enqueueMany(client, messages);
      for (const [n, { id }] of enqueued.entries()) {
        const decision = await outbox.rolloutDecision(client, 'agreed', messages[n]?.key ?? id);
        if (decision === 'new') expected.add(id);
      }
    });
    expect(expected.size).toBeGreaterThan(40);
    expect(expected.size).toBeLessThan(120);
    expect(await rollouts.routedTo('agreed')).toEqual(expected);
  });

  it('W6 messages for the other system are not unrouted, and explain says so', async () => {
    await rollouts.define('left');
    const id = await sendOne(db, { topic: 'left' });
    const { rows } = await db.query(
      `SELECT 1 FROM ${db.quoted}.unrouted_messages WHERE message_id = $1`,
      [id],
    );
    expect(rows).toEqual([]);
    const { rows: why } = await db.query(
      `SELECT destination, reason, sentence FROM ${db.quoted}.explain($1)`,
      [id],
    );
    expect(why).toEqual([
      {
        destination: 'left',
        reason: 'left_by_rollout',
        sentence:
          'The rollout left left it to the other system when it was enqueued; now it sends 0 %.',
      },
    ]);
  });

  it('W6 does not reduce what a full route to the same destination sends', async () => {
    await rollouts.define('beside');
    await db.query(
      `INSERT INTO ${db.quoted}.routes (destination_id, topic) SELECT id, '*' FROM ${db.quoted}.destinations WHERE name = 'beside'`,
    );
    const id = await sendOne(db, { topic: 'beside' });
    expect(await rollouts.routedTo('beside')).toEqual(new Set([id]));
    await db.query(`DELETE FROM ${db.quoted}.routes WHERE topic = '*'`);
  });
});

describe('a change', () => {
  it.each(['READ COMMITTED', 'REPEATABLE READ'])(
    'W6 under load, no message is sent by both or by neither (%s)',
    async (isolation) => {
      const name = isolation === 'READ COMMITTED' ? 'loaded' : 'loaded-once';
      await rollouts.define(name);
      await db.query(`CREATE TABLE sent_by_old_${name.length} (id text PRIMARY KEY)`);
      const outbox = createOutbox({ schema: db.schema });
      const all: string[] = [];
      const stop = new AbortController();
      const produce = async (producer: number) => {
        const client = await db.connect();
        for (let n = 0; !stop.signal.aborted; n += 1) {
          const key = `${producer}-${n}`;
          await client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
          // the first question decides for both systems
          const early = n % 2 === 0 ? await outbox.rolloutDecision(client, name, key) : undefined;
          if (n % 3 === 0) await client.query('SELECT pg_sleep(0.005)');
          const { id } = await outbox.enqueue(client, { topic: name, key });
          if (n % 5 === 0) await client.query('SELECT pg_sleep(0.005)');
          const decision = early ?? (await outbox.rolloutDecision(client, name, key));
          if (decision === 'old')
            await client.query(`INSERT INTO sent_by_old_${name.length} VALUES ($1)`, [id]);
          await client.query('COMMIT');
          all.push(id);
        }
        await client.end();
      };
      const producers = Array.from({ length: 6 }, (_, producer) => produce(producer));
      const database = openDatabase(db);
      for (const percent of [10, 50, 100, 50, 0, 100, 30, 70, 0, 90, 20, 60]) {
        await setRollout(database, name, { percent, shadow: false }, 'ops', { pauseMs: 5 });
        const target = all.length + 15;
        await waitFor(() => all.length >= target, { what: 'more messages' });
      }
      stop.abort();
      await Promise.all(producers);
      const { rows } = await db.query<{ id: string }>(`SELECT id FROM sent_by_old_${name.length}`);
      const old = new Set(rows.map(({ id }) => id));
      const fresh = await rollouts.routedTo(name);
      expect(old.size).toBeGreaterThan(20);
      expect(fresh.size).toBeGreaterThan(20);
      expect(all.filter((id) => old.has(id) === fresh.has(id))).toEqual([]);
    },
    60_000,
  );

  it('W6 waits for a transaction that has decided, and gives up without a change', async () => {
    await rollouts.define('waiting');
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`SELECT ${db.quoted}.rollout_decision('waiting', 'k')`);
    await expect(rollouts.set('waiting', 100)).rejects.toMatchObject({
      code: '55P03',
      message: 'the rollout "waiting" is not changed: a transaction that has decided is still open',
    });
    const changed = setRollout(
      openDatabase(db),
      'waiting',
      { percent: 100, shadow: false },
      'ops',
      { pauseMs: 20 },
    );
    expect(await rollouts.decide('waiting', 'other')).toBe('old');
    await client.query('COMMIT');
    await changed;
    expect(await rollouts.decide('waiting', 'other')).toBe('new');
  });

  it('W6 is recorded with actor and values; setting the same value is not', async () => {
    await rollouts.define('recorded');
    await rollouts.set('recorded', 10);
    await rollouts.set('recorded', 10);
    await rollouts.set('recorded', 0, true);
    const { rows } = await db.query(
      `SELECT actor, subject FROM ${db.quoted}.operator_actions WHERE subject ->> 'rollout' = 'recorded' ORDER BY id`,
    );
    expect(rows).toMatchObject([
      { actor: 'ops', subject: { percent: 10, percentBefore: 0, shadowBefore: false } },
      { actor: 'ops', subject: { shadow: true, percentBefore: 10 } },
    ]);
  });

  it.each([
    ["'refused', 101", 'percent is 101: give a number from 0 to 100'],
    ["'refused', 0.125", 'percent is 0.125'],
    ["'refused', NULL", 'percent is null'],
    ["'refused', 10, true", 'a shadow sends nothing'],
    ["'nowhere', 10", 'rollout "nowhere" does not exist'],
  ])('W6 set_rollout(%s) is refused', async (args, words) => {
    await rollouts.define('refused');
    await expect(db.query(`SELECT ${db.quoted}.set_rollout(${args})`)).rejects.toThrow(words);
  });

  it('W6 a question about an unknown rollout, or without a key, is refused', async () => {
    await expect(rollouts.decide('nowhere', 'k')).rejects.toThrow(
      'rollout "nowhere" does not exist',
    );
    await expect(db.query(`SELECT ${db.quoted}.rollout_decision('nowhere', NULL)`)).rejects.toThrow(
      'key is null',
    );
  });

  it('W6 outside a transaction nothing is decided', async () => {
    const outbox = createOutbox({ schema: db.schema });
    await expect(outbox.rolloutDecision(await db.connect(), 'x', 'k')).rejects.toThrow(
      'a decision holds until the end of its transaction',
    );
  });
});

// the last test: its configuration drops the routes of all others
it('W6 a relay delivers its share and nothing else', async () => {
  await rollouts.stopAll();
  const received = new Set<string>();
  const relay = await startRelay(db, {
    destinations: { shared: handler((message) => void received.add(message.id)) },
    routes: [{ topic: 'shared', to: 'shared', rollout: 'shared' }],
  });
  await sendOne(db, { topic: 'shared', key: 'a' });
  await rollouts.set('shared', 100);
  const id = await sendOne(db, { topic: 'shared', key: 'a' });
  await untilPlaces(db, 'shared', { waiting: 0, leased: 0, delivered: 1 });
  expect(received).toEqual(new Set([id]));
  await relay.stop();
});
