// Webhook receivers on bare sockets: each sends exactly the given bytes, including those that no server library would
// send.

import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

import { onTestFinished } from 'vitest';

import type { WebhookOptions } from '../../src/destinations/webhook/webhook.js';
import type { Outcome } from '../../src/core/outcome.js';
import { deliver, opened } from './webhook.js';

export type Talk = (socket: Socket) => void;

/**
 * A server of bare connections. It sends once for each connection: at the first bytes, or as soon as the client is
 * connected.
 */
export async function serveRaw(talk: Talk, when: 'asked' | 'connected' = 'asked'): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => sockets.delete(socket));
    if (when === 'connected') talk(socket);
    else socket.once('data', () => talk(socket));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
}

export const says =
  (text: string | Buffer): Talk =>
  (socket) =>
    void socket.end(text);
export const saysAndWaits =
  (text: string): Talk =>
  (socket) =>
    void socket.write(text);
export const saysAndResets =
  (text: string): Talk =>
  (socket) =>
    void socket.write(text, () => socket.resetAndDestroy());
export const endlessly =
  (beginning: string, more: string): Talk =>
  (socket) => {
    socket.write(beginning);
    const pour = (): void => {
      if (socket.writable) socket.write(more, () => setImmediate(pour));
    };
    pour();
  };

/** The time after which a delivery that should have ended is given up. */
const waitLimitMs = 20_000;

/** The outcome of one message whose receiver sends this. */
export async function outcomeOfTalk(
  talk: Talk,
  options: Omit<WebhookOptions, 'url'> & {
    when?: 'asked' | 'connected';
    payload?: string;
    abortAfterMs?: number;
  } = {},
): Promise<Outcome> {
  const { when, payload = '{"n": 1}', abortAfterMs = waitLimitMs, ...rest } = options;
  const destination = await opened({ ...rest, url: await serveRaw(talk, when) });
  return deliver(destination, { payload }, AbortSignal.timeout(abortAfterMs));
}

export const ok = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';
export const answer = (line: string): string => `HTTP/1.1 ${line}\r\ncontent-length: 0\r\n\r\n`;
export const headed = (header: string, body = ''): string =>
  `HTTP/1.1 200 OK\r\n${header}\r\n\r\n${body}`;
