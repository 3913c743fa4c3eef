// Receivers that violate HTTP, on raw sockets. Whatever they send, and wherever the connection ends, there is an
// outcome in time, with a code that the page on webhooks lists.

import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';

import { describe, expect, it, onTestFinished } from 'vitest';

import type { Outcome } from '../../src/core/outcome.js';
import {
  answer,
  endlessly,
  headed,
  ok,
  outcomeOfTalk,
  says,
  saysAndResets,
  saysAndWaits,
  serveRaw,
} from '../support/raw-receiver.js';
import type { Talk } from '../support/raw-receiver.js';
import { randomFrom } from '../support/streams.js';
import { deliver, opened } from '../support/webhook.js';

describe('an invalid response', () => {
  it.each<[string, Talk, string]>([
    ['the status 000', says(answer('000 Nothing')), 'STATUS_INVALID'],
    ['the status 000, and no end', saysAndWaits(answer('000 Nothing')), 'STATUS_INVALID'],
    ['the status 099', says(answer('099 Low')), 'STATUS_INVALID'],
    ['the status 99', says(answer('99 Short')), 'HTTPParserError'],
    ['the status 1000', says(answer('1000 Long')), 'HTTPParserError'],
    ['the status -1', says(answer('-1 Negative')), 'HTTPParserError'],
    ['a status in words', says(answer('two hundred')), 'HTTPParserError'],
    ['no status', says('HTTP/1.1 \r\n\r\n'), 'HTTPParserError'],
    ['another protocol without a request', says(`HTTP/1.1 101 X\r\n\r\n${ok}`), 'STATUS_INVALID'],
    ['another service', says('SSH-2.0-OpenSSH_9.9\r\n'), 'HTTPParserError'],
    ['a request', says('GET / HTTP/1.1\r\nhost: x\r\n\r\n'), 'HTTPParserError'],
    ['an alert of TLS', says(Buffer.from([0x15, 3, 1, 0, 2, 2, 0x28])), 'HTTPParserError'],
    ['nothing but NULs', says(Buffer.alloc(5000)), 'HTTPParserError'],
    ['a version that does not exist', says('HTTP/9.9 200 OK\r\n\r\n'), 'HTTPParserError'],
    ['lines that end without CR', says(ok.replaceAll('\r', '')), 'HTTPParserError'],
    ['a name of a header with a space', says(headed('a b: c')), 'HTTPParserError'],
    ['a NUL in a header', says(headed('a: \0')), 'HTTPParserError'],
    ['a length below zero', says(headed('content-length: -3', 'hello')), 'HTTPParserError'],
    [
      'two lengths',
      says(headed('content-length: 3\r\ncontent-length: 5', 'hello')),
      'UND_ERR_RES_CONTENT_LENGTH_MISMATCH',
    ],
    [
      'a length out of range',
      says(headed(`content-length: ${'9'.repeat(30)}`, 'hello')),
      'UND_ERR_RES_CONTENT_LENGTH_MISMATCH',
    ],
    [
      'a length and chunks',
      says(headed('transfer-encoding: chunked\r\ncontent-length: 3', '0\r\n\r\n')),
      'HTTPParserError',
    ],
    ['a huge header', says(headed(`a: ${'b'.repeat(1_000_000)}`)), 'UND_ERR_HEADERS_OVERFLOW'],
    [
      'an endless header',
      endlessly(`${ok.slice(0, 17)}a: `, 'b'.repeat(65_536)),
      'UND_ERR_HEADERS_OVERFLOW',
    ],
    [
      'endless headers',
      endlessly(ok.slice(0, 17), 'a: b\r\n'.repeat(9000)),
      'UND_ERR_HEADERS_OVERFLOW',
    ],
    [
      'a flood of interim responses',
      endlessly('', answer('102 Processing').repeat(1000)),
      'TOO_MANY_INTERIM_ANSWERS',
    ],
  ])('W2 %s is retried as answer_invalid', async (_what, talk, remoteCode) => {
    expect(await outcomeOfTalk(talk)).toMatchObject({
      kind: 'retry',
      code: 'answer_invalid',
      remoteCode,
      message: expect.stringMatching(/./) as unknown,
    });
  });

  it.each<[string, Talk, string]>([
    ['an end before the status', says(''), 'UND_ERR_SOCKET'],
    ['an end in the status', says('HTTP/1.1 2'), 'UND_ERR_SOCKET'],
    ['an end in the headers', says('HTTP/1.1 200 OK\r\ncontent-le'), 'UND_ERR_SOCKET'],
    ['an end before the empty line', says('HTTP/1.1 200 OK\r\na: b\r\n'), 'UND_ERR_SOCKET'],
    ['an end behind an interim response', says(answer('102 X')), 'UND_ERR_SOCKET'],
    ['a reset before the status', (socket) => void socket.resetAndDestroy(), 'ECONNRESET'],
    ['a reset in the status', saysAndResets('HTTP/1.1 2'), '(UND_ERR_SOCKET|ECONNRESET)'],
    [
      'a reset in the headers',
      saysAndResets('HTTP/1.1 200 OK\r\na'),
      '(UND_ERR_SOCKET|ECONNRESET)',
    ],
    [
      'a switch to another protocol',
      says('HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n'),
      'UND_ERR_SOCKET',
    ],
    ['an unexpected 100', says(`HTTP/1.1 100 Continue\r\n\r\n${ok}`), 'UND_ERR_SOCKET'],
  ])('W2 %s is retried as a broken connection', async (_what, talk, remoteCode) => {
    const outcome = await outcomeOfTalk(talk);
    expect(outcome).toMatchObject({
      kind: 'retry',
      code: 'connection_failed',
      remoteCode: expect.stringMatching(new RegExp(`^${remoteCode}$`)) as unknown,
    });
  });

  it.each<[string, Talk]>([
    ['nothing', () => undefined],
    ['half a status', saysAndWaits('HTTP/1.1 2')],
    ['half of the headers', saysAndWaits('HTTP/1.1 200 OK\r\ncontent-le')],
    ['an interim response', saysAndWaits(answer('102 Processing'))],
    ['a reason without end', endlessly('HTTP/1.1 200 ', 'a'.repeat(65_536))],
  ])('P9 with %s and no end reaches the timeout', async (_what, talk) => {
    const before = performance.now();
    const outcome = await outcomeOfTalk(talk, { abortAfterMs: 300 });
    expect(outcome).toMatchObject({ kind: 'retry', code: 'timeout' });
    expect(performance.now() - before).toBeLessThan(5000);
  });

  it.each<[string, Talk, string]>([
    ['garbage', says('garbage'), 'answer_invalid'],
    ['an end', says(''), 'connection_failed'],
    ['a reset', (socket) => void socket.resetAndDestroy(), 'connection_failed'],
  ])('W2 %s before the request is retried', async (_what, talk, code) => {
    expect(await outcomeOfTalk(talk, { when: 'connected' })).toMatchObject({ kind: 'retry', code });
  });
});

describe('an unassigned status', () => {
  it.each([600, 999])('W2 %i is retried with its number', async (status) => {
    expect(await outcomeOfTalk(says(answer(`${status} Odd`)))).toMatchObject({
      kind: 'retry',
      code: 'http_status',
      remoteCode: String(status),
    });
  });
});

describe('more than one response', () => {
  it('an interim response is skipped', async () => {
    const early = `${answer('102 P').repeat(100)}${ok}`;
    expect(await outcomeOfTalk(says(early))).toMatchObject({ kind: 'delivered', response: 'ok' });
  });

  it.each<[string, string]>([
    ['another success', ok],
    ['a failure', answer('500 X')],
    ['garbage', 'garbage'],
  ])(
    'W2 only requests that arrived are delivered, with %s behind each response',
    async (_what, more) => {
      const asked = new Set<string>();
      const server = createServer((socket) => {
        socket.on('error', () => undefined);
        let text = '';
        socket.on('data', (bytes) => {
          text += bytes.toString('latin1');
          for (const [, id = ''] of text.matchAll(/webhook-id: (\S+)/g)) asked.add(id);
          if (!text.endsWith('{"n": 1}')) return;
          text = '';
          socket.write(`${ok}${more}`);
        });
      }).listen(0, '127.0.0.1');
      await once(server, 'listening');
      onTestFinished(() => void server.close());
      const { port } = server.address() as AddressInfo;
      const destination = await opened({ url: `http://127.0.0.1:${port}/hook`, concurrency: 1 });
      const ids = Array.from(
        { length: 20 },
        (_, n) => `01a1de5f-b731-742f-8845-6c60ca5a${1000 + n}`,
      );
      const outcomes = await Promise.all(
        ids.map((id) => deliver(destination, { id }, AbortSignal.timeout(10_000))),
      );
      expect(outcomes.filter(({ kind }) => kind !== 'delivered' && kind !== 'retry')).toEqual([]);
      const arrived = ids.filter((_id, index) => outcomes[index]?.kind === 'delivered');
      expect(arrived).not.toEqual([]);
      expect(arrived.filter((id) => !asked.has(id))).toEqual([]);
    },
  );
});

describe('a response before the request is read', () => {
  const payload = JSON.stringify({ x: 'y'.repeat(20_000_000) });
  const large = 'HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 3\r\n\r\nbig';

  it.each<[string, Talk, object]>([
    ['a success', saysAndWaits(ok), { kind: 'delivered', remoteCode: '200' }],
    ['a refusal', saysAndWaits(large), { kind: 'retry', code: 'http_status', remoteCode: '413' }],
  ])('W2 counts: %s', async (_what, talk, expected) => {
    expect(await outcomeOfTalk(talk, { payload })).toMatchObject(expected);
  });

  it('P9 a receiver that never reads reaches the timeout', async () => {
    const outcome = await outcomeOfTalk((socket) => void socket.pause(), {
      payload,
      abortAfterMs: 300,
    });
    expect(outcome).toMatchObject({ kind: 'retry', code: 'timeout' });
  });
});

describe('random bytes', () => {
  it('always have an outcome, in time', async () => {
    const random = randomFrom(20_261_116);
    const whole = `HTTP/1.1 200 OK\r\ndate: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n`;
    let next = '';
    const url = await serveRaw((socket) => void socket.end(next, 'latin1'));
    const destination = await opened({ url });
    for (let n = 0; n < 300; n += 1) {
      next = changed(whole, random);
      const outcome = await deliver(destination, {}, AbortSignal.timeout(10_000));
      expect(isKnown(outcome), JSON.stringify([next, outcome])).toBe(true);
    }
  });
});

/** The expected outcome, by the table of statuses. */
function isKnown(outcome: Outcome): boolean {
  if (outcome.kind === 'delivered') return /^2\d\d$/.test(outcome.remoteCode ?? '');
  if (outcome.kind === 'pause') return outcome.remoteCode === '410';
  return (
    outcome.kind === 'retry' &&
    ['answer_invalid', 'connection_failed', 'http_status'].includes(outcome.code)
  );
}

/** Removes, doubles or replaces one to four characters; then the text may end early. */
function changed(text: string, random: () => number): string {
  let result = text;
  for (let times = Math.ceil(random() * 4); times > 0; times -= 1) {
    const at = Math.floor(random() * result.length);
    const length = Math.ceil(random() * 4);
    const part = result.slice(at, at + length);
    const other = String.fromCharCode(Math.floor(random() * 256));
    const put =
      [(): string => '', () => part + part, () => other][Math.floor(random() * 3)]?.() ?? '';
    result = result.slice(0, at) + put + result.slice(at + length);
  }
  return random() < 0.3 ? result.slice(0, Math.floor(random() * result.length)) : result;
}
