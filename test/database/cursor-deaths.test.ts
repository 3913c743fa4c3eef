// Readers that die: only the batch that the handler had is blamed, a message that kills every reader is found and
// parked, and pages soon have full size again.

import { randomUUID } from 'node:crypto';

import { describe, expect, onTestFinished, test } from 'vitest';

import { collect, cursorName, enqueue } from '../support/streams.js';
import { expireHold, holdOf } from '../support/holds.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { urlAs } from '../support/logins.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

type Lease = {
  fence: string;
  after_crash: boolean;
  quarantined_until: string | null;
  quarantined_count: number;
};

async function define(name: string): Promise<void> {
  await db.query(`SELECT ${db.quoted}.define_destination($1)`, [name]);
  await db.query(`SELECT ${db.quoted}.define_cursor($1, 'beginning')`, [name]);
}

async function take(name: string, reader: string = randomUUID()): Promise<Lease> {
  const { rows } = await db.query<Lease>(
    `SELECT * FROM ${db.quoted}.take_cursor($1, $2, 'test', 30000)`,
    [name, reader],
  );
  return only(rows);
}

/** The reader is gone without releasing its lease. */
async function expire(name: string): Promise<void> {
  await expireHold(db, `cursor ${name}`);
}

async function noteBatch(
  name: string,
  { fence }: Lease,
  until: string | undefined,
  count = 1,
): Promise<number | null> {
  const { rows } = await db.query<{ deaths: number | null }>(
    `SELECT ${db.quoted}.note_batch($1, $2, $3, $4) AS deaths`,
    [name, fence, until, count],
  );
  return only(rows).deaths;
}

async function messages(topic: string, count: number): Promise<string[]> {
  const ids = await enqueue(db, db.pool, ...Array.from({ length: count }, () => ({ topic })));
  return ids.toSorted();
}

async function deadLetters(name: string) {
  const { rows } = await db.query<Record<string, unknown>>(
    `SELECT message_id, tries, error_code, error_message FROM ${db.quoted}.find_dead_letters(destination => $1)`,
    [name],
  );
  return rows;
}

describe('N4 a death counts', () => {
  test('against the batch that the handler had, and not against a later or another one', async () => {
    const name = cursorName();
    await define(name);
    const [first, second] = await messages('death.counts', 2);
    expect((await take(name)).after_crash).toBe(false);
    for (let idle = 0; idle < 3; idle += 1) {
      await expire(name);
      expect(await take(name)).toMatchObject({ after_crash: true, quarantined_until: null });
    }
    await expire(name);
    expect(await noteBatch(name, await take(name), first)).toBe(0);
    await expire(name);
    const again = await take(name);
    expect(again).toMatchObject({ quarantined_until: first, quarantined_count: 1 });
    expect(await noteBatch(name, again, first)).toBe(1);
    await expire(name);
    const third = await take(name);
    expect(await noteBatch(name, third, first)).toBe(2);
    expect(await noteBatch(name, third, second)).toBe(0);
    expect(await noteBatch(name, { ...third, fence: '1' }, second)).toBeNull();
  });

  test('not if the same reader comes back, waits for a retry, or released the cursor', async () => {
    const name = cursorName();
    await define(name);
    const [id] = await messages('death.lives', 1);
    const reader = randomUUID();
    await take(name);
    await expire(name);
    expect(await noteBatch(name, await take(name, reader), id)).toBe(0);
    await expire(name);
    const back = await take(name, reader);
    expect(await noteBatch(name, back, id)).toBe(0);
    await db.query(`SELECT ${db.quoted}.note_failure($1, $2, $3, 1, 'x', NULL)`, [
      name,
      back.fence,
      id,
    ]);
    await expire(name);
    const other = await take(name);
    expect(await noteBatch(name, other, id)).toBe(0);
    await db.query(`SELECT ${db.quoted}.release_hold('cursor ' || $1, $2)`, [name, other.fence]);
    expect(await noteBatch(name, await take(name), id)).toBe(0);
  });

  test('no longer once the reader sends a heartbeat', async () => {
    const name = cursorName();
    await define(name);
    const [id] = await messages('death.withdrawn', 1);
    await take(name);
    await expire(name);
    const first = await take(name);
    await noteBatch(name, first, id);
    await expire(name);
    const second = await take(name);
    await db.query(`SELECT ${db.quoted}.withdraw_death($1, $2)`, [name, first.fence]);
    await db.query(`SELECT ${db.quoted}.withdraw_death($1, $2)`, [name, first.fence]);
    expect(await noteBatch(name, second, id)).toBe(0);
  });

  test('no longer once the reader is back, also after other readers have died over the same batch', async () => {
    const name = cursorName();
    await define(name);
    const [id] = await messages('death.withdrawn-later', 1);
    await take(name);
    const readers: Awaited<ReturnType<typeof take>>[] = [];
    for (let reader = 0; reader < 3; reader += 1) {
      await expire(name);
      const lease = await take(name);
      expect(await noteBatch(name, lease, id)).toBe(reader);
      readers.push(lease);
    }
    const [first, second] = readers;
    const third = only(readers.slice(2));
    await db.query(`SELECT ${db.quoted}.withdraw_death($1, $2)`, [name, first?.fence]);
    expect(await noteBatch(name, third, id)).toBe(1);
    await expire(name);
    await take(name);
    await db.query(`SELECT ${db.quoted}.withdraw_death($1, $2)`, [name, second?.fence]);
    await expire(name);
    expect(await noteBatch(name, await take(name), id), 'the third has died').toBe(1);
  });

  test('not against the next message of a subscription that was killed ten times while idle', async () => {
    const name = cursorName();
    const topic = 'death.idle';
    const before = await messages(topic, 3);
    const first = await collect(db, { name, topics: [topic] });
    await waitFor(() => first.ids.length === 3, { what: 'the first messages' });
    await first.subscription.stop();
    for (let death = 0; death < 10; death += 1) {
      await take(name);
      await expire(name);
    }
    const after = await messages(topic, 5);
    const second = await collect(db, { name, topics: [topic] });
    await waitFor(() => second.ids.length === 5, { what: 'the next messages' });
    expect([...first.ids, ...second.ids]).toEqual([...before, ...after]);
    expect(await deadLetters(name)).toEqual([]);
  });
});

test('N4 a message that kills every reader is found, gets its tries alone, and is parked', async () => {
  const topic = 'death.killer';
  const ids = await messages(topic, 40);
  const killer = ids[25] ?? '';
  const name = cursorName();
  const passed: string[] = [];
  const fatal: number[] = [];
  for (let deaths = 0; passed.length < 39 && deaths < 20; deaths += 1) {
    let died = false;
    const reader = await collect(
      db,
      { name, topics: [topic], batchSize: 32, stopDeadlineMs: 0, leaseMs: 30_000 },
      async (batch) => {
        if (!batch.some((message) => message.id === killer))
          return void passed.push(...batch.map(({ id }) => id));
        fatal.push(batch.length);
        died = true;
        await new Promise(() => {});
      },
    );
    await waitFor(() => died || passed.length === 39, { what: 'a death or the end' });
    // the stop releases the lease, which a death does not
    const { holder } = await holdOf(db, `cursor ${name}`);
    await reader.subscription.stop();
    await db.query(
      `UPDATE ${db.quoted}.holds SET holder = $2 WHERE name = 'cursor ' || $1 AND $3`,
      [name, holder, died],
    );
  }
  expect(passed).toEqual(ids.filter((id) => id !== killer));
  // a normal batch, a growing one, an eighth of it, and then three tries alone
  expect(fatal).toEqual([32, 16, 2, 1, 1, 1]);
  expect(await deadLetters(name)).toEqual([
    {
      message_id: killer,
      tries: 3,
      error_code: 'zombie',
      error_message: '3 readers died over it',
    },
  ]);
});

test('N4 after a death batches grow with each success: 1, 2, 4 and so on', async () => {
  const topic = 'death.recovery';
  const name = cursorName();
  await define(name);
  await take(name);
  await expire(name);
  const ids = await messages(topic, 200);
  const reader = await collect(db, { name, topics: [topic], batchSize: 50 });
  await waitFor(() => reader.ids.length === 200, { what: 'all of them' });
  expect(reader.ids).toEqual(ids);
  expect(reader.batches.map((batch) => batch.length)).toEqual([1, 2, 4, 8, 16, 32, 50, 50, 37]);
});

test('N4 once the batch of a death is past, batches have their former size at once', async () => {
  const topic = 'death.past';
  const name = cursorName();
  await define(name);
  const ids = await messages(topic, 120);
  await take(name);
  await expire(name);
  await noteBatch(name, await take(name), ids[15], 16);
  await expire(name);
  const reader = await collect(db, { name, topics: [topic], batchSize: 50 });
  await waitFor(() => reader.ids.length === 120, { what: 'all of them' });
  expect(reader.batches.map((batch) => batch.length)).toEqual([2, 2, 2, 2, 2, 2, 2, 2, 50, 50, 4]);
});

test('N4 a lease that was lost because the database was away is not a death', async () => {
  const name = cursorName();
  const topic = 'death.outage';
  await define(name);
  await take(name);
  await expire(name);
  const [id = ''] = await messages(topic, 1);
  const { hostname, port, pathname, username } = new URL(urlAs(db.url, 'test_relay'));
  const proxy = await TcpProxy.open();
  onTestFinished(() => proxy.close());
  proxy.leadTo({ host: hostname, port: Number(port) });
  const url = `postgresql://${username}@127.0.0.1:${proxy.address.port}${pathname}`;
  let begun = 0;
  const away = await collect(
    db,
    { name, topics: [topic], database: { url, schema: db.schema } },
    async (_batch, { signal }) => {
      begun += 1;
      await new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(new Error('aborted')));
      });
    },
  );
  await waitFor(() => begun === 1, { what: 'the first call' });
  await proxy.leave();
  await waitFor(
    async () => {
      const { rows } = await db.query(
        `SELECT FROM ${db.quoted}.holds WHERE name = 'cursor ' || $1 AND expires_at < clock_timestamp()`,
        [name],
      );
      return rows.length === 1;
    },
    { what: 'the end of the lease' },
  );
  const other = await take(name);
  expect(other).toMatchObject({ quarantined_until: id, quarantined_count: 1 });
  await proxy.comeBack();
  await waitFor(
    async () => {
      const { rows } = await db.query<{ deaths: number }>(
        `SELECT deaths FROM ${db.quoted}.cursors WHERE name = $1`,
        [name],
      );
      return only(rows).deaths === 0;
    },
    { what: "the reader's heartbeat" },
  );
  expect(away.subscription.reading).toBe(false);
});
