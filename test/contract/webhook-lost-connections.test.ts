// Webhook connections that are never established: each call still ends, the next call is not delayed by the last one,
// and a closed destination leaves nothing behind.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer as createHttpsServer } from 'node:https';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';

import { describe, expect, it, onTestFinished } from 'vitest';

import { makeCertificates } from '../support/certificates.js';
import { claimedRow } from '../support/claimed-message.js';
import { packageUrl, runNode, temporaryDirectory } from '../support/cli.js';
import type { Running } from '../support/cli.js';
import { freePort } from '../support/free-port.js';
import { serve } from '../support/relay-partner.js';
import { waitFor } from '../support/wait.js';
import { deliver, opened } from '../support/webhook.js';

/** A separate process, with a webhook as `destination`, and `deliver` for one message. */
function withWebhook(
  options: string,
  body: string,
  environment: Record<string, string> = {},
): Running {
  const script = `
    import { webhook } from ${JSON.stringify(packageUrl)};
    import { ClaimedMessage } from ${JSON.stringify(new URL('core/claimed-message.js', packageUrl).href)};
    const destination = webhook({ allowedNetworks: ['127.0.0.0/8', '::1/128'], ${options} });
    await destination.open();
    const message = new ClaimedMessage(${JSON.stringify(claimedRow({}))});
    const deliver = () => destination.deliver(message, { signal: new AbortController().signal });
    ${body}`;
  return runNode(['--input-type=module', '-e', script], { environment });
}

describe('connections that are not established', () => {
  it('are free for waiting calls', async () => {
    const url = `http://127.0.0.1:${await freePort()}/`;
    const destination = await opened({ url, concurrency: 2 });
    const calls = Array.from({ length: 10 }, () => deliver(destination));
    for (const outcome of await Promise.all(calls))
      expect(outcome).toMatchObject({ code: 'connection_failed', remoteCode: 'ECONNREFUSED' });
  });

  it('because of a certificate for another name are tried anew by the next call', async () => {
    const { caFile, certFile, keyFile } = makeCertificates(temporaryDirectory());
    const [cert, key] = [readFileSync(certFile), readFileSync(keyFile)];
    const server = createHttpsServer({ cert, key }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    // a name of this machine that needs no DNS query, and that is not in the certificate
    const child = withWebhook(
      `url: 'https://shop.localhost:${port}/', dnsServers: ['127.0.0.1:1'], concurrency: 1`,
      `for (let n = 0; n < 3; n += 1) console.log((await deliver()).remoteCode);`,
      { NODE_EXTRA_CA_CERTS: caFile },
    );
    expect(await child.ended()).toEqual({
      code: 0,
      stdout: 'ERR_TLS_CERT_ALTNAME_INVALID\n'.repeat(3),
      stderr: '',
    });
  });
});

describe('a destination that is closed', () => {
  it('makes no more connections', async () => {
    let requests = 0;
    const { url } = await serve((_request, response) => {
      requests += 1;
      response.end();
    });
    const destination = await opened({ url, concurrency: 2 });
    await destination.close?.();
    for (let n = 0; n < 3; n += 1)
      expect(await deliver(destination)).toMatchObject({ code: 'connection_failed' });
    expect(requests).toBe(0);
  });

  it('gives up connections that are not established yet', async () => {
    let greeted = 0;
    // never answers the TLS handshake
    const server = createServer((socket) => {
      socket.on('error', () => undefined);
      socket.once('data', () => (greeted += 1));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const child = withWebhook(
      `url: 'https://127.0.0.1:${port}/'`,
      `const outcome = deliver();
      process.on('SIGUSR2', async () => {
        await destination.close();
        console.log((await outcome).code);
      });`,
    );
    await waitFor(() => greeted === 1, { what: 'the greeting' });
    child.process.kill('SIGUSR2');
    // by itself the connection would be given up after ten seconds
    expect(await child.ended(5000)).toEqual({
      code: 0,
      stdout: 'connection_failed\n',
      stderr: '',
    });
  });
});
