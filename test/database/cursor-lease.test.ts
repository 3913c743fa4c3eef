// The lease of a cursor: one reader at a time, another takes over when it is gone, and a reader that lost the lease
// moves nothing.

import { randomUUID } from 'node:crypto';

import { describe, expect, test } from 'vitest';

import { expireHold, holdOf, postponeHold } from '../support/holds.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { collect, cursorName, enqueue } from '../support/streams.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

type Place = { fence: string; seen: string; target: string | null; position: string | null };

async function take(name: string, leaseMs = 30_000): Promise<Place | undefined> {
  const { rows } = await db.query<Place>(
    `SELECT * FROM ${db.quoted}.take_cursor($1, $2, 'test', $3)`,
    [name, randomUUID(), leaseMs],
  );
  return rows[0];
}

async function move(name: string, fence: string): Promise<boolean> {
  const { rows } = await db.query<{ moved: boolean }>(
    `SELECT ${db.quoted}.move_cursor($1, $2, pg_current_snapshot(), NULL, NULL) AS moved`,
    [name, fence],
  );
  return only(rows).moved;
}

async function define(name: string): Promise<void> {
  await db.query(`SELECT ${db.quoted}.define_destination($1)`, [name]);
  await db.query(`SELECT ${db.quoted}.define_cursor($1)`, [name]);
}

async function expire(name: string): Promise<void> {
  await expireHold(db, `cursor ${name}`);
}

async function release(name: string, fence: string): Promise<unknown> {
  const { rows } = await db.query<{ done: boolean }>(
    `SELECT ${db.quoted}.release_hold('cursor ' || $1, $2) AS done`,
    [name, fence],
  );
  return only(rows).done;
}

async function cursor(name: string): Promise<Record<string, unknown>> {
  const { rows } = await db.query(`SELECT * FROM ${db.quoted}.cursors WHERE name = $1`, [name]);
  return { ...only(rows), hold: await holdOf(db, `cursor ${name}`) };
}

describe('N4 the lease', () => {
  test('belongs to one reader until it expires, is released, or comes from a clock that was set back', async () => {
    const name = cursorName();
    await define(name);
    const first = await take(name);
    expect(first?.fence).toBe('1');
    expect(await take(name)).toBeUndefined();
    await expire(name);
    expect((await take(name))?.fence).toBe('2');
    expect(await release(name, '2')).toBe(true);
    expect((await take(name))?.fence).toBe('3');
    expect(await take(name)).toBeUndefined();
    await postponeHold(db, `cursor ${name}`, '1 hour');
    expect((await take(name))?.fence).toBe('4');
  });

  test('is needed to move the cursor: a reader that lost it moves, extends, parks and releases nothing', async () => {
    const name = cursorName();
    await define(name);
    const first = await take(name);
    await expire(name);
    await take(name);
    const before = await cursor(name);
    const fence = first?.fence ?? '';
    expect(await move(name, fence)).toBe(false);
    const [id] = await enqueue(db, db.pool, {});
    const extended = await db.query(
      `SELECT held, paused FROM ${db.quoted}.extend_cursor($1, ${fence})`,
      [name],
    );
    expect(extended.rows).toEqual([{ held: false, paused: false }]);
    expect(await release(name, fence)).toBe(false);
    const parked = await db.query<{ done: boolean }>(
      `SELECT ${db.quoted}.park_message($1, $2, '3:3:', NULL, NULL, $3, 1, 'exhausted', 'x', NULL, NULL) AS done`,
      [name, fence, id],
    );
    expect(parked.rows).toEqual([{ done: false }]);
    const { rows } = await db.query(
      `SELECT ${db.quoted}.note_failure($1, $2, NULL, 1, 'x', NULL) AS ms`,
      [name, fence],
    );
    expect(rows).toEqual([{ ms: null }]);
    const pausing = await db.query(
      `SELECT ${db.quoted}.pause_cursor($1, $2, NULL, 'x', NULL, NULL, 0) AS paused`,
      [name, fence],
    );
    expect(pausing.rows).toEqual([{ paused: null }]);
    expect(await cursor(name)).toEqual(before);
    const { rowCount } = await db.query(
      `SELECT FROM ${db.quoted}.dead_letters WHERE message_id = $1`,
      [id],
    );
    expect(rowCount).toBe(0);
  });
});

test('N4 a reader of a deleted cursor does not move a new one with the same name', async () => {
  const name = cursorName();
  await define(name);
  const old = await take(name);
  await db.query(`SELECT ${db.quoted}.delete_cursor($1, force => true)`, [name]);
  await define(name);
  expect(await move(name, old?.fence ?? '')).toBe(false);
  const next = await take(name);
  expect(next).toMatchObject({ after_crash: false });
  expect(await move(name, old?.fence ?? '')).toBe(false);
  expect(await move(name, next?.fence ?? '')).toBe(true);
});

describe('N4 of several readers of one name', () => {
  test('one reads, and another continues when it stops', async () => {
    const name = cursorName();
    const options = { name, from: 'now', topics: ['over.*'] } as const;
    const first = await collect(db, options);
    const second = await collect(db, options);
    expect([first.subscription.reading, second.subscription.reading]).toEqual([true, false]);
    const before = await enqueue(db, db.pool, { topic: 'over.one' }, { topic: 'over.two' });
    await waitFor(() => first.ids.length === 2, { what: 'the first to read' });
    await first.subscription.stop();
    const after = await enqueue(db, db.pool, { topic: 'over.three' });
    await waitFor(() => second.ids.length > 0, { what: 'the second to take over' });
    expect(first.ids).toEqual(before);
    expect(second.ids).toEqual(after);
  });

  test('one that lost its lease in the middle of a batch is aborted, and its move changes nothing', async () => {
    const name = cursorName();
    let aborted = false;
    let calls = 0;
    const reader = await collect(
      db,
      { name, from: 'now', topics: ['lost.*'] },
      async (_batch, { signal }) => {
        calls += 1;
        if (calls > 1) return;
        await new Promise<void>((resolve) => {
          signal.addEventListener('abort', () => {
            aborted = true;
            resolve();
          });
        });
      },
    );
    const [id] = await enqueue(db, db.pool, { topic: 'lost.one' });
    await waitFor(() => calls === 1, { what: 'the call' });
    // another reader takes the cursor, unless the first one extends its lease in between, and releases it
    const other = await waitFor(
      async () => {
        await expire(name);
        return take(name, 1000);
      },
      { what: 'the cursor' },
    );
    await waitFor(() => aborted, { what: 'the abort' });
    await release(name, other.fence);
    await waitFor(() => calls === 2, { what: 'the message to come again' });
    expect(reader.events.map((event) => event.name)).toContain('stream_lost');
    await waitFor(() => reader.ids.filter((each) => each === id).length >= 1, { what: 'its end' });
  });

  test('a stop lets the batch in flight finish, and the next reader continues behind it', async () => {
    const name = cursorName();
    let begun = false;
    let go = () => {};
    const gate = new Promise<void>((resolve) => (go = resolve));
    const reader = await collect(
      db,
      { name, from: 'now', topics: ['stop.*'], batchSize: 1 },
      async () => {
        begun = true;
        await gate;
      },
    );
    const ids = await enqueue(db, db.pool, { topic: 'stop.one' }, { topic: 'stop.two' });
    await waitFor(() => begun, { what: 'the first call' });
    const stopped = reader.subscription.stop();
    go();
    await stopped;
    expect(reader.ids).toEqual([ids.toSorted()[0]]);
    const next = await collect(db, { name, topics: ['stop.*'] });
    await waitFor(() => next.ids.length === 1, { what: 'the rest' });
    expect(next.ids).toEqual([ids.toSorted()[1]]);
  });

  test('an event listener that throws cannot stop it', async () => {
    const topic = 'listener.broken';
    const reader = await collect(db, {
      from: 'now',
      topics: [topic],
      onEvent: () => {
        throw new Error('the listener is broken');
      },
    });
    const ids = await enqueue(db, db.pool, { topic });
    await waitFor(() => reader.ids.length === 1, { what: 'it' });
    expect(reader.ids).toEqual(ids);
  });

  test('a stop does not wait for a call that does not end, and the message is read again', async () => {
    const name = cursorName();
    let begun = false;
    const reader = await collect(
      db,
      { name, from: 'now', topics: ['hang.*'], stopDeadlineMs: 100 },
      async () => {
        begun = true;
        await new Promise(() => {});
      },
    );
    const ids = await enqueue(db, db.pool, { topic: 'hang.one' });
    await waitFor(() => begun, { what: 'the call' });
    await reader.subscription.stop();
    const next = await collect(db, { name, topics: ['hang.*'] });
    await waitFor(() => next.ids.length === 1, { what: 'it again' });
    expect(next.ids).toEqual(ids);
  });
});
