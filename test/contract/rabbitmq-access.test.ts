// Access to RabbitMQ: passwords, virtual hosts, certificates, rights and absent brokers; invalid options, and a missing
// client library.

import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { afterAll, describe, expect, it } from 'vitest';

import { rabbitmq } from '../../src/destinations/rabbitmq/rabbitmq.js';
import type { RabbitmqOptions } from '../../src/destinations/rabbitmq/rabbitmq.js';
import { makeCertificates } from '../support/certificates.js';
import type { Certificates } from '../support/certificates.js';
import { outcomesOfNobody } from './in-a-process.js';
import { rabbitmqQueues, withoutRabbitmq } from './rabbitmq-queues.js';
import { messagesOf } from './sender.js';
import { freePort } from '../support/free-port.js';
import { openWithoutLibraries } from './without-libraries.js';

const host = '127.0.0.1';

describe.skipIf(withoutRabbitmq)('rabbitmq', () => {
  let folder: string;
  let certificates: Certificates;
  let securePort: number;
  // registered first, so that it runs after the broker has stopped
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const queues = rabbitmqQueues(async () => {
    folder = mkdtempSync(path.join(os.tmpdir(), 'waybill-test-'));
    securePort = await freePort();
    certificates = makeCertificates(folder);
    const definitions = path.join(folder, 'definitions.json');
    writeFileSync(definitions, JSON.stringify(users()));
    return {
      more: `load_definitions = ${definitions}
listeners.ssl.1 = ${host}:${securePort}
ssl_options.cacertfile = ${certificates.caFile}
ssl_options.certfile = ${certificates.certFile}
ssl_options.keyfile = ${certificates.keyFile}
ssl_options.verify = verify_none`,
    };
  });

  describe('access', () => {
    const at = (user: string, vhost = ''): string =>
      queues.broker.url.replace('guest:guest', user) + vhost;

    async function tryWith(options: Partial<RabbitmqOptions>): Promise<unknown> {
      return (await (await queues.open(options)).send(messagesOf(1)))[0];
    }

    it('P10 a wrong password pauses the destination, and is not shown', async () => {
      const sender = await queues.open({ url: at('guest:hunter2') });
      const [outcome] = await sender.send(messagesOf(1));
      expect(outcome).toMatchObject({
        kind: 'pause',
        code: 'access_refused',
        remoteCode: 'ACCESS_REFUSED',
      });
      const health = await sender.health();
      expect(health.ok).toBe(false);
      expect(JSON.stringify([outcome, health])).not.toContain('hunter2');
    });

    it('P10 a missing right to publish pauses the destination', async () => {
      const exchange = await queues.makeQueue();
      expect(await tryWith({ url: at('clerk:a%2Fb'), exchange })).toMatchObject({
        kind: 'pause',
        code: 'access_refused',
        remoteCode: 'ACCESS_REFUSED',
      });
    });

    it('P10 a virtual host is used, and a missing one pauses the destination', async () => {
      expect(await tryWith({ url: at('guest:guest', '/shop%2F1') })).toMatchObject({
        kind: 'retry',
        code: 'unroutable',
      });
      expect(await tryWith({ url: at('guest:guest', '/nowhere') })).toMatchObject({
        kind: 'retry',
        code: 'vhost_refused',
        remoteCode: 'NOT_ALLOWED',
      });
    });

    it('TLS needs a trusted authority and a broker with TLS', async () => {
      const exchange = await queues.makeQueue();
      const { ca } = certificates;
      const url = `amqps://${host}:${securePort}`;
      expect(await tryWith({ url, exchange, tls: { ca } })).toMatchObject({ kind: 'delivered' });
      expect(await tryWith({ url, exchange })).toMatchObject({
        kind: 'retry',
        code: 'connection_failed',
        remoteCode: 'SELF_SIGNED_CERT_IN_CHAIN',
      });
      const plain = `amqps://${host}:${queues.broker.address.port}`;
      expect(await tryWith({ url: plain, exchange, tls: { ca } })).toMatchObject({
        kind: 'retry',
        code: 'connection_failed',
      });
    });
  });
});

it('M12 an absent or silent broker fails with a reason and leaves nothing behind', async () => {
  const outcomes = await outcomesOfNobody("waybill.rabbitmq({ url: 'amqp://127.0.0.1:' + port })");
  expect(outcomes).toEqual(['retry connection_failed', 'retry timeout']);
});

describe('options', () => {
  const given = { url: 'amqp://localhost' };

  it.each<[string, object, RegExp]>([
    ['no address', {}, /rabbitmq\.url is undefined: give an address/],
    ['a web address', { url: 'http://localhost' }, /rabbitmq\.url is/],
    ['an unknown option', { ...given, queue: 'x' }, /rabbitmq\.queue is not an option/],
    ['an unknown field', { ...given, routingKey: '{name}' }, /rabbitmq\.routingKey is .*in braces/],
    ['an empty exchange', { ...given, exchange: '' }, /rabbitmq\.exchange is ""/],
    ['a format', { ...given, format: 'xml' }, /rabbitmq\.format is "xml"/],
    ['tls without amqps', { ...given, tls: true }, /rabbitmq\.tls .*amqps/],
  ])('%s is refused', (_what, options, text) => {
    expect(() => rabbitmq(options as RabbitmqOptions)).toThrow(text);
  });

  it.each<[string, string]>([
    ['no address at all', 'hunter2'],
    ['another scheme', 'http://ada:hunter2@localhost'],
    ['parameters', 'amqp://ada:hunter2@localhost/?heartbeat=1'],
    ['two virtual hosts', 'amqp://ada:hunter2@localhost/a/b'],
    ['a bad escape', 'amqp://ada:hunter2%E0%A4%A@localhost'],
  ])('an address with a password and %s is refused without showing it', (_what, url) => {
    let text = '';
    try {
      rabbitmq({ url });
    } catch (error) {
      text = (error as Error).message;
    }
    expect(text).toMatch(/^rabbitmq\.url is "…"/);
    expect(text).not.toContain('hunter2');
  });

  it('the password is not among the settings', () => {
    expect(JSON.stringify(rabbitmq({ url: 'amqp://ada:hunter2@localhost' }))).not.toContain(
      'hunter2',
    );
  });

  it('a missing library is named with what to install', async () => {
    expect(
      await openWithoutLibraries('rabbitmq/rabbitmq.js', "rabbitmq({ url: 'amqp://localhost' })"),
    ).toMatch(
      /^configuration_invalid rabbitmq\(\) needs the package rabbitmq-client, .*npm install/,
    );
  });
});

/** One user with all rights, one that may publish nowhere, and a second virtual host. */
function users(): object {
  const hash = (password: string): string => {
    const salt = Buffer.from('salt');
    const digest = createHash('sha256').update(salt).update(password).digest();
    return Buffer.concat([salt, digest]).toString('base64');
  };
  const user = (name: string, password: string, tags: string) => ({
    name,
    password_hash: hash(password),
    hashing_algorithm: 'rabbit_password_hashing_sha256',
    tags,
  });
  const rights = (name: string, vhost: string, right: string) => ({
    user: name,
    vhost,
    configure: right,
    write: right,
    read: right,
  });
  return {
    users: [user('guest', 'guest', 'administrator'), user('clerk', 'a/b', '')],
    vhosts: [{ name: '/' }, { name: 'shop/1' }],
    permissions: [
      rights('guest', '/', '.*'),
      rights('guest', 'shop/1', '.*'),
      rights('clerk', '/', '^$'),
    ],
  };
}
