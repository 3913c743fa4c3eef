// Rollouts: two systems share the messages of some routes, and no message is sent by both or by neither, whatever
// changes meanwhile.

import { describe, expect, it } from 'vitest';

import { setRollout } from '../../src/database/rollouts.js';
import { handler } from '../../src/destinations/handler.js';
import { createOutbox } from '../../src/outbox.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase, sendOne, startRelay, untilPlaces } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

type RouteToBe = { topic: string; to: string; rollout?: string | null };
/** The file of these tests: it grows, and lets go of nothing by chance. */
const file = new Map<string, RouteToBe[]>();

/** Gives a destination these routes, beside what the file has for others. */
async function defineRoutes(destination: string, routes: readonly RouteToBe[]): Promise<void> {
  const all = [...new Map([...file, [destination, routes]]).values()].flat();
  const names = new Set([
    ...file.keys(),
    destination,
    ...all.flatMap(({ rollout }) => (rollout ? [`${rollout}.shadow`] : [])),
  ]);
  const destinations = [...names].map((name) => ({
    name,
    kind: name.endsWith('.shadow') ? 'shadow' : 'handler',
    maxAttempts: 10,
    retryBaseMs: 1000,
    retryMaxMs: 300_000,
  }));
  await db.query(`SELECT ${db.quoted}.sync_definitions($1)`, [
    JSON.stringify({ destinations, routes: all }),
  ]);
  file.set(destination, [...routes]);
}

/** Defines a destination of that name, with one route that has a rollout of that name. */
async function define(name: string, rollout: string | null = name): Promise<void> {
  await defineRoutes(name, [{ topic: name, to: name, rollout }]);
}

async function set(name: string, percent: number, shadow = false): Promise<void> {
  await db.query(`SELECT ${db.quoted}.set_rollout($1, $2, $3, 'ops')`, [name, percent, shadow]);
}

async function decide(name: string, key: string): Promise<string> {
  const { rows } = await db.query<{ decision: string }>(
    `SELECT ${db.quoted}.rollout_decision($1, $2) AS decision`,
    [name, key],
  );
  return only(rows).decision;
}

async function routedTo(destination: string): Promise<Set<string>> {
  const { rows } = await db.query<{ message_id: string }>(
    `SELECT message_id FROM ${db.quoted}.deliveries JOIN ${db.quoted}.destinations d ON d.id = destination_id WHERE d.name = $1`,
    [destination],
  );
  return new Set(rows.map((row) => row.message_id));
}

describe('a share of the keys', () => {
  it('W6 is the same for a key at all times, and grows without letting go of one', async () => {
    await define('stable');
    const keys = Array.from({ length: 400 }, (_, n) => `user-${n}`);
    const sentAt = async (percent: number) => {
      await set('stable', percent);
      const sent = new Set<string>();
      for (const key of keys) if ((await decide('stable', key)) === 'new') sent.add(key);
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

  it('W6 a bucket never changes: md5, whatever the version', async () => {
    const { rows } = await db.query<{ bucket: number }>(
      `SELECT ${db.quoted}.rollout_bucket(key) AS bucket FROM unnest(ARRAY['user-1', 'Zoë', '']) WITH ORDINALITY k(key, n) ORDER BY n`,
    );
    expect(rows.map(({ bucket }) => bucket)).toEqual([3219, 2579, 6393]);
  });

  it('W6 enqueue decides as the other system is told, by key, or by id without one', async () => {
    await define('agreed');
    await set('agreed', 40);
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
    expect(await routedTo('agreed')).toEqual(expected);
  });

  it('W6 what is left to the other system is not unrouted, and explained', async () => {
    await define('left');
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

  it('W6 beside a full route to the same destination it takes nothing away', async () => {
    await define('beside');
    await db.query(
      `INSERT INTO ${db.quoted}.routes (destination_id, topic) SELECT id, '*' FROM ${db.quoted}.destinations WHERE name = 'beside'`,
    );
    const id = await sendOne(db, { topic: 'beside' });
    expect(await routedTo('beside')).toEqual(new Set([id]));
    await db.query(`DELETE FROM ${db.quoted}.routes WHERE topic = '*'`);
  });
});

describe('a change', () => {
  it.each(['READ COMMITTED', 'REPEATABLE READ'])(
    'W6 under load, no message is sent by both or by neither (%s)',
    async (isolation) => {
      const name = isolation === 'READ COMMITTED' ? 'loaded' : 'loaded-once';
      await define(name);
      await db.query(`CREATE TABLE sent_by_old_${name.length} (id text PRIMARY KEY)`);
      const outbox = createOutbox({ schema: db.schema });
      const all: string[] = [];
      const stop = new AbortController();
      const produce = async (producer: number) => {
        const client = await db.connect();
        for (let n = 0; !stop.signal.aborted; n += 1) {
          const key = `${producer}-${n}`;
          await client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
          // whoever is asked first decides for both
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
      const fresh = await routedTo(name);
      expect(old.size).toBeGreaterThan(20);
      expect(fresh.size).toBeGreaterThan(20);
      expect(all.filter((id) => old.has(id) === fresh.has(id))).toEqual([]);
    },
    60_000,
  );

  it('W6 waits for a transaction that has decided, and gives up without having changed anything', async () => {
    await define('waiting');
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`SELECT ${db.quoted}.rollout_decision('waiting', 'k')`);
    await expect(set('waiting', 100)).rejects.toMatchObject({
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
    expect(await decide('waiting', 'other')).toBe('old');
    await client.query('COMMIT');
    await changed;
    expect(await decide('waiting', 'other')).toBe('new');
  });

  it('W6 is recorded: who, from what, to what; the same again is none', async () => {
    await define('recorded');
    await set('recorded', 10);
    await set('recorded', 10);
    await set('recorded', 0, true);
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
    await define('refused');
    await expect(db.query(`SELECT ${db.quoted}.set_rollout(${args})`)).rejects.toThrow(words);
  });

  it('W6 a question about a rollout that is not there, or about no key, is refused', async () => {
    await expect(decide('nowhere', 'k')).rejects.toThrow('rollout "nowhere" does not exist');
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

describe('the configuration', () => {
  /** A file that has nothing of the others may come then. */
  const noneSends = () => db.query(`UPDATE ${db.quoted}.rollouts SET percent = 0, shadow = false`);
  const state = async (name: string) =>
    only(
      (
        await db.query<{ percent: string; shadow: boolean }>(
          `SELECT percent, shadow FROM ${db.quoted}.rollouts WHERE name = $1`,
          [name],
        )
      ).rows,
    );

  it('W6 makes a new rollout at 0, and never changes it afterwards', async () => {
    await define('kept');
    expect(await state('kept')).toEqual({ percent: '0.00', shadow: false });
    await set('kept', 25.5);
    await define('kept');
    expect(await state('kept')).toEqual({ percent: '25.50', shadow: false });
  });

  it('W6 begins at 100 where everything was sent so far', async () => {
    await define('grown', null);
    await define('grown');
    expect(await state('grown')).toEqual({ percent: '100.00', shadow: false });
  });

  it('W6 may let go of a rollout at 100 only', async () => {
    await define('ending');
    await set('ending', 60);
    await expect(define('ending', null)).rejects.toThrow(
      'the rollout "ending" is gone from its route "ending" and stands at 60.00 %: bring it to 100 first',
    );
    await set('ending', 100);
    await define('ending', null);
    expect(await decide('ending', 'k')).toBe('new');
    const id = await sendOne(db, { topic: 'ending' });
    expect(await routedTo('ending')).toEqual(new Set([id]));
  });

  it('W6 may not let go of a rollout below 100 for a route with another topic', async () => {
    await defineRoutes('widened', [{ topic: 'widened.*', to: 'widened', rollout: 'widened' }]);
    await expect(
      defineRoutes('widened', [{ topic: 'widened.registered', to: 'widened' }]),
    ).rejects.toThrow(
      'the rollout "widened" is gone from its route "widened.*" and stands at 0.00 %',
    );
  });

  it('W6 may not let go of it on one route while another keeps it', async () => {
    const kept = { topic: 'halved.a', to: 'halved', rollout: 'halved' };
    const other = { topic: 'halved.b', to: 'halved', rollout: 'halved' };
    await defineRoutes('halved', [kept, other]);
    for (const percent of [0, 60]) {
      await set('halved', percent);
      for (const rollout of [null, 'halved-2'])
        await expect(defineRoutes('halved', [kept, { ...other, rollout }])).rejects.toThrow(
          `the rollout "halved" is gone from its route "halved.b" and stands at ${percent}.00 %: bring it to 100`,
        );
    }
    await set('halved', 100);
    await defineRoutes('halved', [kept, { ...other, rollout: null }]);
  });

  it('W6 may not take a route along of which somebody is told that it sends', async () => {
    const first = { topic: 'taken.a', to: 'taken', rollout: 'taken' };
    const second = { topic: 'taken.b', to: 'taken', rollout: 'taken' };
    await defineRoutes('taken', [first, second]);
    for (const percent of [60, 100]) {
      await set('taken', percent);
      for (const [routes, topic] of [
        [[], 'taken.a'],
        [[first], 'taken.b'],
      ] as const)
        await expect(defineRoutes('taken', routes)).rejects.toThrow(
          `the route "${topic}" is gone and its rollout "taken" stands at ${percent}.00 %, which nobody would send: bring it to 0 first`,
        );
    }
    await set('taken', 60);
    await defineRoutes('taken', [first, { ...second, topic: 'taken.*' }]);
    await set('taken', 0);
    await defineRoutes('taken', [first]);
    await defineRoutes('taken', []);
  });

  it('W6 old and new files may take turns while neither changes who sends', async () => {
    const route = { topic: 'rolling', to: 'rolling' };
    await defineRoutes('rolling', [route]);
    for (let n = 0; n < 2; n += 1) {
      await defineRoutes('rolling', [{ ...route, rollout: 'rolling' }]);
      await defineRoutes('rolling', [route]);
    }
    expect(await decide('rolling', 'k')).toBe('new');
    for (let n = 0; n < 2; n += 1) {
      await defineRoutes('rolled-back', [
        { topic: 'rolled-back', to: 'rolled-back', rollout: 'back' },
      ]);
      await defineRoutes('rolled-back', []);
    }
    expect(await decide('back', 'k')).toBe('old');
  });

  it('W6 may let go of a rollout at 0 that takes its routes along: the other system sends everything', async () => {
    await define('withdrawn');
    await defineRoutes('withdrawn', []);
    expect(await decide('withdrawn', 'k')).toBe('old');
    await expect(set('withdrawn', 50)).rejects.toThrow(
      'no route has the rollout "withdrawn" any more',
    );
  });

  it('W6 a rollout that no route has any more is not changed: its destination gets everything', async () => {
    await define('released');
    await set('released', 100);
    await define('released', null);
    await expect(set('released', 0)).rejects.toMatchObject({ code: '22023' });
    expect(await decide('released', 'k')).toBe('new');
    await define('released');
    await set('released', 0);
    expect(await decide('released', 'k')).toBe('old');
  });

  it('W6 a change while the file lets go of the rollout waits, and is refused', async () => {
    await define('raced');
    await noneSends();
    await set('raced', 100);
    const client = await db.connect();
    await client.query('BEGIN');
    const definitions = {
      destinations: [
        { name: 'raced', kind: 'handler', maxAttempts: 10, retryBaseMs: 1000, retryMaxMs: 300_000 },
      ],
      routes: [{ topic: 'raced', to: 'raced' }],
    };
    await client.query(`SELECT ${db.quoted}.sync_definitions($1)`, [JSON.stringify(definitions)]);
    await expect(set('raced', 50)).rejects.toMatchObject({ code: '55P03' });
    await client.query('ROLLBACK');
  });

  it('W6 a change that looks at routes of long ago is refused', async () => {
    await define('frozen');
    await set('frozen', 100);
    const client = await db.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await client.query(`SELECT FROM ${db.quoted}.routes`);
    await define('frozen', null);
    await expect(
      client.query(`SELECT ${db.quoted}.set_rollout('frozen', 50)`),
    ).rejects.toMatchObject({ code: '25001' });
    await client.query('ROLLBACK');
    expect(await decide('frozen', 'k')).toBe('new');
  });

  it('W6 a route that changes its rollout at 100 for another goes on sending everything', async () => {
    await define('renamed', 'renamed-1');
    await set('renamed-1', 100);
    await define('renamed', 'renamed-2');
    expect(await state('renamed-2')).toEqual({ percent: '100.00', shadow: false });
    expect(await decide('renamed-1', 'k')).toBe('new');
  });

  it('W6 a route that has sent everything does not come under a rollout below 100', async () => {
    const divided = { topic: 'divided', to: 'divided', rollout: 'divided' };
    const whole = { topic: 'whole', to: 'divided' };
    await defineRoutes('divided', [divided, whole]);
    await set('divided', 10);
    await expect(
      defineRoutes('divided', [divided, { ...whole, rollout: 'divided' }]),
    ).rejects.toThrow('the route "whole" has sent everything so far, and the rollout "divided"');
    await set('divided', 100);
    await defineRoutes('divided', [divided, { ...whole, rollout: 'divided' }]);
  });

  it('W6 a relay delivers its share and nothing else', async () => {
    await noneSends();
    const received = new Set<string>();
    const relay = await startRelay(db, {
      destinations: { shared: handler((message) => void received.add(message.id)) },
      routes: [{ topic: 'shared', to: 'shared', rollout: 'shared' }],
    });
    await sendOne(db, { topic: 'shared', key: 'a' });
    await set('shared', 100);
    const id = await sendOne(db, { topic: 'shared', key: 'a' });
    await untilPlaces(db, 'shared', { waiting: 0, leased: 0, delivered: 1 });
    expect(received).toEqual(new Set([id]));
    await relay.stop();
  });
});
