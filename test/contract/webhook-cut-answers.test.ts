// Responses whose body is cut off, on raw sockets and through a proxy that breaks: once the headers are complete, the
// status is the outcome, and the received part of the body is stored.

import { describe, expect, it, onTestFinished } from 'vitest';

import { outcomeOfTalk, says, saysAndResets, saysAndWaits } from '../support/raw-receiver.js';
import type { Talk } from '../support/raw-receiver.js';
import { serve } from '../support/relay-partner.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait.js';
import { deliver, opened } from '../support/webhook.js';

describe('a response whose body is cut off', () => {
  const begun = (status: number, header = 'content-length: 10'): string =>
    `HTTP/1.1 ${status} X\r\n${header}\r\n\r\n`;
  const chunked = (body: string): string => begun(200, 'transfer-encoding: chunked') + body;

  it.each<[string, Talk, string]>([
    ['ends right behind the headers', says(begun(200)), ''],
    ['ends in the body', says(`${begun(200)}hello`), 'hello'],
    ['is reset behind the headers', saysAndResets(begun(200)), ''],
    ['ends in a chunk', says(chunked('5\r\nhel')), 'hel'],
    ['ends before the last chunk', says(chunked('5\r\nhello\r\n')), 'hello'],
    ['has invalid chunks', says(chunked('5\r\nhello\r\nzz\r\n')), 'hello'],
    ['has a chunk size out of range', says(chunked(`${'f'.repeat(20)}\r\nhello`)), ''],
    ['has a negative chunk size', says(chunked('-5\r\nhello')), ''],
  ])('W2 W3 is delivered with the received part, if it %s', async (_what, talk, came) => {
    expect(await outcomeOfTalk(talk)).toEqual({
      kind: 'delivered',
      remoteCode: '200',
      response: `${came}[cut off]`,
    });
  });

  it.each<[string, Talk, string]>([
    ['in the body', saysAndWaits(`${begun(200)}hello`), 'hello'],
    ['behind the headers', saysAndWaits(begun(200)), ''],
  ])('P9 W2 is delivered at the timeout, if it falls silent %s', async (_what, talk, came) => {
    expect(await outcomeOfTalk(talk, { abortAfterMs: 2000 })).toEqual({
      kind: 'delivered',
      remoteCode: '200',
      response: `${came}[cut off]`,
    });
  });

  it('W2 is delivered after a reset in the middle, whether or not the earlier part is seen', async () => {
    const outcome = await outcomeOfTalk(saysAndResets(`${begun(200)}hello`));
    expect(outcome).toMatchObject({ kind: 'delivered', remoteCode: '200' });
  });

  it('W2 is classified by the configured statuses, like any other', async () => {
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

  it('W2 keeps its Retry-After', async () => {
    const busy = `HTTP/1.1 503 X\r\nretry-after: 77\r\ncontent-length: 10\r\n\r\nhello`;
    expect(await outcomeOfTalk(says(busy))).toMatchObject({ kind: 'retry', afterMs: 77_000 });
  });

  it('W3 is not marked as cut where nothing is stored, nor behind the stored part', async () => {
    expect(await outcomeOfTalk(says(`${begun(200)}hello`), { keepResponses: 'failures' })).toEqual({
      kind: 'delivered',
      remoteCode: '200',
    });
    const long = `${begun(200, 'content-length: 9000')}${'x'.repeat(5000)}`;
    expect(await outcomeOfTalk(says(long))).toMatchObject({ response: 'x'.repeat(4096) });
  });

  it('W3 is not marked for a status that never has a body', async () => {
    expect(await outcomeOfTalk(says(`${begun(204)}hello`))).toEqual({
      kind: 'delivered',
      remoteCode: '204',
    });
  });

  it('W2 is delivered when a proxy cuts the connection', async () => {
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
