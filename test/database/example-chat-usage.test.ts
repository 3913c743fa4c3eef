// The chat platform of examples/chat-usage: its own calls, its dispatcher and billing, and its unchanged program.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';

import { beforeAll, expect, test } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { runNode } from '../support/cli.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

type Message = { id: string; attempts: number; payload: { n: number } };
type Event = { kind: string; id: string };
type Turn = { tenant_id: string; turn_id: string; request_id: string };
type Ending = Turn & { outcome: string; used_tokens: number };
type Store = {
  claim_batch(options: {
    batch_size: number;
    lease_duration: number;
    max_attempts: number;
  }): Promise<Message[]>;
  ack(id: string): Promise<void>;
  nack(id: string, error: unknown): Promise<void>;
};
type Publish = (message: Message) => Promise<unknown>;

const db = testDatabase();
const folder = path.resolve('examples/chat-usage');
const load = async (name: string): Promise<unknown> => import(path.join(folder, name));
const { createStore, enqueue } = (await load('store.mjs')) as {
  createStore: (client: unknown, bound: { worker_id: string; namespace: string }) => Store;
  enqueue: (runner: unknown, message: object) => Promise<{ id: string; duplicate: boolean }>;
};
const { beginTurn, finaliseTurn, readTurn } = (await load('turns.mjs')) as {
  beginTurn: (client: unknown, turn: Turn & { reserved_tokens: number }) => Promise<void>;
  finaliseTurn: (client: unknown, turn: Ending) => Promise<{ id: string; duplicate: boolean }>;
  readTurn: (client: unknown, turn: Turn) => Promise<{ state: string; used_tokens: string | null }>;
};
const { dispatch } = (await load('dispatcher.mjs')) as {
  dispatch: (store: Store, publish: Publish, options: object, signal: AbortSignal) => Promise<void>;
};
const { createBilling } = (await load('billing.mjs')) as {
  createBilling: (pool: unknown) => (message: object) => Promise<boolean>;
};

// the examples use the default schema, whatever the schema of this project is
beforeAll(async () => {
  await migrateUp({ url: db.url });
  await db.query(readFileSync(path.join(folder, 'schema.sql'), 'utf8'));
});

const batch = { batch_size: 10, lease_duration: 30_000, max_attempts: 3 };
const storeOf = (namespace: string) => createStore(db.pool, { worker_id: randomUUID(), namespace });

/** Sends messages 1 to count, each in its own transaction; returns their ids. */
async function put(namespace: string, count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let n = 1; n <= count; n += 1)
    ids.push(
      await db.inTransaction(
        async (client) => (await enqueue(client, { namespace, topic: 'x', payload: { n } })).id,
      ),
    );
  return ids;
}

async function events(where: string, ...values: unknown[]) {
  const { rows } = await db.query<{
    id: string;
    status: string;
    attempts: number;
    locked_by: string | null;
    locked_until: Date | null;
    next_attempt_at: Date | null;
    last_error: string | null;
    created_at: Date;
    updated_at: Date;
  }>(`SELECT * FROM public.modkit_outbox_events WHERE ${where} ORDER BY id`, values);
  return rows;
}

async function running(tenant_id: string): Promise<Turn> {
  const turn = { tenant_id, turn_id: randomUUID(), request_id: randomUUID() };
  await beginTurn(db.pool, { ...turn, reserved_tokens: 100 });
  return turn;
}

/** Makes retries due now. */
const hurry = () => db.query("SELECT outbox.retry_now('modkit')");

test('M1 M2 a turn ends in three ways, each with its usage message; reads and refused endings emit nothing', async () => {
  const client = await db.connect();
  for (const outcome of ['completed', 'failed', 'aborted']) {
    const turn = await running('ends');
    await finaliseTurn(client, { ...turn, outcome, used_tokens: 7 });
    const [message] = await events(
      "dedupe_key = $1 AND namespace = 'chat' AND topic = 'chat.usage' AND tenant_id = 'ends' AND payload ->> 'outcome' = $2",
      `ends/${turn.turn_id}/${turn.request_id}`,
      outcome,
    );
    expect(message).toMatchObject({ status: 'pending', attempts: 0 });
    expect(await readTurn(client, turn)).toMatchObject({ state: outcome, used_tokens: '7' });
  }
  const before = (await events('true')).length;
  const turn = await running('ends');
  const refused: [Partial<Ending>, string][] = [
    [{ outcome: 'lost' }, 'outcome is "lost": use one of completed, failed, aborted'],
    [{ used_tokens: 101 }, 'check constraint'],
    [{ used_tokens: -1 }, 'check constraint'],
    [{ request_id: randomUUID() }, 'there is no turn'],
  ];
  for (const [change, why] of refused)
    await expect(
      finaliseTurn(client, { ...turn, outcome: 'completed', used_tokens: 1, ...change }),
    ).rejects.toThrow(why);
  expect(await readTurn(client, turn)).toMatchObject({ state: 'running', used_tokens: null });
  expect(await events('true')).toHaveLength(before);
});

test('M1 M4 a refused message rolls back its turn', async () => {
  const client = await db.connect();
  const turn = await running('');
  await expect(
    finaliseTurn(client, { ...turn, outcome: 'completed', used_tokens: 1 }),
  ).rejects.toMatchObject({ code: 'message_refused' });
  expect(await readTurn(client, turn)).toMatchObject({ state: 'running' });
  const stray = { namespace: 'chat', topic: 'x', tenant_id: 'acme', dedupe_key: 'globex/1' };
  await expect(db.inTransaction((tx) => enqueue(tx, stray))).rejects.toMatchObject({
    code: 'message_refused',
  });
  expect(await events("topic = 'x' AND namespace = 'chat'")).toEqual([]);
});

test('M3 the same finalisation again, and five at once, make one message; another ending is refused', async () => {
  const turn = await running('again');
  const ending = { ...turn, outcome: 'completed', used_tokens: 5 };
  const clients = await Promise.all([1, 2, 3, 4, 5].map(() => db.connect()));
  const answers = await Promise.all(clients.map((client) => finaliseTurn(client, ending)));
  expect(new Set(answers.map(({ id }) => id)).size).toBe(1);
  expect(answers.filter(({ duplicate }) => !duplicate)).toHaveLength(1);
  await expect(finaliseTurn(clients[0], { ...ending, used_tokens: 6 })).rejects.toThrow(
    /was finalised before: completed, 5 tokens/,
  );
  expect(await events("tenant_id = 'again'")).toHaveLength(1);
});

test('M1 of two different endings at once one wins, and its message says so', async () => {
  const clients = await Promise.all([db.connect(), db.connect()]);
  for (let n = 1; n <= 20; n += 1) {
    const turn = await running('race');
    const endings = [
      { ...turn, outcome: 'completed', used_tokens: 5 },
      { ...turn, outcome: 'aborted', used_tokens: 3 },
    ];
    const results = await Promise.allSettled(
      endings.map((ending, index) => finaliseTurn(clients[index], ending)),
    );
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    const { state } = await readTurn(db.pool, turn);
    expect(
      await events(
        "payload ->> 'turn_id' = $1 AND payload ->> 'outcome' = $2",
        turn.turn_id,
        state,
      ),
    ).toHaveLength(1);
  }
});

test('M5 M8 the view has the states of the journey, and a store takes the oldest of its own namespace', async () => {
  const ids = await put('states', 3);
  await put('elsewhere', 1);
  const worker_id = randomUUID();
  const store = createStore(db.pool, { worker_id, namespace: 'states' });
  const [first, second] = await store.claim_batch({ ...batch, batch_size: 2 });
  expect([first?.id, second?.id]).toEqual(ids.slice(0, 2));
  expect(first).toMatchObject({ attempts: 1, payload: { n: 1 } });
  await store.ack(ids[0] ?? '');
  await store.nack(ids[1] ?? '', new Error('no room'));
  const [third] = await store.claim_batch(batch);
  expect(third?.id).toBe(ids[2]);
  const rows = await events("namespace = 'states'");
  expect(rows).toMatchObject([
    { status: 'delivered', attempts: 1, locked_by: null, next_attempt_at: null },
    { status: 'pending', attempts: 1, last_error: 'Error: no room', locked_by: null },
    { status: 'processing', attempts: 1, locked_by: worker_id },
  ]);
  expect(rows[1]?.next_attempt_at?.getTime()).toBeGreaterThan(rows[1]?.updated_at.getTime() ?? 0);
  expect(rows[2]?.locked_until?.getTime()).toBeGreaterThan(Date.now());
});

test('M6 M7 M13 a crashed worker leaves nothing behind: others continue, and at the maximum the message is dead and visible', async () => {
  const [id] = await put('crash', 1);
  const lease = { batch_size: 1, lease_duration: 1, max_attempts: 2 };
  for (const attempt of [1, 2]) {
    const [message] = await waitFor(
      async () => {
        await hurry();
        const claimed = await storeOf('crash').claim_batch(lease);
        return claimed.length > 0 && claimed;
      },
      { what: `attempt ${attempt}` },
    );
    expect(message).toMatchObject({ id, attempts: attempt });
  }
  await waitFor(
    async () => {
      expect(await storeOf('crash').claim_batch(lease)).toEqual([]);
      return (await events("namespace = 'crash' AND status = 'dead'")).length === 1;
    },
    { what: 'the dead message' },
  );
  const { rows } = await db.query<{ value: string }>(
    "SELECT value FROM outbox.health WHERE metric = 'dead'",
  );
  expect(only(rows).value).toBe('1');
});

test('M9 a worker that settles after its lease expired changes nothing, and gets a LeaseLostError', async () => {
  const [id = ''] = await put('late', 1);
  const slow = storeOf('late');
  await slow.claim_batch({ ...batch, lease_duration: 1 });
  const next = storeOf('late');
  await waitFor(
    async () => {
      await hurry();
      return (await next.claim_batch(batch)).length === 1;
    },
    { what: 'the message after its lease' },
  );
  await expect(slow.ack(id)).rejects.toMatchObject({ name: 'LeaseLostError' });
  await expect(slow.nack(id, 'too late')).rejects.toMatchObject({ name: 'LeaseLostError' });
  expect(only(await events("namespace = 'late'"))).toMatchObject({
    status: 'processing',
    attempts: 2,
  });
  await next.ack(id);
  await expect(next.ack(id)).rejects.toMatchObject({ name: 'LeaseLostError' });
});

test('M9 a lease that was lost while publishing is reported, and is not a failed publish', async () => {
  await put('taken', 1);
  const stop = new AbortController();
  const seen: string[] = [];
  const thief = storeOf('taken');
  const publish = async () => {
    // what a clock jump does to a lease
    await db.query("UPDATE outbox.leases SET expires_at = now() - interval '1 second'");
    await waitFor(
      async () => {
        await hurry();
        return (await thief.claim_batch(batch)).length === 1;
      },
      { what: 'the other worker' },
    );
  };
  const on_event = ({ kind }: Event) => {
    seen.push(kind);
    stop.abort();
  };
  await dispatch(storeOf('taken'), publish, { max_attempts: 3, on_event }, stop.signal);
  expect(seen).toEqual(['lease_lost']);
  expect(only(await events("namespace = 'taken'"))).toMatchObject({
    status: 'processing',
    attempts: 2,
  });
});

test('M12 the dispatcher refuses to poll less often than three times in a lease', async () => {
  const options = { lease_duration: 3000, poll_interval: 1001 };
  await expect(
    dispatch(storeOf('poll'), () => Promise.resolve(), options, AbortSignal.abort()),
  ).rejects.toThrow('poll_interval is 1001: give at most a third of lease_duration (3000)');
});

test('M12 M6 told to stop, it finishes what it began and releases the rest without an attempt', async () => {
  await put('stop', 3);
  const stop = new AbortController();
  const publish = () => {
    stop.abort();
    return Promise.resolve();
  };
  await dispatch(storeOf('stop'), publish, { max_attempts: 3 }, stop.signal);
  expect(await events("namespace = 'stop'")).toMatchObject([
    { status: 'delivered', attempts: 1 },
    { status: 'pending', attempts: 0, locked_by: null },
    { status: 'pending', attempts: 0, locked_by: null },
  ]);
});

test('M12 what does not finish by the deadline keeps its lease; the rest is released', async () => {
  await put('hung', 2);
  const stop = new AbortController();
  const seen: string[] = [];
  const publish = () => {
    stop.abort();
    return new Promise<void>(() => undefined);
  };
  const on_event = ({ kind }: Event) => seen.push(kind);
  const options = { max_attempts: 3, stop_deadline: 20, on_event };
  await dispatch(storeOf('hung'), publish, options, stop.signal);
  expect(seen).toEqual(['unfinished']);
  expect(await events("namespace = 'hung'")).toMatchObject([
    { status: 'processing', attempts: 1 },
    { status: 'pending', attempts: 0 },
  ]);
});

test('M6 a message not begun before the lease expired is not sent on that lease', async () => {
  await put('slow', 2);
  const stop = new AbortController();
  let calls = 0;
  const publish = async ({ payload }: Message) => {
    calls += 1;
    if (payload.n === 2) stop.abort();
    if (calls > 1) return;
    const begun = performance.now();
    await waitFor(() => performance.now() > begun + 310, { what: 'the end of the lease' });
  };
  const options = { max_attempts: 3, lease_duration: 300, poll_interval: 10 };
  await dispatch(storeOf('slow'), publish, options, stop.signal);
  const second = (await events("namespace = 'slow'"))[1];
  expect(second).toMatchObject({ status: 'delivered', attempts: 1 });
  const { rows } = await db.query<{ state: string }>(
    'SELECT state FROM outbox.attempt_log WHERE message_id = $1 ORDER BY claim_no',
    [second?.id],
  );
  expect(rows.map(({ state }) => state)).toEqual([
    'released',
    // again, if this machine took longer than a lease for the next claim
    ...rows.slice(2).map(() => 'released'),
    'dispatched',
  ]);
});

test('M11 billing counts each turn once, however often and concurrently its message arrives', async () => {
  const bill = createBilling(db.pool);
  const message = { tenant_id: 'billed', dedupe_key: 'billed/1/1', payload: { used_tokens: 12 } };
  const answers = await Promise.all([1, 2, 3, 4].map(() => bill(message)));
  expect(answers.filter(Boolean)).toHaveLength(1);
  await expect(
    bill({ ...message, dedupe_key: 'billed/2/2', payload: { used_tokens: 'x' } }),
  ).rejects.toMatchObject({ code: '22P02' });
  // a failed message was not processed
  await bill({ ...message, dedupe_key: 'billed/2/2' });
  const { rows } = await db.query(
    "SELECT * FROM public.billing_balances WHERE tenant_id = 'billed'",
  );
  expect(rows).toEqual([{ tenant_id: 'billed', turns: '2', used_tokens: '24' }]);
});

test('M1 M3 M11 the program runs: a turn that was finalised twice and delivered twice is billed once', async () => {
  await db.query('TRUNCATE public.chat_turns, public.billing_balances');
  const { code, stdout, stderr } = await runNode([path.join(folder, 'main.mjs')], {
    environment: { DATABASE_URL: db.url },
  }).ended();
  expect(`${code} ${stderr}`).toBe('0 ');
  expect(stdout).toContain('99 finalisations of 90 turns made 90 messages');
  const [, duplicates] = /"duplicates":(\d+)/.exec(stdout) ?? [];
  expect(Number(duplicates)).toBeGreaterThan(0);
  const { rows } = await db.query<{ turns: number; tokens: number }>(
    "SELECT sum(turns)::int AS turns, sum(used_tokens)::int AS tokens FROM public.billing_balances WHERE tenant_id ~ '^(acme|globex)-'",
  );
  expect(only(rows)).toEqual({ turns: 90, tokens: 4095 });
});
