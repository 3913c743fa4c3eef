// Chat platform: turns end in three ways, some of them twice, and two dispatchers publish at once. Every seventh answer
// of billing is lost on its way back, and the balances are still exact. Run it with `npm run example -- chat-usage`.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';

import pg from 'pg';
import { migrateUp } from 'waybill';

import { createBilling } from './billing.mjs';
import { dispatch } from './dispatcher.mjs';
import { createStore } from './store.mjs';
import { beginTurn, finaliseTurn, namespace, readTurn } from './turns.mjs';

const url = process.env.DATABASE_URL;
await migrateUp({ url });
const pool = new pg.Pool({ connectionString: url });
const client = await pool.connect();
await client.query(readFileSync(new URL('schema.sql', import.meta.url), 'utf8'));

const run = randomUUID().slice(0, 8);
const ids = new Set();
for (let n = 1; n <= 90; n += 1) {
  const turn = {
    tenant_id: `${n % 2 === 0 ? 'acme' : 'globex'}-${run}`,
    turn_id: randomUUID(),
    request_id: randomUUID(),
  };
  await beginTurn(client, { ...turn, reserved_tokens: 1000 });
  const ending = { outcome: ['completed', 'failed', 'aborted'][n % 3], used_tokens: n };
  ids.add((await finaliseTurn(client, { ...turn, ...ending })).id);
  // the client lost the answer, and asks again
  if (n % 10 === 0) ids.add((await finaliseTurn(client, { ...turn, ...ending })).id);
  await readTurn(client, turn);
}
console.log(`99 finalisations of 90 turns made ${ids.size} messages`);

const turn = { tenant_id: `acme-${run}`, turn_id: randomUUID(), request_id: randomUUID() };
await beginTurn(client, { ...turn, reserved_tokens: 10 });
await finaliseTurn(client, { ...turn, outcome: 'completed', used_tokens: 11 }).catch((error) =>
  console.log('more than was reserved:', error.message),
);

const bill = createBilling(pool);
const stop = new AbortController();
const seen = { published: 0, duplicates: 0, lost_answers: 0, delivered: 0 };
async function publish(message) {
  if (!(await bill(message))) seen.duplicates += 1;
  seen.published += 1;
  if (message.attempts === 1 && seen.published % 7 === 0) {
    seen.lost_answers += 1;
    throw new Error('the answer of billing was lost');
  }
}
function on_event({ kind, id }) {
  if (kind !== 'delivered') return;
  seen.delivered += 1;
  ids.delete(id);
  if (ids.size === 0) stop.abort();
}
await Promise.all(
  [1, 2].map(() =>
    dispatch(
      createStore(pool, { worker_id: randomUUID(), namespace }),
      publish,
      { batch_size: 10, lease_duration: 30_000, max_attempts: 5, poll_interval: 100, on_event },
      stop.signal,
    ),
  ),
);
console.log('two dispatchers:', JSON.stringify(seen));

const { rows } = await client.query(
  `SELECT tenant_id, b.turns, b.used_tokens, t.used_tokens AS finalised_tokens
     FROM public.billing_balances b JOIN (SELECT tenant_id, sum(used_tokens) AS used_tokens FROM public.chat_turns GROUP BY 1) t USING (tenant_id)
    WHERE tenant_id LIKE '%-' || $1 ORDER BY 1`,
  [run],
);
for (const { tenant_id, turns, used_tokens, finalised_tokens } of rows)
  console.log(`${tenant_id}: billed ${turns} turns, ${used_tokens} tokens of ${finalised_tokens}`);
client.release();
await pool.end();
