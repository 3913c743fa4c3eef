// The web server that webhooks go to: it answers 200 to every request, and counts. `expect` begins a new count and
// is answered with `begun` at the first request and with `reached` when so many have come. In the world it stands on another machine; here it
// takes its time from the contenders, so it reads of HTTP no more than where a request ends: Node's own server costs
// as much for each request as undici does.

import { createServer } from 'node:net';

import { nowMs } from './clock.mjs';
import './parent.mjs';

const answer = Buffer.from(
  'HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nkeep-alive: timeout=60\r\n\r\nok',
);
let expected = 0;
let count = 0;
let firstMs = 0;

/** How long the first request is, or 0 if it is not whole yet. */
function requestLength(text) {
  const headersEnd = text.indexOf('\r\n\r\n');
  if (headersEnd < 0) return 0;
  const [, bodyLength] = /\r\ncontent-length: (\d+)\r\n/i.exec(text.slice(0, headersEnd + 2)) ?? [];
  if (bodyLength === undefined) throw new Error('a request without a length');
  const length = headersEnd + 4 + Number(bodyLength);
  return length <= text.length ? length : 0;
}

const server = createServer({ noDelay: true }, (socket) => {
  let unread = '';
  // whoever is stopped in the middle has no more to say
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk) => {
    unread += chunk.latin1Slice();
    for (let length = requestLength(unread); length > 0; length = requestLength(unread)) {
      unread = unread.slice(length);
      if (count === 0) {
        firstMs = nowMs();
        process.send({ type: 'begun' });
      }
      count += 1;
      socket.write(answer);
      if (count === expected) process.send({ type: 'reached', firstMs, lastMs: nowMs() });
    }
  });
});
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
