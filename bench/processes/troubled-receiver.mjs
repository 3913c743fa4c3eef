// Web server with three behaviours: /fine answers 200 after a few milliseconds and is counted, /failing answers 500
// after the same time, /hanging never answers. `expect` starts a new count; the server sends `reached` when that
// many requests to /fine have come.

import { createServer } from 'node:http';

import { nowMs } from './clock.mjs';
import './parent.mjs';

const answerMs = Number(process.env.BENCH_ANSWER_MS);
let expected = 0;
let count = 0;
let firstMs = 0;
let failed = 0;

const server = createServer((request, response) => {
  request.on('data', () => {});
  request.on('end', () => {
    if (request.url === '/hanging') return;
    setTimeout(() => answer(request.url, response), answerMs);
  });
});

function answer(path, response) {
  if (path === '/failing') {
    failed += 1;
    response.writeHead(500).end('no');
    return;
  }
  if (count === 0) firstMs = nowMs();
  count += 1;
  response.end('ok');
  if (count === expected) process.send({ type: 'reached', firstMs, lastMs: nowMs(), failed });
}

server.keepAliveTimeout = 60_000;
server.requestTimeout = 0;
server.listen(0, '127.0.0.1', () => {
  process.send({ type: 'ready', url: `http://127.0.0.1:${server.address().port}` });
});
process.on('message', (message) => {
  if (message.type !== 'expect') return;
  expected = message.count;
  count = 0;
  failed = 0;
});
process.once('SIGTERM', () => process.exit(0));
