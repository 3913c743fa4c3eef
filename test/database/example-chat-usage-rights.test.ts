// The chat platform's logins: what each of them can do and cannot do; and its dedupe keys, which nothing forgets.

import { randomUUID } from 'node:crypto';

import { expect, test } from 'vitest';

import { dispatch } from '../../examples/chat-usage/dispatcher.js';
import { enqueueOnce } from '../../examples/chat-usage/store.js';
import { chatPlatform } from '../support/chat.js';
import { cli, writeConfig } from '../support/cli.js';
import { as, urlAs } from '../support/logins.js';
import type { ChatLogin } from '../support/logins.js';
import { only } from '../support/only.js';
import { inTransaction } from '../support/postgres.js';

const chat = chatPlatform();
const { db, events, pool, put, store } = chat;

const refused = { code: '42501' };
const isViewChange = (statement: string) =>
  /^(INSERT INTO|UPDATE|DELETE FROM) public.modkit_outbox_events/.test(statement);
const id = '00000000-0000-0000-0000-000000000000';
const forbidden: Record<string, string[]> = {
  writing: [
    `INSERT INTO public.modkit_outbox_events (namespace, topic, payload) VALUES ('chat', 'x', '{}')`,
    `UPDATE public.modkit_outbox_events SET status = 'delivered'`,
    'DELETE FROM public.modkit_outbox_events',
    'DELETE FROM outbox.dedupe_keys',
    'TRUNCATE outbox.dedupe_keys',
    'DELETE FROM outbox.messages',
    'UPDATE outbox.deliveries SET tries = 0',
    `UPDATE outbox.retention_floors SET dedupe_keys_days = 30`,
    'DELETE FROM outbox.retention_floors',
    'DELETE FROM public.chat_turns',
    'DELETE FROM public.billed_usage',
  ],
  defining: [
    `SELECT modkit.define_namespace('chat', 9, '1 s', '1 s')`,
    `SELECT outbox.define_destination('modkit.chat', p_max_attempts => 9)`,
    `SELECT outbox.remove_destination('modkit.chat')`,
    `SELECT outbox.define_route('*', 'modkit.chat')`,
  ],
  enqueuing: [
    `SELECT modkit.enqueue('chat', 'x', NULL, NULL, '{}')`,
    `SELECT outbox.enqueue('x', '{}', namespace => 'chat', key => 'k')`,
    `SELECT outbox.enqueue_many('[]')`,
  ],
  dispatching: [
    `SELECT modkit.claim_batch('chat', '${id}', 1, '1 s', 5)`,
    `SELECT modkit.ack('chat', '${id}', '${id}', 1)`,
    `SELECT modkit.nack('chat', '${id}', '${id}', 1, 'x')`,
    `SELECT modkit.release('chat', '${id}', '{}')`,
    `SELECT modkit.settings('chat')`,
    `SELECT outbox.claim('modkit.chat', '${id}')`,
    `SELECT outbox.claim_in_order('modkit.chat', '${id}')`,
    `SELECT outbox.ack('${id}', '${id}')`,
    `SELECT outbox.settle('${id}', '${id}', '{}')`,
  ],
  inside: [
    `SELECT modkit.destination_of('chat')`,
    `SELECT modkit.token_of('worker')`,
    `INSERT INTO modkit.workers VALUES ('${id}', 'worker')`,
    'DELETE FROM modkit.workers',
    `SELECT modkit.holds('chat', '${id}', '${id}', 1)`,
    'SET ROLE chat_owner',
  ],
  removing: [
    `SELECT outbox.prune_dedupe_keys('30 days')`,
    `SELECT outbox.remove_partition('messages_20200101', '1 day', '1 day')`,
    `SELECT outbox.prune_dead_letters('0')`,
  ],
  operating: [
    `SELECT outbox.retry_now()`,
    `SELECT outbox.discard_dead_letters()`,
    `SELECT outbox.set_paused('modkit.chat', true)`,
  ],
  reading: [
    'SELECT * FROM public.modkit_outbox_events',
    'SELECT * FROM outbox.messages',
    'SELECT * FROM outbox.dedupe_keys',
    'SELECT * FROM outbox.destinations',
  ],
};
const { inside = [], defining = [], writing = [], reading = [], operating = [] } = forbidden;
const { enqueuing = [], dispatching = [], removing = [] } = forbidden;
const always = [...writing, ...inside, ...operating];

test.each<[ChatLogin, string[]]>([
  [
    'chat_producer',
    [...always, ...defining, ...dispatching, ...removing, ...reading, ...enqueuing.slice(1)],
  ],
  [
    'chat_dispatcher',
    [
      ...always,
      ...defining,
      ...enqueuing,
      ...removing,
      ...reading,
      ...dispatching.slice(5),
      'SELECT * FROM public.chat_turns',
    ],
  ],
  ['chat_reader', [...always, ...defining, ...enqueuing, ...dispatching, ...removing]],
  ['chat_billing', [...always, ...defining, ...enqueuing, ...dispatching, ...removing, ...reading]],
  // a relay defines destinations, but runs none of the platform's calls
  ['chat_maintenance', [...always, ...enqueuing, ...dispatching.slice(0, 5), defining[0] ?? '']],
])('M14 P13 %s can do nothing but its own work', async (login, statements) => {
  await as(db, login, async (client) => {
    for (const statement of statements)
      await expect(client.query(statement), statement).rejects.toMatchObject({
        // a view that no login may change says so before the rights are checked
        code: isViewChange(statement) ? '55000' : '42501',
      });
  });
});

test('M14 each login can do its own work: a producer enqueues, a dispatcher delivers, a reader reads', async () => {
  const [sent = ''] = await put('chat', 1);
  const stop = new AbortController();
  await dispatch(
    store('chat'),
    () => Promise.resolve(),
    { on_event: () => stop.abort() },
    stop.signal,
  );
  expect(await events('id = $1', sent)).toMatchObject([{ status: 'delivered', attempts: 1 }]);
});

/** As if the message had been written so many days ago. */
async function age(dedupe_key: string, days: number): Promise<void> {
  await db.query(
    `UPDATE outbox.dedupe_keys SET message_id = outbox.id_at(now() - $2 * interval '1 day') WHERE dedupe_key = $1`,
    [dedupe_key, days],
  );
}

test('M14 dedupe keys are kept for ever, whatever the retention and which login prunes; others are forgotten', async () => {
  const tenant_id = randomUUID();
  const message = { namespace: 'chat', topic: 'usage', tenant_id, payload: {} };
  const repeat = (namespace = 'chat', dedupe_key = `${tenant_id}/t/r`) =>
    inTransaction(pool('chat_producer'), (client) =>
      enqueueOnce(client, { ...message, namespace, dedupe_key }),
    );
  const namespaces = ['chat', 'notifications'];
  for (const namespace of namespaces) {
    await repeat(namespace);
    const worker = store(namespace);
    const { max_attempts } = await worker.settings();
    const claimed = await worker.claim_batch({
      batch_size: 10,
      lease_duration: 9000,
      max_attempts,
    });
    for (const claim of claimed) await worker.ack(claim.id);
  }
  // a key of another system in the same database, which has no floor
  await db.query(
    `SELECT outbox.enqueue('y', '{}', namespace => 'elsewhere', dedupe_key => 'other')`,
  );
  await db.query(`SELECT outbox.discard_unrouted()`);
  await age(`${tenant_id}/t/r`, 400);
  await age('other', 400);

  const url = urlAs(db.url, 'chat_maintenance');
  for (const retention of ['{}', '{ dedupeKeysDays: 30, messagesDays: 1, attemptsDays: 1 }']) {
    const config = writeConfig(`{ destinations: {}, routes: [], retention: ${retention} }`);
    const done = await cli(['maintain', '--config', config], {
      environment: { DATABASE_URL: url },
    });
    expect(`${done.code} ${done.stderr}`).toMatch(/^0 /);
  }
  for (const client of [pool('chat_maintenance'), db.pool])
    await client.query(`SELECT outbox.prune_dedupe_keys('30 days', 1000000)`);
  await expect(
    pool('chat_maintenance').query(`DELETE FROM outbox.dedupe_keys`),
  ).rejects.toMatchObject(refused);
  for (const namespace of namespaces)
    expect(await repeat(namespace)).toMatchObject({ already_enqueued: true });
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int FROM outbox.dedupe_keys WHERE dedupe_key = 'other'`,
  );
  expect(only(rows).count).toBe(0);
});
