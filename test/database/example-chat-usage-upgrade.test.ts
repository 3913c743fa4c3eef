// The chat platform's upgrade (examples/chat-usage/UPGRADE.md): the rows of its present table, in every state, become
// Waybill's in one transaction, while an old dispatcher still runs.

import { randomUUID } from 'node:crypto';

import pg from 'pg';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';

import { createStore, enqueueOnce } from '../../examples/chat-usage/store.js';
import { installChat, sqlOf } from '../support/chat.js';
import { only } from '../support/only.js';
import { urlAs } from '../support/logins.js';
import { inTransaction, testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

// the logins belong to the server: they are made before, so that the upgrade itself needs no lock of the tests
const other = testDatabase();
const db = testDatabase({ eachTestFrom: () => Promise.resolve() });
const pools: pg.Pool[] = [];
beforeAll(() => installChat(other));
beforeEach(() => db.query(sqlOf('old-table.sql')));
afterAll(() => Promise.all(pools.map((pool) => pool.end())));

const poolOf = (login: 'chat_producer' | 'chat_dispatcher'): pg.Pool => {
  const pool = new pg.Pool({ connectionString: urlAs(db.url, login) });
  pool.on('error', () => undefined);
  pools.push(pool);
  return pool;
};

/** The files of the command in UPGRADE.md, in one transaction, as psql -1 does. */
async function upgrade(settings = ''): Promise<void> {
  const [, command = ''] = /```text\n(psql [^`]*-1[^`]*)```/.exec(sqlOf('UPGRADE.md')) ?? [];
  const files = [...command.matchAll(/-f (\S+)/g)].map(([, file = '']) => file);
  expect(files).toEqual(['upgrade-begin.sql', 'schema.sql', 'namespaces.sql', 'upgrade-move.sql']);
  await db.inTransaction(async (client) => {
    await client.query(settings);
    for (const file of files) await client.query(sqlOf(file));
  });
}

type Old = Partial<
  Record<'status' | 'attempts' | 'created_at' | 'next_attempt_at' | 'locked_until', unknown> & {
    tenant_id: string | null;
    dedupe_key: string | null;
    namespace: string;
    last_error: string;
    locked_by: string;
    updated_at: string;
  }
>;

async function old(row: Old): Promise<string> {
  const tenant_id = row.tenant_id === undefined ? randomUUID() : row.tenant_id;
  const all = {
    namespace: 'chat',
    topic: 'chat.usage',
    tenant_id,
    dedupe_key: tenant_id === null ? null : `${tenant_id}/t/r`,
    payload: '{"n": 1}',
    ...row,
  };
  const names = Object.keys(all);
  const { rows } = await db.query<{ id: string }>(
    `INSERT INTO public.modkit_outbox_events (${names.join(', ')})
     VALUES (${names.map((_, index) => `$${index + 1}`).join(', ')}) RETURNING id`,
    Object.values(all),
  );
  return only(rows).id;
}

const eventsAfter = async () =>
  (
    await db.query<Record<string, unknown>>(
      `SELECT e.*, m.headers ->> 'moved_from' AS old_id FROM public.modkit_outbox_events e
         JOIN outbox.messages m USING (id) ORDER BY e.created_at, e.id`,
    )
  ).rows;

test('M14 rows in every state are moved: order, creation time, attempts, errors; the dead stay dead; the old table stays', async () => {
  const hour = (n: number) => new Date(Date.UTC(2026, 9, 1, n));
  const soon = new Date(Date.now() + 3_600_000);
  const lease = { locked_by: 'worker-7', locked_until: soon };
  // inserted in another order than that of creation
  const retrying = await old({
    created_at: hour(3),
    attempts: 2,
    next_attempt_at: hour(4),
    last_error: 'no room',
    updated_at: hour(3).toISOString(),
  });
  const fresh = await old({ created_at: hour(1) });
  const held = await old({ created_at: hour(2), status: 'processing', attempts: 1, ...lease });
  const over = await old({
    created_at: hour(5),
    status: 'processing',
    attempts: 1,
    locked_until: hour(6),
  });
  const later = await old({ created_at: hour(7), attempts: 1, next_attempt_at: soon });
  const dead = await old({
    created_at: hour(8),
    status: 'dead',
    attempts: 5,
    last_error: 'gave up',
    updated_at: hour(9).toISOString(),
  });
  const lastTry = await old({ created_at: hour(10), status: 'processing', attempts: 5, ...lease });
  const plain = await old({ created_at: hour(11), tenant_id: null, dedupe_key: 'nightly/1' });
  const elsewhere = await old({
    created_at: hour(12),
    namespace: 'notifications',
    tenant_id: null,
  });
  await old({ created_at: hour(0), status: 'delivered', attempts: 1 });

  await upgrade();
  expect(await eventsAfter()).toMatchObject([
    { old_id: fresh, status: 'pending', attempts: 0, created_at: hour(1), last_error: null },
    { old_id: held, status: 'pending', attempts: 1, next_attempt_at: soon, created_at: hour(2) },
    {
      old_id: retrying,
      status: 'pending',
      attempts: 2,
      next_attempt_at: hour(4),
      last_error: 'no room',
      created_at: hour(3),
      updated_at: hour(3),
    },
    { old_id: over, status: 'pending', attempts: 1, next_attempt_at: hour(6) },
    { old_id: later, status: 'pending', attempts: 1, next_attempt_at: soon },
    { old_id: dead, status: 'dead', attempts: 5, last_error: 'gave up', updated_at: hour(9) },
    { old_id: lastTry, status: 'dead', attempts: 5 },
    { old_id: plain, tenant_id: null, dedupe_key: 'nightly/1', status: 'pending' },
    { old_id: elsewhere, namespace: 'notifications', status: 'pending' },
  ]);

  // by creation, with the next number; what is held by an old dispatcher, or not due, stays
  const store = createStore(poolOf('chat_dispatcher'), {
    worker_id: randomUUID(),
    namespace: 'chat',
  });
  const claimed = await store.claim_batch({ batch_size: 9, lease_duration: 9000, max_attempts: 5 });
  expect(claimed.map(({ attempts, created_at }) => [attempts, created_at])).toEqual([
    [1, hour(1)],
    [3, hour(3)],
    [2, hour(5)],
    [1, hour(11)],
  ]);
  for (const { id } of claimed) await store.ack(id);
  // a dead event can be retried by an operator
  await db.query(`SELECT outbox.retry_dead_letters('modkit.chat')`);
  expect(
    await store.claim_batch({ batch_size: 9, lease_duration: 9000, max_attempts: 5 }),
  ).toMatchObject([{ created_at: hour(8) }, { created_at: hour(10) }]);

  const { rows } = await db.query<{ count: number }>(
    'SELECT count(*)::int FROM public.modkit_outbox_events_old',
  );
  expect(only(rows).count).toBe(10);
  const { rows: problems } = await db.query('SELECT * FROM outbox.health_check() WHERE NOT ok');
  expect(problems).toEqual([]);
  // what UPGRADE.md drops at the end
  const [, drop = ''] = /```text\n(DROP [^`]*)```/.exec(sqlOf('UPGRADE.md')) ?? [];
  await db.query(drop);
});

test.each([
  ['the usual plan', ''],
  ['a plan that sorts by namespace', 'SET enable_hashjoin = off; SET enable_nestloop = off'],
])(
  'M8 M14 events of one transaction have one created_at and keep the order of their ids, with %s',
  async (_, settings) => {
    await db.query(
      `INSERT INTO public.modkit_outbox_events (namespace, topic, payload)
     SELECT (ARRAY['chat', 'notifications'])[n % 2 + 1], 'chat.usage', '{}' FROM generate_series(1, 2400) n`,
    );
    await upgrade(settings);
    const { rows } = await db.query<{ moved_from: string }>(
      `SELECT m.headers ->> 'moved_from' AS moved_from
       FROM modkit.claim_batch('chat', 'w', 2000, '1 minute', 5) WITH ORDINALITY c
       JOIN outbox.messages m USING (id) ORDER BY c.ordinality`,
    );
    const ids = rows.map(({ moved_from }) => moved_from);
    expect(ids).toHaveLength(1200);
    expect(ids).toEqual(ids.toSorted());
  },
);

test('M7 M14 an event that was never tried is not claimed before its next_attempt_at; a creation time in the future delays nothing', async () => {
  const soon = new Date(Date.now() + 3_600_000);
  const scheduled = await old({ next_attempt_at: soon });
  const ahead = await old({ created_at: soon });
  await upgrade();
  expect(await eventsAfter()).toMatchObject(
    expect.arrayContaining([
      expect.objectContaining({ old_id: scheduled, attempts: 0, next_attempt_at: soon }),
    ]),
  );
  const store = createStore(poolOf('chat_dispatcher'), { worker_id: 'w', namespace: 'chat' });
  const claimed = await store.claim_batch({ batch_size: 9, lease_duration: 9000, max_attempts: 5 });
  const moved = await eventsAfter();
  expect(claimed.map(({ id }) => moved.find((row) => row['id'] === id)?.['old_id'])).toEqual([
    ahead,
  ]);
  const { rows: problems } = await db.query('SELECT * FROM outbox.health_check() WHERE NOT ok');
  expect(problems).toEqual([]);
});

test('M3 M14 a late repeat of any old event is recognised, with its id', async () => {
  const known = new Map<string, string>();
  for (const status of ['pending', 'processing', 'delivered', 'dead']) {
    const tenant_id = randomUUID();
    known.set(tenant_id, await old({ status, tenant_id, attempts: status === 'pending' ? 0 : 1 }));
  }
  await old({ status: 'delivered', tenant_id: null, dedupe_key: 'nightly/9' });
  await upgrade();
  await db.query('DROP TABLE public.modkit_outbox_events_old');
  const before = await eventsAfter();
  const repeat = (tenant_id: string | null, dedupe_key: string) =>
    inTransaction(producers, (client) =>
      enqueueOnce(client, {
        namespace: 'chat',
        topic: 'chat.usage',
        tenant_id,
        dedupe_key,
        payload: {},
      }),
    );
  const producers = poolOf('chat_producer');
  for (const [tenant_id, old_id] of known) {
    const answer = await repeat(tenant_id, `${tenant_id}/t/r`);
    expect(answer.already_enqueued).toBe(true);
    const row = before.find((each) => each['old_id'] === old_id);
    expect(answer.id).toBe(row?.['id'] ?? old_id);
  }
  expect(await repeat(null, 'nightly/9')).toMatchObject({ already_enqueued: true });
  expect(await eventsAfter()).toEqual(before);
});

test('M14 an event that does not fit, or a namespace without settings, stops the upgrade, and nothing is changed', async () => {
  const id = await old({ namespace: 'unknown' });
  await expect(upgrade()).rejects.toThrow('the namespace "unknown" has no settings');
  await db.query('DELETE FROM public.modkit_outbox_events');
  await old({ tenant_id: null, dedupe_key: `${randomUUID()}/t/r` });
  await expect(upgrade()).rejects.toThrow('and the tenant_id null: correct one of them');
  const { rows } = await db.query<{ kind: string }>(
    `SELECT relkind AS kind FROM pg_class WHERE oid = 'public.modkit_outbox_events'::regclass`,
  );
  expect([only(rows).kind, id]).toEqual(['r', id]);
});

test('M14 a view or a function that would go on reading the old table stops the upgrade', async () => {
  await db.query(`CREATE VIEW backlog AS SELECT count(*) FROM public.modkit_outbox_events;
    CREATE FUNCTION oldest() RETURNS timestamptz
      BEGIN ATOMIC SELECT min(created_at) FROM public.modkit_outbox_events; END;
    CREATE FUNCTION waiting() RETURNS SETOF public.modkit_outbox_events LANGUAGE sql
      AS 'SELECT * FROM public.modkit_outbox_events'`);
  await expect(upgrade()).rejects.toThrow(
    'these read the table modkit_outbox_events: backlog, oldest(), waiting()',
  );
  await db.query('DROP VIEW backlog; DROP FUNCTION oldest(), waiting()');
  await upgrade();
});

test('M1 M14 with an old dispatcher at work, every event is delivered by one side or waits at the other', async () => {
  for (let n = 0; n < 300; n += 1) await old({});
  let stopped = '';
  const acked = new Set<string>();
  const dispatcher = async (worker: string) => {
    const client = await db.connect();
    for (;;) {
      const { rows } = await client.query<{ id: string }>(
        `UPDATE public.modkit_outbox_events SET status = 'processing', attempts = attempts + 1, locked_by = $1,
                locked_until = now() + interval '1 hour'
          WHERE id IN (SELECT id FROM public.modkit_outbox_events WHERE status = 'pending'
                        ORDER BY created_at, id LIMIT 5 FOR UPDATE SKIP LOCKED) RETURNING id`,
        [worker],
      );
      if (rows.length === 0) return;
      for (const { id } of rows) {
        await client.query(
          `UPDATE public.modkit_outbox_events SET status = 'delivered', locked_by = NULL WHERE id = $1 AND locked_by = $2`,
          [id, worker],
        );
        acked.add(id);
      }
    }
  };
  const running = ['a', 'b'].map((worker) =>
    dispatcher(worker).catch((error: unknown) => {
      stopped = String(error);
    }),
  );
  await waitFor(() => acked.size >= 20, { what: 'deliveries of the old dispatcher' });
  await upgrade();
  await Promise.all(running);
  // it found the view in the place of its table
  expect(stopped).toMatch(/cannot update view "modkit_outbox_events"/);
  const rows = await eventsAfter();
  expect(rows.length).toBeGreaterThan(0);
  const moved = new Set(rows.map((row) => row['old_id']));
  expect(acked.size + moved.size).toBe(300);
  expect([...acked].filter((id) => moved.has(id))).toEqual([]);
  // what it held at that moment waits until its lease is over
  const inFlight = rows.filter((row) => row['attempts'] === 1);
  expect(inFlight.length).toBeLessThanOrEqual(10);
  for (const row of inFlight)
    expect((row['next_attempt_at'] as Date).getTime()).toBeGreaterThan(Date.now() + 3_000_000);
});
