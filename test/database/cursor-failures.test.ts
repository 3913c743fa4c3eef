// Messages that cannot be processed: earlier messages are done, later ones keep their order, and only the failing ones
// are parked, or block.

import { describe, expect, test } from 'vitest';

import { collect, cursorName, enqueue } from '../support/streams.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

async function ten(topic: string): Promise<string[]> {
  const ids = await enqueue(db, db.pool, ...Array.from({ length: 10 }, () => ({ topic })));
  return ids.toSorted();
}

async function deadLetters(destination: string) {
  const { rows } = await db.query<Record<string, unknown>>(
    `SELECT message_id, tries, reason, error_code, error_message, topic
       FROM ${db.quoted}.find_dead_letters(destination => $1)`,
    [destination],
  );
  return rows;
}

describe('N4 N5 a message that fails', () => {
  test('is parked with the dead letters when its tries are used up, and its neighbours continue in order', async () => {
    const topic = 'poison.one';
    const ids = await ten(topic);
    const poison = ids[6] ?? '';
    const tried: number[] = [];
    const reader = await collect(db, { topics: [topic] }, (batch) => {
      const found = batch.find(({ id }) => id === poison);
      if (found === undefined) return;
      if (batch.length === 1) tried.push(found.tries);
      throw new Error('no');
    });
    await waitFor(() => reader.ids.length === 9, { what: 'the others' });
    expect(reader.ids).toEqual(ids.filter((id) => id !== poison));
    // halved until it was alone, and that failure was its first try
    expect(tried).toEqual([1, 2, 3]);
    const name = only(reader.events.filter((event) => event.name === 'stream_taken')).cursor;
    expect(await deadLetters(name)).toEqual([
      {
        message_id: poison,
        tries: 3,
        reason: 'exhausted',
        error_code: 'thrown',
        error_message: 'no',
        topic,
      },
    ]);
    expect(reader.events).toContainEqual({
      name: 'stream_parked',
      partition: 0,
      cursor: name,
      messageId: poison,
      tries: 3,
      code: 'thrown',
    });
    const failed = reader.events.filter((event) => event.name === 'stream_failed');
    expect(failed.map(({ messageId, tries }) => ({ messageId, tries }))).toEqual(
      [1, 2, 3].map((tries) => ({ messageId: poison, tries })),
    );
    // reported when the cursor has moved past it
    const read = () =>
      reader.events
        .filter((event) => event.name === 'stream_read')
        .reduce((sum, { count }) => sum + count, 0);
    await waitFor(() => read() >= 9, { what: 'the events of what was read' });
  });

  test('blocks the cursor if that is the policy, reports the reason, and continues when it succeeds', async () => {
    const topic = 'poison.two';
    const ids = await ten(topic);
    const name = cursorName();
    let broken = true;
    let calls = 0;
    const reader = await collect(db, { name, topics: [topic], whenExhausted: 'block' }, (batch) => {
      if (!broken || !batch.some(({ id }) => id === ids[2])) return;
      calls += 1;
      throw new Error('not yet');
    });
    await waitFor(() => calls > 12, { what: 'more tries than its maximum' });
    expect(reader.ids).toEqual(ids.slice(0, 2));
    const { rows } = await db.query<Record<string, unknown>>(
      `SELECT behind::int, error_code, error_message, tries > 3 AS tried FROM ${db.quoted}.cursor_status() WHERE name = $1`,
      [name],
    );
    expect(rows).toEqual([
      { behind: 8, error_code: 'thrown', error_message: 'not yet', tried: true },
    ]);
    broken = false;
    await waitFor(() => reader.ids.length === 10, { what: 'the rest' });
    expect(reader.ids).toEqual(ids);
    expect(await deadLetters(name)).toEqual([]);
  });

  test('that takes too long counts as failed', async () => {
    const topic = 'poison.slow';
    const [id] = await enqueue(db, db.pool, { topic });
    const reader = await collect(
      db,
      { topics: [topic], timeoutMs: 20, retry: { maxAttempts: 1 } },
      async () => new Promise(() => {}),
    );
    await waitFor(() => reader.events.some((event) => event.name === 'stream_parked'), {
      what: 'its end',
    });
    const { rows } = await db.query(
      `SELECT error_code FROM ${db.quoted}.dead_letters WHERE message_id = $1`,
      [id],
    );
    expect(rows).toEqual([{ error_code: 'timeout' }]);
  });

  test('is read again by the same reader when an operator retries it', async () => {
    const topic = 'poison.again';
    const [id] = await enqueue(db, db.pool, { topic });
    const name = cursorName();
    let broken = true;
    const reader = await collect(db, { name, topics: [topic], retry: { maxAttempts: 1 } }, () => {
      if (broken) throw new Error('no');
    });
    await waitFor(async () => (await deadLetters(name)).length === 1, { what: 'the dead letter' });
    broken = false;
    await db.query(`SELECT ${db.quoted}.retry_dead_letters(destination => $1)`, [name]);
    await waitFor(() => reader.ids.length === 1, { what: 'it again' });
    expect(reader.ids).toEqual([id]);
  });
});
