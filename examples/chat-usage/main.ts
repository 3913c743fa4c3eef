// Chat platform: turns end in three ways, some of them twice, and two dispatchers publish at once. Every seventh answer
// of billing is lost on its way back, and the balances are still exact. Each part connects with its own login. Run it
// with `npm run example -- chat-usage`.

import { randomBytes, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';

import pg from 'pg';
import { migrateUp } from 'waybill';

import { createBilling } from './billing.js';
import { dispatch } from './dispatcher.js';
import type { DispatchEvent } from './dispatcher.js';
import { createStore } from './store.js';
import type { ClaimedMessage } from './store.js';
import { beginTurn, finaliseTurn, namespace, readTurn } from './turns.js';

const url = process.env['DATABASE_URL'] ?? '';
await migrateUp({ url });
const administrator = new pg.Pool({ connectionString: url });
for (const file of ['schema.sql', 'namespaces.sql', 'domain.sql'])
  await administrator.query(readFileSync(new URL(file, import.meta.url), 'utf8'));

const pools = [administrator];
const [producers, dispatchers, billing, readers] = [
  await poolOf('chat_producer'),
  await poolOf('chat_dispatcher'),
  await poolOf('chat_billing'),
  await poolOf('chat_reader'),
];
const client = await producers.connect();
const [acme, globex] = [randomUUID(), randomUUID()];
const waiting = new Set<string | undefined>();
for (let n = 1; n <= 90; n += 1) {
  const turn = {
    tenant_id: n % 2 === 0 ? acme : globex,
    turn_id: randomUUID(),
    request_id: randomUUID(),
  };
  await beginTurn(client, { ...turn, reserved_tokens: 1000 });
  const outcome = ['completed', 'failed', 'aborted'][n % 3] ?? '';
  waiting.add((await finaliseTurn(client, { ...turn, outcome, used_tokens: n }))?.id);
  // the client lost the answer, and asks again
  if (n % 10 === 0)
    waiting.add((await finaliseTurn(client, { ...turn, outcome, used_tokens: n }))?.id);
  await readTurn(client, turn);
}
console.log(`99 finalisations of 90 turns made ${waiting.size} messages`);

const turn = { tenant_id: acme, turn_id: randomUUID(), request_id: randomUUID() };
await beginTurn(client, { ...turn, reserved_tokens: 10 });
await finaliseTurn(client, { ...turn, outcome: 'completed', used_tokens: 11 }).catch(
  (error: unknown) => console.log('more than was reserved:', (error as Error).message),
);
client.release();

const bill = createBilling(billing);
const stop = new AbortController();
const seen = { published: 0, duplicates: 0, lost_answers: 0, delivered: 0 };
async function publish(message: ClaimedMessage): Promise<void> {
  if (!(await bill(message))) seen.duplicates += 1;
  seen.published += 1;
  if (message.attempts === 1 && seen.published % 7 === 0) {
    seen.lost_answers += 1;
    throw new Error('the answer of billing was lost');
  }
}
function on_event({ kind, id }: DispatchEvent): void {
  if (kind !== 'delivered') return;
  seen.delivered += 1;
  waiting.delete(id);
  if (waiting.size === 0) stop.abort();
}
await Promise.all(
  [1, 2].map(() =>
    dispatch(
      createStore(dispatchers, { worker_id: randomUUID(), namespace }),
      publish,
      { batch_size: 10, lease_duration: 30_000, poll_interval: 100, on_event },
      stop.signal,
    ),
  ),
);
console.log('two dispatchers:', JSON.stringify(seen));

const { rows: statuses } = await readers.query<{ status: string; count: string }>(
  'SELECT status, count(*) FROM public.modkit_outbox_events WHERE tenant_id = ANY ($1) GROUP BY 1',
  [[acme, globex]],
);
console.log('events:', statuses.map(({ status, count }) => `${count} ${status}`).join(', '));
const { rows } = await administrator.query<
  Record<'tenant' | 'turns' | 'used_tokens' | 'finalised', string>
>(
  `SELECT CASE b.tenant_id WHEN $2 THEN 'acme' ELSE 'globex' END AS tenant, b.turns, b.used_tokens,
          sum(t.used_tokens) AS finalised
     FROM public.billing_balances b JOIN public.chat_turns t USING (tenant_id)
    WHERE tenant_id = ANY ($1) GROUP BY b.tenant_id, 2, 3 ORDER BY 1`,
  [[acme, globex], acme],
);
for (const { tenant, turns, used_tokens, finalised } of rows)
  console.log(`${tenant}: billed ${turns} turns, ${used_tokens} tokens of ${finalised}`);
await Promise.all(pools.map((pool) => pool.end()));

/** The same database as one of the logins, with a password for this run. */
async function poolOf(login: string): Promise<pg.Pool> {
  const password = randomBytes(18).toString('base64url');
  await administrator.query(`ALTER ROLE ${login} PASSWORD '${password}'`);
  const { href } = Object.assign(new URL(url), { username: login, password });
  const pool = new pg.Pool({ connectionString: href });
  pools.push(pool);
  return pool;
}
