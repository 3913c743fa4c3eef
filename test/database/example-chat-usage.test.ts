// The chat platform of examples/chat-usage: turns, messages, its table and its unchanged program. Each call has the
// rights of the login that makes it.

import { randomUUID } from 'node:crypto';

import { expect, test } from 'vitest';

import { createBilling } from '../../examples/chat-usage/billing.js';
import { enqueue, enqueueOnce } from '../../examples/chat-usage/store.js';
import { beginTurn, finaliseTurn, readTurn } from '../../examples/chat-usage/turns.js';
import type { Ending, Turn } from '../../examples/chat-usage/turns.js';
import { chatPlatform } from '../support/chat.js';
import { runNode } from '../support/cli.js';
import { park } from '../support/letters.js';
import { only } from '../support/only.js';
import { inTransaction } from '../support/postgres.js';
import { replay } from '../support/replays.js';
import { addHistory, rowsRead } from '../support/rows-read.js';

const chat = chatPlatform();
const { db, events, pool, put, store } = chat;
const batch = { batch_size: 10, lease_duration: 30_000, max_attempts: 5 };

async function running(tenant_id: string, reserved_tokens: number | null = 100): Promise<Turn> {
  const turn = { tenant_id, turn_id: randomUUID(), request_id: randomUUID() };
  await beginTurn(pool('chat_producer'), { ...turn, reserved_tokens });
  return turn;
}

/** Finalises on a connection of its own. */
async function finalise(ending: Ending) {
  const client = await pool('chat_producer').connect();
  try {
    return await finaliseTurn(client, ending);
  } finally {
    client.release();
  }
}

test('M1 M2 M14 a turn ends in three ways, each with its usage message; reads, refused endings and turns without quota emit nothing', async () => {
  const tenant_id = randomUUID();
  for (const outcome of ['completed', 'failed', 'aborted']) {
    const turn = await running(tenant_id);
    const { turn_id, request_id } = turn;
    const sent = await finalise({ ...turn, outcome, used_tokens: 7 });
    expect(await events('dedupe_key = $1', `${tenant_id}/${turn_id}/${request_id}`)).toMatchObject([
      {
        id: sent?.id,
        namespace: 'chat',
        topic: 'chat.usage',
        tenant_id,
        payload: { turn_id, request_id, outcome, used_tokens: 7 },
        status: 'pending',
        attempts: 0,
      },
    ]);
    expect(await readTurn(db.pool, turn)).toMatchObject({ state: outcome, used_tokens: '7' });
  }
  const turn = await running(tenant_id);
  const refused: [Partial<Ending>, string][] = [
    [{ outcome: 'lost' }, 'outcome is "lost": use one of completed, failed, aborted'],
    [{ used_tokens: 101 }, 'check constraint'],
    [{ used_tokens: -1 }, 'check constraint'],
    [{ request_id: randomUUID() }, 'there is no turn'],
    [{ tenant_id: 'acme' }, 'invalid input syntax for type uuid'],
  ];
  for (const [change, why] of refused)
    await expect(
      finalise({ ...turn, outcome: 'completed', used_tokens: 1, ...change }),
    ).rejects.toThrow(why);
  expect(await readTurn(db.pool, turn)).toMatchObject({ state: 'running', used_tokens: null });
  const free = await running(tenant_id, null);
  expect(await finalise({ ...free, outcome: 'completed', used_tokens: 5 })).toBeUndefined();
  expect(await readTurn(db.pool, free)).toMatchObject({ state: 'completed' });
  expect(await events('tenant_id = $1', tenant_id)).toHaveLength(3);
});

test('M1 M4 a refused message rolls back, and none is written outside a transaction', async () => {
  const tenant_id = randomUUID();
  const other = randomUUID();
  const refused: [object, string][] = [
    [{ tenant_id, dedupe_key: `${other}/1/1` }, 'the tenant must be the first component'],
    [{ tenant_id, dedupe_key: `${tenant_id.toUpperCase()}/1/1` }, 'the tenant must be the first'],
    [{ tenant_id, dedupe_key: tenant_id }, 'must begin with the tenantId and a slash'],
    [{ dedupe_key: `${tenant_id}/1/1` }, 'tenant_id is null: the tenant must be the first'],
    [{ namespace: 'nowhere' }, 'namespace is "nowhere": give one that modkit.define_namespace'],
    [{ tenant_id: 'acme' }, 'invalid input syntax for type uuid: "acme"'],
  ];
  for (const [change, why] of refused)
    await expect(
      inTransaction(pool('chat_producer'), (client) =>
        enqueue(client, { namespace: 'chat', topic: 'refused', payload: {}, ...change }),
      ),
    ).rejects.toThrow(why);
  const message = { namespace: 'chat', topic: 'refused', payload: {} };
  await expect(enqueue(pool('chat_producer'), message)).rejects.toThrow('run BEGIN on this client');
  expect(await events("topic = 'refused'")).toEqual([]);
});

test('M3 the same finalisation again, and five at once, make one message; another ending is refused', async () => {
  const turn = await running(randomUUID());
  const ending = { ...turn, outcome: 'completed', used_tokens: 5 };
  const answers = await Promise.all([1, 2, 3, 4, 5].map(() => finalise(ending)));
  expect(new Set(answers.map((answer) => answer?.id)).size).toBe(1);
  expect(answers.filter((answer) => answer?.already_enqueued === false)).toHaveLength(1);
  await expect(finalise({ ...ending, used_tokens: 6 })).rejects.toThrow(
    /was finalised before: completed, 5 tokens/,
  );
  expect(await events('tenant_id = $1', turn.tenant_id)).toHaveLength(1);
});

test('M3 M14 (namespace, topic, dedupe_key) is unique: the key alone tells the tenant', async () => {
  const tenant_id = randomUUID();
  const key = `${tenant_id}/t/r`;
  const write = (change: object) =>
    inTransaction(pool('chat_producer'), (client) =>
      enqueueOnce(client, { namespace: 'chat', topic: 'u', payload: {}, ...change }),
    );
  const first = await write({ tenant_id, dedupe_key: key });
  expect(await write({ tenant_id, dedupe_key: key })).toEqual({ ...first, already_enqueued: true });
  // no tenant, and any other tenant, cannot use the key, and without a tenant it is a key of its own
  await expect(write({ dedupe_key: key })).rejects.toThrow('first component');
  await expect(write({ tenant_id: randomUUID(), dedupe_key: key })).rejects.toThrow('first comp');
  await write({ dedupe_key: 'nightly/1' });
  expect(await write({ dedupe_key: 'nightly/1' })).toMatchObject({ already_enqueued: true });
  // another topic and another namespace are other keys
  await write({ topic: 'v', tenant_id, dedupe_key: key });
  await write({ namespace: 'notifications', tenant_id, dedupe_key: key });
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int FROM public.modkit_outbox_events WHERE dedupe_key IS NOT NULL
      GROUP BY namespace, topic, dedupe_key HAVING count(*) > 1`,
  );
  expect(rows).toEqual([]);
});

test('M1 of two different endings at once one wins, and its message says so', async () => {
  for (let n = 1; n <= 10; n += 1) {
    const turn = await running(randomUUID());
    const results = await Promise.allSettled([
      finalise({ ...turn, outcome: 'completed', used_tokens: 5 }),
      finalise({ ...turn, outcome: 'aborted', used_tokens: 3 }),
    ]);
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    const outcome = (await readTurn(db.pool, turn))?.state;
    expect(await events('tenant_id = $1', turn.tenant_id)).toMatchObject([
      { payload: { outcome } },
    ]);
  }
});

test('M5 M14 the table has its columns and types, and the states of the journey', async () => {
  const { rows: columns } = await pool('chat_reader').query<{ name: string; type: string }>(
    `SELECT a.attname AS name, format_type(a.atttypid, NULL) AS type FROM pg_attribute a
      WHERE a.attrelid = 'public.modkit_outbox_events'::regclass AND a.attnum > 0 ORDER BY a.attnum`,
  );
  expect(columns.map(({ name, type }) => `${name} ${type}`)).toEqual([
    'id uuid',
    'namespace text',
    'topic text',
    'tenant_id uuid',
    'dedupe_key text',
    'payload jsonb',
    'status text',
    'attempts integer',
    'next_attempt_at timestamp with time zone',
    'locked_by text',
    'locked_until timestamp with time zone',
    'last_error text',
    'created_at timestamp with time zone',
    'updated_at timestamp with time zone',
  ]);
  await chat.define('states', [2, '1 second', '1 second']);
  const ids = await put('states', 4);
  const two = { ...batch, batch_size: 3, max_attempts: 2 };
  const worker = store('states', 'worker 7, in the cellar');
  const [first, second, third] = await worker.claim_batch(two);
  expect([first?.id, second?.id, third?.id]).toEqual(ids.slice(0, 3));
  expect(first).toMatchObject({ attempts: 1, payload: { n: 1 }, namespace: 'states' });
  await worker.ack(ids[0] ?? '');
  await worker.nack(ids[1] ?? '', new Error('no room'));
  await worker.nack(ids[2] ?? '', new Error('one'));
  await chat.due('states');
  // the two retries come before the younger message
  const again = await worker.claim_batch(two);
  expect(again.map(({ id }) => id)).toEqual(ids.slice(1));
  await worker.nack(ids[2] ?? '', new Error('two'));
  await worker.nack(ids[3] ?? '', new Error('no room'));
  const rows = await events("namespace = 'states'");
  expect(rows).toMatchObject([
    { status: 'delivered', attempts: 1, locked_by: null, next_attempt_at: null },
    {
      status: 'processing',
      attempts: 2,
      locked_by: worker.worker_id,
      last_error: 'Error: no room',
    },
    { status: 'dead', attempts: 2, last_error: 'Error: two', locked_by: null, locked_until: null },
    { status: 'pending', attempts: 1, last_error: 'Error: no room', locked_by: null },
  ]);
  expect(rows[1]?.locked_until?.getTime()).toBeGreaterThan(Date.now());
  expect(rows[3]?.next_attempt_at?.getTime()).toBeGreaterThan(rows[3]?.updated_at.getTime() ?? 0);
});

test('M5 an event that was replayed is one row, with its last error, until it is discarded', async () => {
  await chat.define('replayed', [3, '1 second', '1 second']);
  const [id = ''] = await put('replayed', 1);
  const worker = store('replayed');
  const shown = async () =>
    (await events("namespace = 'replayed'")).map(({ status, last_error }) => [status, last_error]);
  const again = () => replay(db, 'modkit.replayed', { ids: [id] });
  await worker.claim_batch({ ...batch, max_attempts: 3 });
  await worker.nack(id, 'busy');
  await chat.due('replayed');
  await worker.claim_batch({ ...batch, max_attempts: 3 });
  await worker.ack(id);
  expect(await shown()).toEqual([['delivered', 'busy']]);
  await again();
  expect(await shown()).toEqual([['pending', 'busy']]);
  await worker.claim_batch({ ...batch, max_attempts: 3 });
  expect(await shown()).toEqual([['processing', 'busy']]);
  await worker.ack(id);
  expect(await shown()).toEqual([['delivered', 'busy']]);
  await again();
  // behind a dead letter of its key: no attempt says so
  await park(db, id);
  expect(await shown()).toEqual([['dead', 'busy']]);
  await db.query('SELECT outbox.discard_dead_letters(ids => ARRAY[$1::uuid])', [id]);
  expect(await shown()).toEqual([['discarded', 'busy']]);
});

test('C4 M5 a query by id, by dedupe key or by status reads no more of the delivered history than it returns', async () => {
  await chat.define('history', [3, '1 second', '1 second']);
  const kept = await addHistory(db.pool, 'modkit.history', {
    namespace: 'history',
    topic: 'usage',
  });
  await put('history', 10);
  const list = 'SELECT * FROM public.modkit_outbox_events';
  for (const query of [
    `${list} WHERE id = '${randomUUID()}'`,
    `${list} WHERE dedupe_key = 'history/7'`,
    `${list} WHERE status = 'pending' ORDER BY next_attempt_at LIMIT 100`,
    `${list} WHERE status = 'processing' AND locked_until < now()`,
    `${list} WHERE status = 'dead'`,
  ])
    expect(await rowsRead(db.pool, query), query).toBeLessThan(200);
  // the measure finds a query that reads everything
  expect(await rowsRead(db.pool, `SELECT count(*) FROM (${list}) x`)).toBeGreaterThanOrEqual(kept);
});

test('M11 billing counts each turn once, however often and concurrently its message arrives', async () => {
  const bill = createBilling(pool('chat_billing'));
  const tenant_id = randomUUID();
  const message = { tenant_id, dedupe_key: `${tenant_id}/1/1`, payload: { used_tokens: 12 } };
  const answers = await Promise.all([1, 2, 3, 4].map(() => bill(message)));
  expect(answers.filter(Boolean)).toHaveLength(1);
  const broken = { ...message, dedupe_key: `${tenant_id}/2/2`, payload: { used_tokens: 'x' } };
  await expect(bill(broken)).rejects.toMatchObject({ code: '22P02' });
  // a failed message was not processed
  expect(await bill({ ...broken, payload: { used_tokens: 12 } })).toBe(true);
  const { rows } = await db.query('SELECT * FROM public.billing_balances WHERE tenant_id = $1', [
    tenant_id,
  ]);
  expect(rows).toEqual([{ tenant_id, turns: '2', used_tokens: '24' }]);
});

test('M1 M3 M11 M14 the program runs: a turn that was finalised twice and delivered twice is billed once', async () => {
  await db.query('TRUNCATE public.chat_turns, public.billing_balances, public.billed_usage');
  await db.query("SELECT outbox.discard_deliveries('modkit.chat')");
  const { code, stdout, stderr } = await runNode(['scripts/example.mjs', 'chat-usage'], {
    cwd: process.cwd(),
    environment: { DATABASE_URL: db.url },
  }).ended();
  expect(`${code} ${stderr}`).toBe('0 ');
  expect(stdout).toContain('99 finalisations of 90 turns made 90 messages');
  expect(stdout).toContain('events: 90 delivered');
  const [, duplicates] = /"duplicates":(\d+)/.exec(stdout) ?? [];
  expect(Number(duplicates)).toBeGreaterThan(0);
  const { rows } = await db.query<{ turns: number; tokens: number }>(
    'SELECT sum(turns)::int AS turns, sum(used_tokens)::int AS tokens FROM public.billing_balances',
  );
  expect(only(rows)).toEqual({ turns: 90, tokens: 4095 });
});
