// Web server with three behaviours, by the beginning of the path: /fine answers 200 after BENCH_ANSWER_MS and is
// counted, /failing answers 500 after the same time, /hanging never answers. `expect` starts a new count; the server
// sends `begun` at the first request to /fine and `reached` when that many requests to /fine have come. It listens on BENCH_ADDRESSES loopback addresses, because
// there are only 28,000 local ports for the connections to one of them.

import { createServer } from 'node:http';

import { nowMs } from './clock.mjs';
import './parent.mjs';

const answerMs = Number(process.env.BENCH_ANSWER_MS);
const addresses = Number(process.env.BENCH_ADDRESSES ?? 1);
let expected = 0;
let count = 0;
let firstMs = 0;
let failed = 0;

function take(request, response) {
  request.on('data', () => {});
  request.on('end', () => {
    if (request.url.startsWith('/hanging')) return;
    if (answerMs === 0) answer(request.url, response);
    else setTimeout(() => answer(request.url, response), answerMs);
  });
}

function answer(path, response) {
  if (path.startsWith('/failing')) {
    failed += 1;
    response.writeHead(500).end('no');
    return;
  }
  if (count === 0) {
    firstMs = nowMs();
    process.send({ type: 'begun' });
  }
  count += 1;
  response.end('ok');
  if (count === expected) process.send({ type: 'reached', firstMs, lastMs: nowMs(), failed });
}

const urls = [];
for (let n = 1; n <= addresses; n += 1) {
  const server = createServer(take);
  server.keepAliveTimeout = 60_000;
  server.requestTimeout = 0;
  await new Promise((resolve) => server.listen(0, `127.0.0.${n}`, resolve));
  urls.push(`http://127.0.0.${n}:${server.address().port}`);
}
process.send({ type: 'ready', url: urls[0], urls });
process.on('message', (message) => {
  if (message.type !== 'expect') return;
  expected = message.count;
  count = 0;
  failed = 0;
});
process.once('SIGTERM', () => process.exit(0));
