// Access to NATS: passwords, keys, certificates, rights and absent servers; invalid options, and a missing client
// library.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';

import { jetstreamManager } from '@nats-io/jetstream';
import { nkeys } from '@nats-io/transport-node';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';

import { nats } from '../../src/destinations/nats/nats.js';
import type { NatsOptions } from '../../src/destinations/nats/nats.js';
import { makeCertificates } from '../support/certificates.js';
import { temporaryDirectory } from '../support/cli.js';
import { makeOperator } from '../support/nats-operator.js';
import { outcomesOfNobody } from './in-a-process.js';
import { natsStreams, withoutNats } from './nats-streams.js';
import { Sender, messagesOf } from './sender.js';
import { startNats } from './services/nats.js';
import type { NatsServer } from './services/nats.js';
import { openWithoutLibraries } from './without-libraries.js';

describe.skipIf(withoutNats)('nats', () => {
  const streams = natsStreams();

  describe('access', () => {
    const pair = nkeys.createUser();
    const seed = new TextDecoder().decode(pair.getSeed());
    let guarded: NatsServer;
    beforeAll(async () => {
      guarded = await startNats({
        login: { user: 'admin', pass: 'open sesame' },
        more: `authorization { timeout: 0.5, users: [
          { user: admin, password: "open sesame" }
          { user: clerk, password: "quiet", permissions: { publish: ["may.>"], subscribe: ["_INBOX.>"] } }
          { nkey: ${pair.getPublicKey()} }
        ] }`,
      });
      await guarded.use(async (connection) => {
        const manager = await jetstreamManager(connection);
        await manager.streams.add({ name: 'all', subjects: ['may.>', 'maynot.>'] });
      });
    });
    afterAll(() => guarded?.stop());

    async function tryWith(options: Partial<NatsOptions>): Promise<unknown> {
      const sender = await Sender.open(
        nats({ servers: guarded.url, subject: 'may.{topic}', ...options }),
      );
      const [outcome] = await sender.send(messagesOf(1));
      return outcome;
    }

    it('a user with a password or an nkey is accepted', async () => {
      expect(await tryWith({ user: 'admin', password: 'open sesame' })).toMatchObject({
        kind: 'delivered',
      });
      expect(await tryWith({ nkey: seed })).toMatchObject({ kind: 'delivered' });
    });

    it.each<[string, Partial<NatsOptions>]>([
      ['no user', {}],
      ['a wrong password', { user: 'admin', password: 'hunter2' }],
      ['an unknown token', { token: 'hunter2' }],
      ['an unknown nkey', { nkey: new TextDecoder().decode(nkeys.createUser().getSeed()) }],
    ])('P10 %s pauses the destination, and no secret is shown', async (_who, options) => {
      const outcome = await tryWith(options);
      expect(outcome).toMatchObject({
        kind: 'pause',
        code: 'not_authenticated',
        remoteCode: 'AuthorizationError',
      });
      for (const secret of Object.values(options))
        expect(JSON.stringify(outcome)).not.toContain(secret);
    });

    it('only a user with credentials signed by the operator is accepted', async () => {
      const { configuration, credentials } = makeOperator();
      const operated = await startNats({ more: configuration });
      onTestFinished(() => operated.stop());
      // its JetStream has no stream: a client that gets this answer has logged in
      for (const text of [credentials, credentials.replaceAll('\n', '\r\n')])
        expect(await tryWith({ servers: operated.url, credentials: text })).toMatchObject({
          code: 'stream_missing',
        });
      const other = makeOperator().credentials;
      const outcome = await tryWith({ servers: operated.url, credentials: other });
      expect(outcome).toMatchObject({ kind: 'pause', code: 'not_authenticated' });
      const health = await (
        await Sender.open(nats({ servers: operated.url, credentials }))
      ).health();
      expect(health).toEqual({ ok: true });
      for (const line of other.split('\n').filter((each) => each.length > 40))
        expect(JSON.stringify(outcome)).not.toContain(line);
    });

    it('a login that took too long is not a refusal: it is retried once', async () => {
      let connections = 0;
      const wire = createServer((client) => {
        connections += 1;
        const service = connect(guarded.address.port, guarded.address.host);
        for (const socket of [client, service]) socket.on('error', () => undefined);
        service.pipe(client);
        // the first connection only checks that the server is there; the answer to the second is lost
        if (connections !== 2) client.pipe(service);
        client.on('close', () => service.destroy());
      }).listen(0, '127.0.0.1');
      onTestFinished(() => void wire.close());
      await once(wire, 'listening');
      const servers = `127.0.0.1:${(wire.address() as AddressInfo).port}`;
      expect(await tryWith({ servers, nkey: seed })).toMatchObject({ kind: 'delivered' });
      expect(connections).toBe(3);
    });

    it('P10 a missing right to publish pauses the destination; a missing right to read does not matter', async () => {
      const clerk = { user: 'clerk', password: 'quiet' };
      expect(await tryWith(clerk)).toMatchObject({ kind: 'delivered' });
      const forbidden = { code: 'not_authorized', remoteCode: 'PermissionViolationError' };
      expect(await tryWith({ ...clerk, subject: 'maynot.be' })).toMatchObject({
        kind: 'pause',
        ...forbidden,
      });
      // other subjects may be allowed
      expect(await tryWith({ ...clerk, subject: 'maynot.{topic}' })).toMatchObject({
        kind: 'retry',
        ...forbidden,
      });
      const sender = await Sender.open(nats({ servers: guarded.url, ...clerk, stream: 'all' }));
      expect(await sender.health()).toEqual({ ok: true });
    });
  });

  it('TLS needs a trusted authority and a server with TLS', async () => {
    const { ca, certFile, keyFile } = makeCertificates(temporaryDirectory());
    const secure = await startNats({
      more: `tls { cert_file: "${certFile}", key_file: "${keyFile}" }`,
    });
    onTestFinished(() => secure.stop());
    const name = await streams.makeStream();
    const tryWith = async (options: Partial<NatsOptions>): Promise<unknown> =>
      (
        await (await streams.open({ subject: `${name}.{topic}`, ...options })).send(messagesOf(1))
      )[0];
    // its JetStream has no stream: a client that gets this answer has logged in
    expect(await tryWith({ servers: secure.url, tls: { ca } })).toMatchObject({
      code: 'stream_missing',
    });
    expect(await tryWith({ servers: secure.url, tls: true })).toMatchObject({
      kind: 'retry',
      code: 'connection_failed',
      remoteCode: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
    });
    const without = { kind: 'retry', code: 'connection_failed' };
    expect(await tryWith({ tls: { ca } })).toMatchObject(without);
    expect(await tryWith({ servers: streams.server.url.replace('nats:', 'tls:') })).toMatchObject(
      without,
    );
  });
});

it('M12 an absent or silent server fails with a reason and leaves nothing behind', async () => {
  const outcomes = await outcomesOfNobody("waybill.nats({ servers: '127.0.0.1:' + port })");
  expect(outcomes).toEqual(['retry connection_failed', 'retry timeout']);
});

describe('options', () => {
  const given = { servers: 'nats://localhost' };

  it.each<[string, object, RegExp]>([
    ['no server', {}, /nats\.servers is .*give an address/],
    ['an empty list', { servers: [] }, /nats\.servers is \[\]/],
    ['a web address', { servers: 'http://x' }, /nats\.servers is/],
    ['an unknown option', { ...given, queue: 'x' }, /nats\.queue is not an option/],
    ['an unknown field', { ...given, subject: '{name}' }, /nats\.subject is .*in braces/],
    ['a stream with dots', { ...given, stream: 'a.b' }, /nats\.stream is "a\.b"/],
    ['a format', { ...given, format: 'xml' }, /nats\.format is "xml"/],
    ['a user alone', { ...given, user: 'ada' }, /user and password together/],
    ['two ways to log in', { ...given, token: 'x1', user: 'x2' }, /nats\.user .*token is given/],
    ['an invalid nkey', { ...given, nkey: 'SU1' }, /nats\.nkey is "…": give the seed/],
    [
      'a seed without its token',
      { ...given, credentials: '-----BEGIN USER NKEY SEED-----\nSU\n------END' },
      /nats\.credentials is "…": give the text of a credentials file/,
    ],
    ['a key alone', { ...given, tls: { key: 'x3' } }, /nats\.tls\.cert/],
    ['an unknown part of tls', { ...given, tls: { pin: 'x4' } }, /nats\.tls\.pin is not an option/],
  ])('%s is refused', (_what, options, text) => {
    expect(() => nats(options as NatsOptions)).toThrow(text);
  });

  it.each<[string, object]>([
    ['an address with a password', { servers: 'nats://ada:hunter2@localhost' }],
    ['a password that is not text', { ...given, user: 'ada', password: ['hunter2'] }],
    ['a token that is not text', { ...given, token: { hunter2: 1 } }],
    ['an nkey that is not text', { ...given, nkey: ['hunter2'] }],
    ['credentials that are not text', { ...given, credentials: ['hunter2'] }],
    ['a key that is not text', { ...given, tls: { cert: 'x', key: ['hunter2'] } }],
    ['tls that is text', { ...given, tls: 'hunter2' }],
  ])('%s is refused without showing it', (_what, options) => {
    let text = '';
    try {
      nats(options as NatsOptions);
    } catch (error) {
      text = (error as Error).message;
    }
    expect(text).toMatch(/^nats\./);
    expect(text).not.toContain('hunter2');
  });

  it('secrets are not among the settings', () => {
    const destination = nats({ ...given, user: 'ada', password: 'hunter2' });
    expect(JSON.stringify(destination)).not.toContain('hunter2');
  });

  it('a missing library is named with what to install', async () => {
    expect(
      await openWithoutLibraries('nats/nats.js', "nats({ servers: 'nats://localhost' })"),
    ).toMatch(
      /^configuration_invalid nats\(\) needs the package @nats-io\/transport-node, .*npm install/,
    );
  });
});
