// The chat platform's store and dispatcher: order of claims, leases, retries of each namespace, stops.

import { randomUUID } from 'node:crypto';

import { expect, test } from 'vitest';

import { dispatch } from '../../examples/chat-usage/dispatcher.js';
import type { DispatchEvent, Publish } from '../../examples/chat-usage/dispatcher.js';
import { enqueue } from '../../examples/chat-usage/store.js';
import { chatPlatform, sqlOf } from '../support/chat.js';
import { only } from '../support/only.js';
import { inTransaction } from '../support/postgres.js';
import { replay } from '../support/replays.js';
import { waitFor } from '../support/wait.js';

const chat = chatPlatform();
const { db, define, due, events, expire, put, store } = chat;
const batch = { batch_size: 10, lease_duration: 30_000, max_attempts: 3 };
const silent = { log: () => undefined };

test('M8 M14 claims are in order of creation, then id: retries, quarantined and new messages alike', async () => {
  await define('order');
  const ids = await put('order', 3);
  const dying = store('order');
  const claimed = await dying.claim_batch({ ...batch, batch_size: 2 });
  expect(claimed.map(({ id }) => id)).toEqual(ids.slice(0, 2));
  await dying.nack(ids[1] ?? '', 'failed');
  await due('order');
  await expire('order');
  ids.push(...(await put('order', 2)));
  // the first is quarantined, the second is a retry, the others are new; three claims take one each
  const seen: string[] = [];
  for (const batch_size of [1, 2, 10])
    seen.push(...(await store('order').claim_batch({ ...batch, batch_size })).map(({ id }) => id));
  expect(seen).toEqual(ids);
});

test('M5 M14 a retried dead letter and a replay have their place by creation, also between claims', async () => {
  await define('revived');
  const [dead = '', sent = ''] = await put('revived', 2);
  const first = store('revived');
  for (let attempt = 1; attempt <= 3; attempt += 1) {
    await first.claim_batch(batch);
    if (attempt === 1) await first.ack(sent);
    await first.nack(dead, 'failed');
    await due('revived');
  }
  const waiting = await put('revived', 2);
  await replay(db, 'modkit.revived', { ids: [sent] });
  await db.query("SELECT outbox.retry_dead_letters('modkit.revived')");
  const seen: string[] = [];
  for (const batch_size of [1, 1, 1, 10])
    seen.push(
      ...(await store('revived').claim_batch({ ...batch, batch_size })).map(({ id }) => id),
    );
  expect(seen).toEqual([dead, sent, ...waiting]);
});

test('M6 a worker that was not seen for a day is forgotten when another one comes, unless it holds something', async () => {
  await define('workers');
  await put('workers', 2);
  const idle = store('workers', 'idle worker');
  const holder = store('workers', 'holding worker');
  const [first] = await idle.claim_batch({ ...batch, batch_size: 1 });
  await idle.ack(first?.id ?? '');
  await holder.claim_batch({ ...batch, batch_size: 1 });
  const known = async (): Promise<string[]> => {
    const { rows } = await db.query<{ worker_id: string }>(
      "SELECT worker_id FROM modkit.workers WHERE worker_id LIKE '% worker' ORDER BY 1",
    );
    return rows.map(({ worker_id }) => worker_id);
  };
  await store('workers', 'first new worker').claim_batch(batch);
  expect(await known()).toEqual(['first new worker', 'holding worker', 'idle worker']);
  await db.query(
    "UPDATE modkit.workers SET seen_at = now() - interval '25 hours' WHERE worker_id <> 'first new worker'",
  );
  await store('workers', 'second new worker').claim_batch(batch);
  expect(await known()).toEqual(['first new worker', 'holding worker', 'second new worker']);
  await idle.claim_batch(batch);
  expect(await known()).toContain('idle worker');
});

test('M14 messages of concurrent producers are claimed by created_at, then id', async () => {
  await define('many');
  await Promise.all(
    [1, 2, 3, 4, 5, 6].map(() =>
      inTransaction(chat.pool('chat_producer'), async (client) => {
        for (let n = 0; n < 20; n += 1)
          await enqueue(client, { namespace: 'many', topic: 'x', payload: null });
      }),
    ),
  );
  const order = (await events("namespace = 'many'")).map(({ id }) => id);
  const seen: string[] = [];
  for (let round = 0; round < 8; round += 1)
    seen.push(
      ...(await store('many').claim_batch({ ...batch, batch_size: 15 })).map(({ id }) => id),
    );
  expect(seen).toHaveLength(120);
  expect(seen).toEqual(order);
});

test('M14 the creation time is the place in the queue, to the microsecond', async () => {
  await define('exact');
  await put('exact', 3);
  const { rows } = await chat
    .pool('chat_reader')
    .query(
      `SELECT FROM public.modkit_outbox_events WHERE namespace = 'exact' AND next_attempt_at = created_at`,
    );
  expect(rows).toHaveLength(3);
});

test('M14 the platform has no ordering keys: its producers cannot give one, and a foreign keyed message keeps its place in a batch', async () => {
  await define('keyed');
  const [first = ''] = await put('keyed', 1);
  // written past the platform, by an administrator
  const { rows } = await db.query<{ id: string }>(
    `SELECT id FROM outbox.enqueue('x', '{}', namespace => 'keyed', key => 'k', available_at => clock_timestamp())`,
  );
  const [last = ''] = await put('keyed', 1);
  const claimed = await store('keyed').claim_batch(batch);
  expect(claimed.map(({ id }) => id)).toEqual([first, only(rows).id, last]);
});

test('M6 M7 M13 M14 the next claim reclaims an expired lease, without a relay or a reaper, and at the maximum the message is dead', async () => {
  await define('crash', [2, '1 hour', '1 hour']);
  const ids = await put('crash', 2);
  const two = { ...batch, max_attempts: 2 };
  for (const attempts of [1, 2]) {
    const claimed = await store('crash').claim_batch(two);
    expect(claimed).toMatchObject(ids.map((id) => ({ id, attempts })));
    // held: not for others
    expect(await store('crash').claim_batch(two)).toEqual([]);
    await expire('crash');
    expect(await events("namespace = 'crash'")).toMatchObject([
      { status: 'processing', attempts },
      { status: 'processing', attempts },
    ]);
  }
  expect(await store('crash').claim_batch(two)).toEqual([]);
  expect(await events("namespace = 'crash'")).toMatchObject([
    { status: 'dead', attempts: 2, last_error: 'zombie' },
    { status: 'dead', attempts: 2, last_error: 'zombie' },
  ]);
  const { rows } = await db.query<{ value: string }>(
    "SELECT value FROM outbox.health WHERE metric = 'dead'",
  );
  expect(Number(only(rows).value)).toBeGreaterThanOrEqual(2);
});

test('M6 M14 a lease that a reaper of a relay ended is reclaimed at once, too, and the table says so', async () => {
  await define('reaped', [3, '1 hour', '1 hour']);
  const ids = await put('reaped', 2);
  await store('reaped').claim_batch(batch);
  await expire('reaped');
  await db.query('SELECT outbox.reap()');
  const rows = await events("namespace = 'reaped'");
  expect(rows).toMatchObject([{ status: 'pending' }, { status: 'pending' }]);
  for (const { next_attempt_at } of rows)
    expect(next_attempt_at?.getTime()).toBeLessThanOrEqual(Date.now() + 1000);
  const claimed = await store('reaped').claim_batch(batch);
  expect(claimed).toMatchObject(ids.map((id) => ({ id, attempts: 2 })));
});

test('M9 M14 ack and nack after the lease has expired, or was taken over, are errors that change nothing', async () => {
  await define('late');
  const [id = ''] = await put('late', 1);
  const slow = store('late');
  await slow.claim_batch(batch);
  await expire('late');
  // expired, and no worker has taken it yet
  await expect(slow.ack(id)).rejects.toMatchObject({ name: 'LeaseLostError' });
  const next = store('late');
  expect(await next.claim_batch(batch)).toMatchObject([{ id, attempts: 2 }]);
  await expect(slow.nack(id, 'too late')).rejects.toMatchObject({ name: 'LeaseLostError' });
  expect(await events("namespace = 'late'")).toMatchObject([
    { status: 'processing', attempts: 2, locked_by: next.worker_id, last_error: 'zombie' },
  ]);
  await next.ack(id);
  await expect(next.ack(id)).rejects.toMatchObject({ name: 'LeaseLostError' });
  // the same worker, with the number of an earlier attempt
  const [again = ''] = await put('late', 1);
  const worker_id = randomUUID();
  const before = store('late', worker_id);
  await before.claim_batch(batch);
  await expire('late');
  expect(await store('late', worker_id).claim_batch(batch)).toHaveLength(1);
  await expect(before.ack(again)).rejects.toMatchObject({ name: 'LeaseLostError' });
});

test.each(['delivered', 'failed'])(
  'M9 M14 the dispatcher logs a lease that was lost while it published (%s), and does not nack',
  async (ending) => {
    const namespace = `taken-${ending}`;
    await define(namespace);
    await put(namespace, 1);
    const stop = new AbortController();
    const seen: string[] = [];
    const lines: string[] = [];
    const thief = store(namespace);
    const publish: Publish = async () => {
      await expire(namespace);
      expect(await thief.claim_batch(batch)).toHaveLength(1);
      if (ending === 'failed') throw new Error('refused');
    };
    const on_event = ({ kind }: DispatchEvent) => {
      seen.push(kind);
      stop.abort();
    };
    const log = (line: string) => void lines.push(line);
    await dispatch(store(namespace), publish, { on_event, log }, stop.signal);
    expect(seen).toEqual(['lease_lost']);
    expect(only(lines)).toMatch(/^lease lost: n?ack of .* does not hold it$/);
    // no error was recorded but the end of the lease, and the new holder is untouched
    const row = only(await events('namespace = $1', namespace));
    expect(row).toMatchObject({ status: 'processing', attempts: 2, locked_by: thief.worker_id });
    expect(row.last_error).toBe('zombie');
    await thief.ack(row.id);
  },
);

test('M10 M14 two namespaces at once: each has its own delays and its own maximum, and none touches the rows of the other', async () => {
  const settings = {
    quick: { max_attempts: 2, base_delay: 20_000, max_delay: 30_000 },
    patient: { max_attempts: 4, base_delay: 60_000, max_delay: 100_000 },
  };
  await define('quick', [2, '20 seconds', '30 seconds']);
  await define('patient', [4, '60 seconds', '100 seconds']);
  for (const namespace of ['quick', 'patient']) await put(namespace, 12);
  const stop = new AbortController();
  const touched = { quick: new Set<string>(), patient: new Set<string>() };
  const dispatchers = (['quick', 'patient'] as const).map((namespace) =>
    dispatch(
      store(namespace),
      (message) => {
        touched[namespace].add(message.namespace);
        return Promise.reject(new Error(`refused by ${namespace}`));
      },
      { ...settings[namespace], poll_interval: 10, ...silent },
      stop.signal,
    ),
  );
  const rowsAt = (namespace: string, attempts: number) =>
    waitFor(
      async () => {
        const rows = await events('namespace = $1', namespace);
        return (
          rows.every((row) => row.attempts === attempts && row.status !== 'processing') && rows
        );
      },
      { what: `attempt ${attempts} of ${namespace}` },
    );
  for (const namespace of ['quick', 'patient']) await rowsAt(namespace, 1);
  for (const [namespace, { max_attempts, base_delay, max_delay }] of Object.entries(settings)) {
    for (let attempts = 1; attempts < max_attempts; attempts += 1) {
      const rows = await rowsAt(namespace, attempts);
      const delay = Math.min(base_delay * 2 ** (attempts - 1), max_delay);
      const waits = rows.map((row) => {
        expect(row).toMatchObject({
          status: 'pending',
          last_error: `Error: refused by ${namespace}`,
        });
        return (row.next_attempt_at?.getTime() ?? 0) - row.updated_at.getTime();
      });
      // times are rounded to milliseconds
      expect(Math.min(...waits)).toBeGreaterThanOrEqual(delay / 2 - 1);
      expect(Math.max(...waits)).toBeLessThanOrEqual(delay + 1);
      expect(new Set(waits).size).toBeGreaterThan(1);
      const other = namespace === 'quick' ? 'patient' : 'quick';
      const before = await events('namespace = $1', other);
      await due(namespace);
      await rowsAt(namespace, attempts + 1);
      expect(await events('namespace = $1', other)).toEqual(before);
    }
    const rows = await events('namespace = $1', namespace);
    expect(new Set(rows.map(({ status }) => status))).toEqual(new Set(['dead']));
  }
  stop.abort();
  await Promise.all(dispatchers);
  expect(touched).toEqual({ quick: new Set(['quick']), patient: new Set(['patient']) });
});

test('M10 M14 the settings of a namespace are fixed: others are refused, in a claim, in a dispatcher and in a definition', async () => {
  await define('fixed', [3, '1 second', '300 seconds']);
  await define('fixed', [3, '1 second', '300 seconds']);
  await expect(define('fixed', [4, '1 second', '300 seconds'])).rejects.toThrow(
    'the settings of the namespace "fixed" are fixed: max_attempts 3, base_delay 1000 ms',
  );
  await expect(define('a/b')).rejects.toThrow('namespace is "a/b": use words');
  await expect(store('fixed').claim_batch({ ...batch, max_attempts: 4 })).rejects.toThrow(
    'max_attempts is 4: the namespace "fixed" has 3, for all of its dispatchers',
  );
  for (const [name, value] of Object.entries({ max_attempts: 9, base_delay: 7, max_delay: 8 }))
    await expect(
      dispatch(store('fixed'), () => Promise.resolve(), { [name]: value }, AbortSignal.abort()),
    ).rejects.toThrow(`${name} is ${value}: the namespace "fixed" has`);
  await expect(store('nowhere').claim_batch(batch)).rejects.toThrow('namespace is "nowhere"');
  await expect(store('fixed', '').claim_batch(batch)).rejects.toThrow(
    'worker_id is "": give a name',
  );
});

test('M14 the SQL of the README runs, and a dispatcher with the former settings ends at its next claim', async () => {
  const chatStore = store('chat');
  const former = await chatStore.settings();
  await put('chat', 1);
  let delivered = 0;
  const running = dispatch(
    chatStore,
    () => Promise.resolve(),
    { poll_interval: 10, on_event: () => (delivered += 1) },
    new AbortController().signal,
  );
  // it has read the former settings
  await waitFor(() => Promise.resolve(delivered > 0), { what: 'a delivery' });
  for (const [, sql = ''] of sqlOf('README.md').matchAll(/```text\n(SELECT [^`]*)```/g))
    await db.query(sql);
  await expect(running).rejects.toThrow('max_attempts is 5: the namespace "chat" has 8');
  expect([former.max_attempts, (await chatStore.settings()).max_attempts]).toEqual([5, 8]);
});

test('M12 the dispatcher refuses to poll less often than three times in a lease', async () => {
  const options = { lease_duration: 3000, poll_interval: 1001 };
  await expect(
    dispatch(store('chat'), () => Promise.resolve(), options, AbortSignal.abort()),
  ).rejects.toThrow('poll_interval is 1001: give at most a third of lease_duration (3000)');
});

test('M12 M6 told to stop, it finishes what it began and releases the rest without an attempt', async () => {
  await define('stop');
  await put('stop', 3);
  const stop = new AbortController();
  const publish = () => {
    stop.abort();
    return Promise.resolve();
  };
  await dispatch(store('stop'), publish, {}, stop.signal);
  expect(await events("namespace = 'stop'")).toMatchObject([
    { status: 'delivered', attempts: 1 },
    { status: 'pending', attempts: 0, locked_by: null },
    { status: 'pending', attempts: 0, locked_by: null },
  ]);
});

test('M12 what does not finish by the deadline keeps its lease; the rest is released', async () => {
  await define('hung');
  await put('hung', 2);
  const stop = new AbortController();
  const seen: string[] = [];
  const publish = () => {
    stop.abort();
    return new Promise<void>(() => undefined);
  };
  const on_event = ({ kind }: DispatchEvent) => void seen.push(kind);
  await dispatch(store('hung'), publish, { stop_deadline: 20, on_event }, stop.signal);
  expect(seen).toEqual(['unfinished']);
  expect(await events("namespace = 'hung'")).toMatchObject([
    { status: 'processing', attempts: 1 },
    { status: 'pending', attempts: 0 },
  ]);
});

test('M6 a message not begun before the lease expired is not sent on that lease', async () => {
  await define('slow');
  await put('slow', 2);
  const stop = new AbortController();
  let calls = 0;
  const publish: Publish = async ({ payload }) => {
    calls += 1;
    if ((payload as { n: number }).n === 2) stop.abort();
    if (calls > 1) return;
    const begun = performance.now();
    await waitFor(() => performance.now() > begun + 310, { what: 'the end of the lease' });
  };
  const options = { lease_duration: 300, poll_interval: 10, ...silent };
  await dispatch(store('slow'), publish, options, stop.signal);
  const second = (await events("namespace = 'slow'"))[1];
  const { rows } = await db.query<{ state: string }>(
    'SELECT state FROM outbox.attempt_log WHERE message_id = $1 ORDER BY claim_no',
    [second?.id],
  );
  expect(rows[0]?.state).toMatch(/^(released|zombie_requeue)$/);
  expect(rows.at(-1)?.state).toBe('dispatched');
});

test('M12 a dispatcher goes on after the database was away', async () => {
  await define('away');
  const real = store('away');
  let failures = 0;
  const lines: string[] = [];
  const flaky: typeof real = {
    ...real,
    claim_batch: (options) =>
      (failures += 1) === 1 ? Promise.reject(new Error('gone')) : real.claim_batch(options),
  };
  await put('away', 1);
  const stop = new AbortController();
  const on_event = () => stop.abort();
  const log = (line: string) => void lines.push(line);
  await dispatch(flaky, () => Promise.resolve(), { poll_interval: 10, on_event, log }, stop.signal);
  expect(lines).toEqual(['dispatcher of away: Error: gone']);
  expect(await events("namespace = 'away'")).toMatchObject([{ status: 'delivered' }]);
});

test('M9 M10 an error text with NUL is recorded, and costs the rest of the batch no attempt', async () => {
  await define('nul');
  await put('nul', 2);
  const stop = new AbortController();
  const publish: Publish = ({ payload }) => {
    if ((payload as { n: number }).n === 1) return Promise.reject(new Error('byte \u0000'));
    stop.abort();
    return Promise.resolve();
  };
  const lines: string[] = [];
  // a failed nack would keep the rest of the batch until the lease is over
  const log = (line: string) => {
    lines.push(line);
    stop.abort();
  };
  await dispatch(store('nul'), publish, { poll_interval: 10, log }, stop.signal);
  expect(lines).toEqual([]);
  expect(await events("namespace = 'nul'")).toMatchObject([
    { status: 'pending', attempts: 1, last_error: 'Error: byte \uFFFD' },
    { status: 'delivered', attempts: 1 },
  ]);
});
