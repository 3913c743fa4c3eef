// Answers whose body is cut off, on raw sockets and through a wire that breaks: once the headers are whole, the status
// is the outcome, and what came of the body is kept.

import { describe, expect, it, onTestFinished } from 'vitest';

import { outcomeOfTalk, says, saysAndResets, saysAndWaits } from '../support/raw-receiver.js';
import type { Talk } from '../support/raw-receiver.js';
import { serve } from '../support/relay-partner.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait.js';
import { deliver, opened } from '../support/webhook.js';

describe('an answer whose body is cut off', () => {
  const begun = (status: number, header = 'content-length: 10'): string =>
    `HTTP/1.1 ${status} X\r\n${header}\r\n\r\n`;
  const chunked = (body: string): string => begun(200, 'transfer-encoding: chunked') + body;

  it.each<[string, Talk, string]>([
    ['ends right behind the headers', says(begun(200)), ''],
    ['ends in the body', says(`${begun(200)}hello`), 'hello'],
    ['is reset behind the headers', saysAndResets(begun(200)), ''],
    ['ends in a chunk', says(chunked('5\r\nhel')), 'hel'],
    ['ends before the last chunk', says(chunked('5\r\nhello\r\n')), 'hello'],
    ['has chunks that are none', says(chunked('5\r\nhello\r\nzz\r\n')), 'hello'],
    ['has a chunk beyond all numbers', says(chunked(`${'f'.repeat(20)}\r\nhello`)), ''],
    ['has a chunk below zero', says(chunked('-5\r\nhello')), ''],
  ])('W2 W3 is delivered with what came, if it %s', async (_what, talk, came) => {
    expect(await outcomeOfTalk(talk)).toEqual({
      kind: 'delivered',
      remoteCode: '200',
      response: `${came}[cut off]`,
    });
  });

  it.each<[string, Talk, string]>([
    ['in the body', saysAndWaits(`${begun(200)}hello`), 'hello'],
    ['behind the headers', saysAndWaits(begun(200)), ''],
  ])(
    'P9 W2 is delivered when the time is over, if it falls silent %s',
    async (_what, talk, came) => {
      expect(await outcomeOfTalk(talk, { abortAfterMs: 2000 })).toEqual({
        kind: 'delivered',
        remoteCode: '200',
        response: `${came}[cut off]`,
      });
    },
  );

  it('W2 a reset in the middle of the body too, whether or not what came before it is seen', async () => {
    const outcome = await outcomeOfTalk(saysAndResets(`${begun(200)}hello`));
    expect(outcome).toMatchObject({ kind: 'delivered', remoteCode: '200' });
  });

  it('W2 counts by what was configured, like any other', async () => {
    const options = { successCodes: [202, 409], terminalCodes: [422] };
    for (const [status, expected] of [
      [409, { kind: 'delivered', remoteCode: '409', response: 'hello[cut off]' }],
      [200, { kind: 'retry', code: 'http_status', remoteCode: '200' }],
      [422, { kind: 'reject', code: 'http_status', remoteCode: '422' }],
      [500, { kind: 'retry', code: 'http_status', response: 'hello[cut off]' }],
      [410, { kind: 'pause', code: 'endpoint_gone' }],
    ] as const)
      expect(await outcomeOfTalk(says(`${begun(status)}hello`), options)).toMatchObject(expected);
  });

  it('W2 is heard when it asks for time', async () => {
    const busy = `HTTP/1.1 503 X\r\nretry-after: 77\r\ncontent-length: 10\r\n\r\nhello`;
    expect(await outcomeOfTalk(says(busy))).toMatchObject({ kind: 'retry', afterMs: 77_000 });
  });

  it('W3 is not marked where nothing is kept, nor behind what is kept', async () => {
    expect(await outcomeOfTalk(says(`${begun(200)}hello`), { keepResponses: 'failures' })).toEqual({
      kind: 'delivered',
      remoteCode: '200',
    });
    const long = `${begun(200, 'content-length: 9000')}${'x'.repeat(5000)}`;
    expect(await outcomeOfTalk(says(long))).toMatchObject({ response: 'x'.repeat(4096) });
  });

  it('W3 a status that never has a body lacks none', async () => {
    expect(await outcomeOfTalk(says(`${begun(204)}hello`))).toEqual({
      kind: 'delivered',
      remoteCode: '204',
    });
  });

  it('W2 through a wire that is cut', async () => {
    const { port } = await serve((request, response) => {
      request.resume();
      response.writeHead(200, { 'content-length': '10' }).write('hello');
    });
    const proxy = await TcpProxy.open();
    onTestFinished(() => proxy.close());
    proxy.leadTo({ host: '127.0.0.1', port });
    const destination = await opened({ url: `http://127.0.0.1:${proxy.address.port}/hook` });
    const outcome = deliver(destination);
    await waitFor(() => proxy.answeredBytes > 0, { what: 'the headers and half of the body' });
    proxy.cut();
    expect(await outcome).toMatchObject({ kind: 'delivered', remoteCode: '200' });
  });
});
