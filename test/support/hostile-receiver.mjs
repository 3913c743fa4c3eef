// A hostile receiver of webhooks, in its own process: the path selects how it misbehaves. It writes its port to standard
// output, and ends when standard input does.

import { createServer } from 'node:http';

const mebibyte = 1024 * 1024;

/** @type {Record<string, (response: import('node:http').ServerResponse, secrets: string) => void>} */
const answers = {
  ok: (response) => response.writeHead(204).end(),
  'long-body': (response) => response.writeHead(500).end('x'.repeat(64 * mebibyte)),
  'many-headers': (response) => {
    for (let index = 0; index < 300; index += 1)
      response.setHeader(`x-header-${index}`, 'v'.repeat(40));
    response.writeHead(500).end('no');
  },
  charset: (response) =>
    response
      .writeHead(500, { 'content-type': 'text/plain; charset=utf-16le' })
      .end(Buffer.alloc(mebibyte, 0xd8)),
  'invalid-utf8': (response) => response.writeHead(500).end(Buffer.alloc(mebibyte, 0xff)),
  drip: (response) => {
    response.writeHead(500);
    const timer = setInterval(() => response.write('x'), 5);
    response.on('close', () => clearInterval(timer));
  },
  echo: (response, secrets) => response.writeHead(500).end(secrets.repeat(50)),
  'nearly-echo': (response, secrets) =>
    response.writeHead(500).end(secrets.slice(0, -1).repeat(50)),
  backslashes: (response) => response.writeHead(500).end('\\'.repeat(mebibyte)),
  percents: (response) => response.writeHead(500).end('%25'.repeat(mebibyte / 3)),
  entities: (response) => response.writeHead(500).end('&#x26;'.repeat(mebibyte / 6)),
};

const server = createServer({ maxHeaderSize: 64 * 1024 }, (request, response) => {
  request.resume().on('end', () => {
    const [, name = ''] = (request.url ?? '').split('/');
    const answer = answers[name.split('?')[0] ?? ''] ?? answers.ok;
    answer?.(response, JSON.stringify(request.headers));
  });
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  process.stdout.write(`${typeof address === 'object' ? address?.port : ''}\n`);
});
process.stdin.resume().on('end', () => process.exit(0));
