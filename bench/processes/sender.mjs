// The limit of a webhook: undici alone, no database, the same body, as many connections: sender.mjs COUNT
// CONNECTIONS BYTES.

import { Pool } from 'undici';

import { payloadOf } from './payload.mjs';

const [count, connections, bytes] = process.argv.slice(2).map(Number);
const pool = new Pool(process.env.BENCH_URL, { connections });
let sent = 0;
await Promise.all(
  Array.from({ length: connections }, async () => {
    while (sent < count) {
      sent += 1;
      const response = await pool.request({
        method: 'POST',
        path: '/',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(payloadOf(sent, bytes)),
      });
      if (response.statusCode !== 200) throw new Error(`status ${response.statusCode}`);
      await response.body.dump();
    }
  }),
);
await pool.close();
process.send({ type: 'done' });
process.disconnect();
