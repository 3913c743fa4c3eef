// Web server that receives webhooks: it reads the body, answers 200, and counts. `expect` starts a new count; the
// server sends `begun` at the first request and `reached` when that many have come.

import { createServer } from 'node:http';

import { nowMs } from './clock.mjs';
import './parent.mjs';

let expected = 0;
let count = 0;
let firstMs = 0;

const server = createServer((request, response) => {
  request.on('data', () => {});
  request.on('end', () => {
    if (count === 0) {
      firstMs = nowMs();
      process.send({ type: 'begun' });
    }
    count += 1;
    response.end('ok');
    if (count === expected) process.send({ type: 'reached', firstMs, lastMs: nowMs() });
  });
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  process.send({ type: 'ready', url: `http://127.0.0.1:${server.address().port}/` });
});
process.on('message', (message) => {
  if (message.type === 'expect') {
    expected = message.count;
    count = 0;
  } else if (message.type === 'collect') {
    process.send({ type: 'counted', count });
  }
});
process.once('SIGTERM', () => process.exit(0));
