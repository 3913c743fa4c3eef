// What stands between a relay and a receiver, as real servers on this machine: an HTTP proxy, a TLS receiver that
// demands a client certificate, and a token server of OAuth 2.

import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { IncomingMessage, Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { connect } from 'node:net';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import type { TLSSocket } from 'node:tls';

import { onTestFinished } from 'vitest';

import { makeCertificates } from './certificates.js';

async function listening(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

export type TlsFiles = { ca: string; cert: string; key: string };

/** An authority, and a certificate for this machine that servers and clients can use. */
export function tlsFiles(): TlsFiles {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'waybill-tls-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const { ca, certFile, keyFile } = makeCertificates(folder);
  return { ca, cert: readFileSync(certFile, 'utf8'), key: readFileSync(keyFile, 'utf8') };
}

export type TestProxy = {
  readonly url: string;
  readonly port: number;
  /** The targets of all tunnels that were asked for. */
  readonly targets: string[];
  /** The credentials of the last request. */
  authorization: string | undefined;
  /** The status of the answer to the next requests for a target; 200 opens a tunnel. */
  status: number | ((target: string) => number);
};

/** An HTTP proxy that opens tunnels. */
export async function startProxy(tls?: TlsFiles): Promise<TestProxy> {
  const server = tls === undefined ? createServer() : createTlsServer(tls);
  server.on('connect', (request: IncomingMessage, socket: TLSSocket, head: Buffer) => {
    const target = request.url ?? '';
    proxy.targets.push(target);
    proxy.authorization = request.headers['proxy-authorization'];
    const status = typeof proxy.status === 'number' ? proxy.status : proxy.status(target);
    socket.on('error', () => {});
    if (status !== 200) return void socket.end(`HTTP/1.1 ${status} No\r\n\r\n`);
    const at = target.lastIndexOf(':');
    const to = connect(Number(target.slice(at + 1)), target.slice(0, at), () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      to.write(head);
      to.pipe(socket).pipe(to);
    });
    to.on('error', () => void socket.destroy());
    socket.on('close', () => void to.destroy());
  });
  const port = await listening(server);
  const url = `${tls === undefined ? 'http' : 'https'}://127.0.0.1:${port}`;
  const proxy: TestProxy = { url, port, targets: [], authorization: undefined, status: 200 };
  return proxy;
}

export type TlsReceiver = { readonly port: number; readonly clients: string[] };

/** A receiver that demands a client certificate; it keeps the names of the clients. */
export async function startTlsReceiver(tls: TlsFiles): Promise<TlsReceiver> {
  const clients: string[] = [];
  const options = { ...tls, requestCert: true, rejectUnauthorized: true };
  const server = createTlsServer(options, (request, response) => {
    const { CN } = (request.socket as TLSSocket).getPeerCertificate().subject;
    clients.push(String(CN));
    request.resume();
    response.end();
  });
  return { port: await listening(server), clients };
}

export type TokenServer = {
  readonly url: string;
  /** The bodies of the token requests, and the credentials of their headers. */
  readonly requests: { body: URLSearchParams; authorization: string | undefined }[];
  /** Whether a receiver accepts this header now. */
  accepts(authorization: string | undefined): boolean;
  /** Ends all tokens before their time. */
  revoke(): void;
  expiresIn: number | undefined;
  /** Answers this instead of a token. */
  answer: { status: number; body: string } | undefined;
  /** While this is unresolved, no request is answered. */
  hold: Promise<void> | undefined;
};

/** A token server whose tokens are `token-1`, `token-2` and so on. */
export async function startTokenServer(): Promise<TokenServer> {
  /** When each token ends. */
  const valid = new Map<string, number>();
  const server = createServer((request, response) => {
    void text(request).then(async (body) => {
      const { authorization } = request.headers;
      tokens.requests.push({ body: new URLSearchParams(body), authorization });
      const token = `token-${tokens.requests.length}-of-the-token-server`;
      await tokens.hold;
      const { answer, expiresIn } = tokens;
      if (answer !== undefined) return response.writeHead(answer.status).end(answer.body);
      valid.set(`Bearer ${token}`, performance.now() + (expiresIn ?? 3600) * 1000);
      const given = { access_token: token, token_type: 'Bearer', expires_in: expiresIn };
      return response.setHeader('content-type', 'application/json').end(JSON.stringify(given));
    });
  });
  const port = await listening(server);
  const tokens: TokenServer = {
    url: `http://127.0.0.1:${port}/token`,
    requests: [],
    accepts: (authorization) => (valid.get(authorization ?? '') ?? 0) > performance.now(),
    revoke: () => valid.clear(),
    expiresIn: 3600,
    answer: undefined,
    hold: undefined,
  };
  return tokens;
}
