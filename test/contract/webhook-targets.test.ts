// The guard against internal targets, on real connections: a server listens on this machine's loopback addresses. No
// notation of an address may lead a webhook there, or to anything else that is not public, unless its network is
// listed.

import { buildConnector, Pool } from 'undici';
import { describe, expect, it, onTestFinished } from 'vitest';

import { guardedConnector } from '../../src/destinations/webhook/connector.js';
import { Networks, TargetRefusedError } from '../../src/destinations/webhook/targets.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import { serve } from '../support/relay-partner.js';
import { trap, words } from '../support/trap.js';
import { deliver, opened } from '../support/webhook.js';

/** Each of them leads to this machine. */
const loopback = words(`
    127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.0.0.1 0x7f.1 0177.0.0.1 0177.1 017700000001
    127.0.0.1. 0x7F.0x0.0x0.0x1 ①②⑦.0.0.1 127。0。0。1 %31%32%37.0.0.1 0.0.0.0 0 0x0 00 [::1] [::]
    [0:0:0:0:0:0:0:1] [0000::0001] [::ffff:127.0.0.1] [::ffff:7f00:1]
`);

/** Private, shared, link-local, metadata, reserved; then IPv6, and IPv4 embedded in IPv6. */
const others = words(`
    127.255.255.254 0.0.0.1 10.0.0.1 0xa000001 10.1 012.0.0.1 172.16.0.1 172.31.255.255 192.168.0.1
    192.168.257 0300.0250.0.1 100.64.0.1 100.127.255.255 169.254.0.1 169.254.169.254 2852039166
    0xa9fea9fe 0251.0376.0251.0376 169.254.43518 100.100.100.200 168.63.129.16 192.0.0.1 192.0.2.1
    192.88.99.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255
    240.0.0.1 255.255.255.255 4294967295 [::FFFF:10.0.0.1] [::ffff:8.8.8.8] [::127.0.0.1]
    [::ffff:0:127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b::7f00:1] [64:ff9b:1::10.0.0.1]
    [64:ff9b::8.8.8.8] [2002:7f00:1::] [2002:a9fe:a9fe::1] [2001::1] [2001:0:7f00:1::] [2001:2::1]
    [2001:10::1] [2001:20::1] [2001:db8::1] [3fff::1] [3ffe::1] [5f00::1] [100::1] [fc00::1]
    [fd12:3456:789a::1] [fd00:ec2::254] [fe80::1] [febf::1] [fec0::1] [ff02::1] [ff0e::1] [4000::1]
    [::a9fe:a9fe] [::ffff:169.254.169.254]
`);

/** A request over a connection of the guard, without the checks of `webhook`. */
async function ask(host: string, port: number, networks: string[] | null): Promise<number> {
  const options = { dnsServers: undefined, timeoutMs: 1000 };
  const pool = new Pool(`http://${host}:${port}`, {
    ...(networks !== null && {
      connect: guardedConnector(buildConnector, { ...options, allowed: new Networks(networks) })
        .connect,
    }),
  });
  onTestFinished(() => pool.destroy());
  const { statusCode, body } = await pool.request({ path: '/', method: 'GET' });
  await body.dump();
  return statusCode;
}

describe('an address in the url', () => {
  it.each([...loopback, ...others])('is refused in every notation: %s', async (host) => {
    const make = (): unknown => webhook({ url: `http://${host}/geheim` });
    expect(make).toThrow(
      /^webhook\.url is "http:\/\/[^/]+\/…": .* (not a public address|never used)/,
    );
    expect(make).not.toThrow(/geheim/);
    const { port, connections } = await trap();
    await expect(ask(host, port, [])).rejects.toThrow(TargetRefusedError);
    expect(connections()).toBe(0);
  });

  it.each(loopback)('would lead to this machine without the guard: %s', async (host) => {
    const { port, connections } = await trap();
    expect(await ask(host, port, null)).toBe(200);
    expect(connections()).toBe(1);
  });

  it('is reached when its network is listed', async () => {
    const { port } = await trap();
    expect(await ask('127.0.0.1', port, ['127.0.0.0/8'])).toBe(200);
    expect(await ask('[::1]', port, ['::1'])).toBe(200);
    await expect(ask('127.0.0.1', port, ['127.0.0.2/31', '::/0'])).rejects.toThrow(
      TargetRefusedError,
    );
    await expect(ask('[::ffff:127.0.0.1]', port, ['127.0.0.0/8'])).rejects.toThrow(
      TargetRefusedError,
    );
  });

  it('with a zone is invalid', () => {
    expect(() => webhook({ url: 'http://[fe80::1%25lo]/' })).toThrow(/^webhook\.url is /);
  });
});

describe('the connection', () => {
  it('uses no proxy from the environment', async () => {
    const { port, connections } = await trap();
    const visited: (string | undefined)[] = [];
    const proxy = await serve((request, response) => {
      visited.push(request.url);
      response.end();
    });
    const variables = [
      'HTTP_PROXY',
      'http_proxy',
      'HTTPS_PROXY',
      'ALL_PROXY',
      'NODE_USE_ENV_PROXY',
    ];
    for (const variable of variables) {
      const before = process.env[variable];
      process.env[variable] = variable.startsWith('NODE') ? '1' : `http://127.0.0.1:${proxy.port}`;
      onTestFinished(() => {
        if (before === undefined) delete process.env[variable];
        else process.env[variable] = before;
      });
    }
    expect(await deliver(await opened({ url: `http://127.0.0.1:${port}/` }))).toMatchObject({
      kind: 'delivered',
    });
    expect(connections()).toBe(1);
    expect(visited).toEqual([]);
  });
});

describe('its options', () => {
  const url = 'https://example.com/';

  it.each<[unknown]>([
    ['10.0.0.0/8'],
    [['10.0.0.0/33']],
    [['10.0.0.0/-1']],
    [['10.0.0.0/']],
    [['10.0.0/8']],
    [['fd00::/129']],
    [['fe80::1%lo/64']],
    [['10.0.0.0/8/8']],
    [['example.com']],
    [['*']],
    [[8]],
    [['']],
    [['10.0.0.0/08']],
  ])('an invalid network is refused: %j', (wrong) => {
    const make = (): unknown => webhook({ url, allowedNetworks: wrong as string[] });
    expect(make).toThrow(
      /^webhook\.allowedNetworks(\[0\])? is .*: give a (list of networks|network)/,
    );
  });

  it.each<[unknown]>([['1.1.1.1'], [[]], [['example.com']], [['1.1.1.1:99999']], [[7]]])(
    'an invalid DNS server is refused: %j',
    (wrong) => {
      const make = (): unknown => webhook({ url, dnsServers: wrong as string[] });
      expect(make).toThrow(/^webhook\.dnsServers is .*: give a list of 1 to 10 addresses/);
    },
  );
});
