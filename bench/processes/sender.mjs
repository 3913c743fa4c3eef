// The upper limit of a webhook: bare undici with the same body and number of connections, and no database:
// sender.mjs COUNT CONNECTIONS BYTES. With BENCH_SECRET, each body is signed as in Standard Webhooks.

import { createHmac, createSecretKey, randomUUID } from 'node:crypto';

import { Pool } from 'undici';

import './parent.mjs';
import { payloadOf } from './payload.mjs';

const [count, connections, bytes] = process.argv.slice(2).map(Number);
const pool = new Pool(process.env.BENCH_URL, { connections });
const { BENCH_SECRET } = process.env;
const key = BENCH_SECRET && createSecretKey(BENCH_SECRET, 'base64');
let sent = 0;

function signed(body) {
  const id = randomUUID();
  const timestamp = String(Math.floor(Date.now() / 1000));
  const signature = createHmac('sha256', key).update(`${id}.${timestamp}.${body}`).digest('base64');
  return {
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': `v1,${signature}`,
  };
}

await Promise.all(
  Array.from({ length: connections }, async () => {
    while (sent < count) {
      sent += 1;
      const body = JSON.stringify(payloadOf(sent, bytes));
      const response = await pool.request({
        method: 'POST',
        path: '/',
        headers: { 'content-type': 'application/json', ...(key && signed(body)) },
        body,
      });
      if (response.statusCode !== 200) throw new Error(`status ${response.statusCode}`);
      await response.body.dump();
    }
  }),
);
await pool.close();
process.send({ type: 'done' });
// does not exit: the bench reads its processor time and then stops it
