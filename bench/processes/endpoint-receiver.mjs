// Web server for the endpoints of two tenants: /fine records the time of each request and answers 200 after a few
// milliseconds, /hanging never answers. `collect` returns the times so far, `count` the number of requests to
// /hanging. `expect` starts a count of backlog messages; the server sends `reached` when that many have come.

import { createServer } from 'node:http';

import { nowMs } from './clock.mjs';
import { createProbe } from './probe.mjs';

const answerMs = Number(process.env.BENCH_ANSWER_MS);
const probe = createProbe();
let hanging = 0;
let expected = 0;
let count = 0;
let firstMs = 0;

const server = createServer((request, response) => {
  let body = '';
  request.setEncoding('utf8').on('data', (text) => (body += text));
  request.on('end', () => {
    if (request.url === '/hanging') {
      hanging += 1;
      return;
    }
    take(JSON.parse(body));
    setTimeout(() => response.end('ok'), answerMs);
  });
});

function take(payload) {
  if (payload.n !== -2) return probe.handle('', payload);
  if (count === 0) firstMs = nowMs();
  count += 1;
  if (count === expected) process.send({ type: 'reached', firstMs, lastMs: nowMs() });
}

server.keepAliveTimeout = 60_000;
server.requestTimeout = 0;
server.listen(0, '127.0.0.1', () => {
  process.send({ type: 'ready', url: `http://127.0.0.1:${server.address().port}` });
  process.send({ type: 'settings', settings: { answerMs } });
});
process.on('message', (message) => {
  if (message.type === 'count') process.send({ type: 'counted', hanging });
  if (message.type !== 'expect') return;
  expected = message.count;
  count = 0;
});
process.once('SIGTERM', () => process.exit(0));
