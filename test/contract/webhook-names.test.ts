// Host names of webhooks, resolved by a DNS server that the test controls. Whatever it answers, and however its answers
// change, only public or listed addresses are reached. An unassigned address stands for the public ones, so that no
// test reaches a foreign host.

import { once } from 'node:events';
import { createServer as createTcpServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';

import { describe, expect, it, onTestFinished } from 'vitest';

import { webhook } from '../../src/destinations/webhook/webhook.js';
import type { WebhookOptions } from '../../src/destinations/webhook/webhook.js';
import { packageUrl, runNode } from '../support/cli.js';
import { serveNames } from '../support/dns-server.js';
import type { Answer, Question } from '../support/dns-server.js';
import { waitFor } from '../support/wait.js';
import { trap, words } from '../support/trap.js';
import { deliver, opened } from '../support/webhook.js';

const none: string[] = [];
/** A global unicast address that is not assigned. */
const public6 = '3d00::1';
const name = 'hooks.example.test';

/** The answer of a DNS server that has these addresses for every name. */
function addresses(...all: string[]): (question: Question) => Answer {
  return ({ type }) => all.filter((address) => address.includes(':') === (type === 'AAAA'));
}

async function named(
  answer: (question: Question) => Answer,
  port: number,
  options: Partial<WebhookOptions> = {},
): ReturnType<typeof opened> {
  const { server } = await serveNames(answer);
  const url = `http://${name}:${port}/hook`;
  return opened({ url, dnsServers: [server], allowedNetworks: none, ...options });
}

const notPublic = words(`
    127.0.0.1 127.9.9.9 0.0.0.0 10.0.0.1 100.64.0.1 169.254.169.254 172.20.0.1 192.0.0.8 192.0.2.9
    192.168.1.1 198.18.0.1 198.51.100.3 203.0.113.4 224.0.0.251 255.255.255.255 100.100.100.200
    168.63.129.16 ::1 :: ::ffff:7f00:1 ::ffff:0808:0808 ::7f00:1 64:ff9b::7f00:1 64:ff9b:1::1
    2001::1 2001:db8::1 2002:7f00:1::1 3fff::1 5f00::1 100::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1
    ff02::1
  `);

describe('a name is refused when it is resolved', () => {
  it.each(notPublic)('with the answer %s, and no connection is made', async (address) => {
    const { port, connections } = await trap();
    const destination = await named(addresses(address), port);
    const outcome = await deliver(destination);
    expect(outcome).toMatchObject({ kind: 'retry', code: 'target_refused' });
    expect(outcome).toHaveProperty('message', expect.stringContaining(`${name} leads to `));
    expect(outcome).toHaveProperty('message', expect.not.stringContaining(address));
    expect(connections()).toBe(0);
  });

  it.each([
    ['127.0.0.1', '127.0.0.0/8'],
    ['0.0.0.0', '0.0.0.0'],
    ['::1', '::1/128'],
    ['::ffff:7f00:1', '::ffff:0:0/96'],
  ])('the same server is reached at %s when %s is listed', async (address, network) => {
    const { port, connections, hosts } = await trap();
    const destination = await named(addresses(address), port, { allowedNetworks: [network] });
    expect(await deliver(destination)).toMatchObject({ kind: 'delivered' });
    expect(connections()).toBe(1);
    // and the receiver sees the name
    expect(hosts).toEqual([`${name}:${port}`]);
  });

  it.each([
    ['first', ['127.0.0.1', '192.88.98.1']],
    ['last', ['192.88.98.1', '127.0.0.1']],
    ['in the other family', [public6, '127.0.0.1']],
    ['in IPv6', ['::1', public6]],
  ])('when any of its addresses is not public: %s', async (_where, all) => {
    const { port, connections } = await trap();
    const outcome = await deliver(await named(addresses(...all), port));
    expect(outcome).toMatchObject({ kind: 'retry', code: 'target_refused' });
    expect(connections()).toBe(0);
  });

  it('a listed network allows no address outside it', async () => {
    const { port, connections } = await trap();
    const options = { allowedNetworks: ['127.0.0.2/32', '10.0.0.0/8', 'fd00::/8'] };
    for (const address of ['127.0.0.1', '::1', '::ffff:7f00:2', '::ffff:a00:1'])
      expect(await deliver(await named(addresses(address), port, options))).toMatchObject({
        code: 'target_refused',
      });
    expect(connections()).toBe(0);
  });

  it.each(
    words(`
    169.254.169.254 169.254.170.2 169.254.0.23 100.100.100.200 168.63.129.16 192.0.0.192
    fd00:ec2::254 fd20:ce::254 fe80::1 ::ffff:a9fe:a9fe ::a9fe:a9fe ::ffff:0:a9fe:a9fe
    64:ff9b::a9fe:a9fe 64:ff9b:1::a9fe:a9fe 2002:a9fe:a9fe::1 2002:6464:64c8::
  `),
  )('metadata services are never reached, even if everything is listed: %s', async (address) => {
    const allowedNetworks = ['0.0.0.0/0', '::/0', '169.254.169.254/32', 'fd00:ec2::254'];
    const destination = await named(addresses(address), 80, { allowedNetworks });
    expect(await deliver(destination)).toMatchObject({ kind: 'retry', code: 'target_refused' });
    const host = address.includes(':') ? `[${address}]` : address;
    expect(() => webhook({ url: `http://${host}/`, allowedNetworks })).toThrow(/never used/);
  });

  it('by the system’s own resolver as well', async () => {
    const { port, connections } = await trap();
    const url = `http://localhost:${port}/`;
    expect(await deliver(await opened({ url, allowedNetworks: none }))).toMatchObject({
      code: 'target_refused',
    });
    expect(connections()).toBe(0);
    const allowedNetworks = ['127.0.0.0/8', '::1/128'];
    expect(await deliver(await opened({ url, allowedNetworks }))).toMatchObject({
      kind: 'delivered',
    });
  });
});

describe('a DNS server that changes its answers', () => {
  it('first public, then loopback: loopback is never reached', async () => {
    const { port, connections } = await trap();
    // each query has another answer than the one before, for each family
    const count = { A: 0, AAAA: 0 };
    const destination = await named(
      ({ type }) => {
        count[type] += 1;
        if (count[type] % 2 === 1) return type === 'AAAA' ? [public6] : [];
        return type === 'AAAA' ? ['::1'] : ['127.0.0.1'];
      },
      port,
      { timeoutMs: 300 },
    );
    const outcomes = [];
    for (let n = 0; n < 6; n += 1) outcomes.push(await deliver(destination));
    expect(connections()).toBe(0);
    const codes = outcomes.map((outcome) => ('code' in outcome ? outcome.code : outcome.kind));
    expect(codes).toEqual([1, 2, 3].flatMap(() => ['connection_failed', 'target_refused']));
  });

  it('a kept connection stays with the checked address, and a new one is checked again', async () => {
    const { port, hosts, connections } = await trap();
    let now = addresses('::1');
    const options = { allowedNetworks: ['::1/128'], concurrency: 1 };
    const destination = await named((question) => now(question), port, options);
    expect(await deliver(destination)).toMatchObject({ kind: 'delivered' });
    now = addresses('127.0.0.1');
    expect(await deliver(destination)).toMatchObject({ kind: 'delivered' });
    expect(connections()).toBe(1);
    expect(hosts).toHaveLength(2);
    const other = await named((question) => now(question), port, options);
    expect(await deliver(other)).toMatchObject({ code: 'target_refused' });
    expect(connections()).toBe(1);
  });

  it('a corrected name is reached again', async () => {
    const { port } = await trap();
    let now = addresses('10.0.0.1');
    const options = { allowedNetworks: ['127.0.0.1/32'] };
    const destination = await named((question) => now(question), port, options);
    expect(await deliver(destination)).toMatchObject({ kind: 'retry', code: 'target_refused' });
    now = addresses('127.0.0.1');
    expect(await deliver(destination)).toMatchObject({ kind: 'delivered' });
  });

  it.each<[string, Answer, Answer, string]>([
    ['no address', [], [], 'ENOTFOUND'],
    ['no such name', 3, 3, 'ENOTFOUND'],
    ['an answer for one family and a failure for the other', ['127.0.0.1'], 2, 'ESERVFAIL'],
  ])('%s is not a target', async (_what, four, six, remoteCode) => {
    const { port, connections } = await trap();
    const destination = await named(({ type }) => (type === 'A' ? four : six), port, {
      allowedNetworks: ['127.0.0.0/8'],
    });
    expect(await deliver(destination)).toMatchObject({
      kind: 'retry',
      code: 'connection_failed',
      remoteCode,
    });
    expect(connections()).toBe(0);
  });
});

describe('the connection', () => {
  it('checks the certificate for the name, not for the address', async () => {
    const hellos: Buffer[] = [];
    const server = createTcpServer((socket: Socket) => {
      socket.once('data', (hello) => {
        hellos.push(hello);
        socket.destroy();
      });
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const { server: dnsServer } = await serveNames(addresses('127.0.0.1'));
    const { port } = server.address() as AddressInfo;
    const url = `https://${name}:${port}/`;
    const destination = await opened({ url, dnsServers: [dnsServer] });
    expect(await deliver(destination)).toMatchObject({ kind: 'retry', code: 'connection_failed' });
    expect(hellos).toHaveLength(1);
    // the first TLS message, with the name in the clear
    expect(hellos[0]?.[0]).toBe(0x16);
    expect(hellos[0]?.includes(name)).toBe(true);
  });

  it('gives up on a DNS server that does not answer', async () => {
    const { server } = await serveNames(() => 'silence');
    const destination = await opened({
      url: `http://${name}/`,
      dnsServers: [server],
      timeoutMs: 300,
    });
    expect(await deliver(destination)).toMatchObject({ kind: 'retry', code: 'connection_failed' });
  });

  it('M12 an unanswered query does not keep the process alive after the close', async () => {
    const { server, asked } = await serveNames(() => 'silence');
    const script = `
      import { webhook } from ${JSON.stringify(packageUrl)};
      const destination = webhook({ url: 'http://${name}/', dnsServers: ['${server}'] });
      await destination.open();
      const message = { id: 'm', topic: 't', payloadText: '{}', headersText: null };
      const outcome = destination.deliver(message, { signal: new AbortController().signal });
      process.stdin.on('data', async () => {
        process.stdin.pause();
        await destination.close();
        console.log((await outcome).code);
      });
    `;
    const child = runNode(['--input-type=module', '-e', script], { input: 'close' });
    await waitFor(() => asked.length >= 2, { what: 'the questions' });
    // the resolver alone would wait for ten seconds
    expect(await child.ended(4000)).toEqual({ code: 0, stdout: 'connection_failed\n', stderr: '' });
  });
});

describe('health', () => {
  it('checks that a connection can be made, by the same rules, and sends nothing', async () => {
    const { port, hosts, connections } = await trap();
    const context = { signal: new AbortController().signal };
    const reached = await opened({ url: `http://127.0.0.1:${port}/` });
    expect(await reached.health?.(context)).toEqual({ ok: true });
    expect(connections()).toBe(1);
    expect(hosts).toEqual([]);
    const refused = await named(addresses('10.0.0.1'), port);
    expect(await refused.health?.(context)).toEqual({
      ok: false,
      problem: `${name} leads to an address that is not a public address, and in none of allowedNetworks`,
    });
  });

  it('ends when it takes too long', async () => {
    const server = createTcpServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const destination = await opened({ url: `https://127.0.0.1:${port}/`, timeoutMs: 1000 });
    const signal = AbortSignal.timeout(50);
    expect(await destination.health?.({ signal })).toEqual({
      ok: false,
      problem: 'it took too long',
    });
  });
});
