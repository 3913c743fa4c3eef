// NATS JetStream on a real server: what a stream's acknowledgement means, what arrives, what each error becomes, and
// what a message cannot do.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';

import { jetstreamManager } from '@nats-io/jetstream';
import type { StreamConfig } from '@nats-io/jetstream';
import { nkeys } from '@nats-io/transport-node';
import { HTTP } from 'cloudevents';
import type { CloudEvent } from 'cloudevents';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';

import { nats } from '../../src/destinations/nats/nats.js';
import type { NatsOptions } from '../../src/destinations/nats/nats.js';
import { makeCertificates } from '../support/certificates.js';
import { temporaryDirectory } from '../support/cli.js';
import { makeOperator } from '../support/nats-operator.js';
import { testDatabase } from '../support/postgres.js';
import { attemptsOf, send, startRelay, untilPlaces } from '../support/relay.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { outcomesOfNobody } from './in-a-process.js';
import { Sender, messagesOf } from './sender.js';
import { natsService, startNats, storedIn } from './services/nats.js';
import type { NatsServer, StoredMessage } from './services/nats.js';
import { openWithoutLibraries } from './without-libraries.js';

const unavailable = natsService.unavailable();
if (unavailable !== null) console.warn(`The tests of NATS are left out: ${unavailable}.`);

const db = testDatabase();
let server: NatsServer;
let count = 0;

describe.skipIf(unavailable !== null && !process.env['CI'])('nats', () => {
  beforeAll(async () => {
    server = await startNats({});
  });
  afterAll(() => server?.stop());

  /** A stream of its own for the subjects `NAME.>`. */
  async function makeStream(config: Partial<StreamConfig> = {}): Promise<string> {
    const name = `stream${(count += 1)}`;
    await server.use(async (connection) => {
      const manager = await jetstreamManager(connection);
      await manager.streams.add({ name, subjects: [`${name}.>`], ...config });
    });
    return name;
  }

  async function open(options: Partial<NatsOptions>): Promise<Sender> {
    return Sender.open(nats({ servers: server.url, ...options }));
  }

  async function stored(stream: string): Promise<StoredMessage[]> {
    return server.use((connection) => storedIn(connection, stream));
  }

  describe('an acknowledgement', () => {
    it('M11 is the place in the stream; sent again it is a duplicate, which is a success', async () => {
      const name = await makeStream();
      const sender = await open({ subject: `${name}.{topic}` });
      const [first, second] = messagesOf(2);
      expect(await sender.send([first])).toEqual([{ kind: 'delivered', reference: `${name}/1` }]);
      expect(await sender.send([second])).toEqual([{ kind: 'delivered', reference: `${name}/2` }]);
      expect(await sender.send([first])).toEqual([
        { kind: 'delivered', reference: `${name}/1`, remoteCode: 'duplicate' },
      ]);
      expect(await stored(name)).toHaveLength(2);
    });

    it('M11 of one destination is not taken for that of another that sends to the same stream', async () => {
      const name = await makeStream();
      const ledger = await open({ subject: `${name}.ledger.{topic}` });
      const mail = await open({ subject: `${name}.mail.{topic}` });
      const messages = messagesOf(1);
      expect(await ledger.send(messages)).toEqual([{ kind: 'delivered', reference: `${name}/1` }]);
      expect(await mail.send(messages)).toEqual([{ kind: 'delivered', reference: `${name}/2` }]);
      expect(await stored(name)).toHaveLength(2);
    });

    it('M11 that was lost costs no second message', async () => {
      const name = await makeStream();
      const proxy = await TcpProxy.open();
      onTestFinished(() => proxy.close());
      proxy.leadTo(server.address);
      const sender = await Sender.open(
        nats({
          servers: `${proxy.address.host}:${proxy.address.port}`,
          subject: `${name}.{topic}`,
        }),
      );
      const [first, second] = messagesOf(2);
      await sender.sendUntilDelivered([first]);
      proxy.behaviour = { delayMs: 400 };
      expect(await sender.send([second], 500)).toMatchObject([{ kind: 'retry', code: 'timeout' }]);
      proxy.behaviour = 'pass';
      await sender.sendUntilDelivered([second]);
      const ids = (await stored(name)).map(({ headers }) => headers['waybill-id']);
      expect(ids).toEqual([first.id, second.id]);
    });

    it('many are waited for at once: a round trip is not paid for each message', async () => {
      const name = await makeStream();
      const proxy = await TcpProxy.open();
      onTestFinished(() => proxy.close());
      proxy.leadTo(server.address);
      const sender = await Sender.open(
        nats({
          servers: `${proxy.address.host}:${proxy.address.port}`,
          subject: `${name}.{topic}`,
        }),
      );
      await sender.sendUntilDelivered(messagesOf(1));
      proxy.behaviour = { delayMs: 100 };
      const startedMs = performance.now();
      const outcomes = await sender.send(messagesOf(200));
      expect(outcomes.every(({ kind }) => kind === 'delivered')).toBe(true);
      // one after the other it would take 40 seconds
      expect(performance.now() - startedMs).toBeLessThan(5000);
    });
  });

  describe('what arrives', () => {
    it('M11 is the exact payload, with the headers of the message and of Waybill', async () => {
      const name = await makeStream();
      const sender = await open({ subject: `${name}.{tenantId}.{topic}` });
      const payload = '{"a":  12345678901234567890.10, "b": "Zoë 🚚"}';
      const [message] = messagesOf(1, () => ({
        payload,
        topic: 'order.placed',
        tenantId: 'acme',
        key: 'order-1',
        sequence: '7',
        headers: JSON.stringify({ colour: 'grün', 'waybill-id': 'another' }),
      }));
      expect(await sender.send([message])).toMatchObject([{ kind: 'delivered' }]);
      expect(await stored(name)).toEqual([
        {
          subject: `${name}.acme.order.placed`,
          body: payload,
          headers: {
            'Nats-Msg-Id': `${message.id} ${name}.acme.order.placed`,
            colour: 'grün',
            'waybill-id': message.id,
            'waybill-topic': 'order.placed',
            'waybill-namespace': 'default',
            'waybill-created-at': '2026-01-02T03:04:05.678Z',
            'waybill-tenant': 'acme',
            'waybill-key': 'order-1',
            'waybill-sequence': '7',
          },
        },
      ]);
    });

    it('M11 is a CloudEvent that others can read, where that is wanted', async () => {
      const name = await makeStream();
      const sender = await open({ subject: `${name}.{topic}`, format: 'cloudevents' });
      const [message] = messagesOf(1, () => ({
        topic: 'order.placed',
        key: 'Zoë 100 % "sure"',
        sequence: '7',
        headers: JSON.stringify({ 'CE-id': 'another', colour: 'green' }),
      }));
      expect(await sender.send([message])).toMatchObject([{ kind: 'delivered' }]);
      const [arrived] = await stored(name);
      if (arrived === undefined) throw new Error('nothing arrived');
      expect(arrived.headers).toMatchObject({
        'Nats-Msg-Id': `${message.id} ${name}.order.placed`,
        colour: 'green',
        'ce-datacontenttype': 'application/json',
        'ce-partitionkey': 'Zo%C3%AB%20100%20%25%20%22sure%22',
      });
      expect(Object.keys(arrived.headers)).not.toContain('CE-id');
      expect(Object.keys(arrived.headers).filter((each) => each.startsWith('waybill-'))).toEqual(
        [],
      );
      const event = HTTP.toEvent({
        headers: { ...arrived.headers, 'content-type': 'application/json' },
        body: arrived.body,
      }) as CloudEvent<unknown>;
      expect(event.validate()).toBe(true);
      expect(event).toMatchObject({
        id: message.id,
        source: '/waybill/default',
        type: 'order.placed',
        time: '2026-01-02T03:04:05.678Z',
        sequence: '0000000000000000007',
        data: { is: 'small' },
      });
    });

    it('a header that commands the stream is left out', async () => {
      const name = await makeStream({ allow_rollup_hdrs: true });
      const sender = await open({ subject: `${name}.{topic}` });
      const [first, second] = messagesOf(2, (index) => ({
        headers: index === 0 ? null : JSON.stringify({ 'Nats-Rollup': 'all', 'nats-x': '1' }),
      }));
      expect(await sender.send([first])).toMatchObject([{ kind: 'delivered' }]);
      expect(await sender.send([second])).toMatchObject([{ kind: 'delivered' }]);
      const headers = (await stored(name)).map((each) => Object.keys(each.headers));
      expect(headers).toHaveLength(2);
      expect(headers[1]?.filter((each) => /^nats-/i.test(each))).toEqual(['Nats-Msg-Id']);
    });
  });

  describe('P10 what cannot be delivered', () => {
    it('another stream takes the subject', async () => {
      const name = await makeStream();
      const other = await makeStream();
      const sender = await open({ subject: `${name}.{topic}`, stream: other });
      expect(await sender.send(messagesOf(1))).toMatchObject([
        { kind: 'retry', code: 'stream_mismatch', remoteCode: '10060' },
      ]);
      expect([...(await stored(name)), ...(await stored(other))]).toEqual([]);
      const right = await open({ subject: `${name}.{topic}`, stream: name });
      expect(await right.send(messagesOf(1))).toMatchObject([{ kind: 'delivered' }]);
    });

    it('no stream takes the subject, whoever else listens and answers', async () => {
      const sender = await open({ subject: 'nobody.{topic}' });
      expect(await sender.send(messagesOf(1))).toMatchObject([
        { kind: 'retry', code: 'stream_missing', remoteCode: 'NoResponders' },
      ]);
      await server.use(async (connection) => {
        let answer = '';
        connection.subscribe('nobody.>', { callback: (_error, each) => void each.respond(answer) });
        await connection.flush();
        for (answer of ['{}', '{"stream":"x"}', '{"stream":"","seq":1}', 'null', 'thank you'])
          expect(await sender.send(messagesOf(1))).toMatchObject([{ kind: 'retry' }]);
      });
    });

    it('the stream is full, or wants smaller messages', async () => {
      const full = await makeStream({ max_msgs: 1, discard: 'new' as StreamConfig['discard'] });
      const sender = await open({ subject: `${full}.{topic}` });
      expect(await sender.send(messagesOf(1))).toMatchObject([{ kind: 'delivered' }]);
      expect(await sender.send(messagesOf(1))).toMatchObject([
        { kind: 'retry', code: 'store_failed', remoteCode: '10077' },
      ]);
      const small = await makeStream({ max_msg_size: 300 });
      const other = await open({ subject: `${small}.{topic}` });
      const payload = JSON.stringify('x'.repeat(300));
      expect(await other.send(messagesOf(1, () => ({ payload })))).toMatchObject([
        { kind: 'reject', code: 'message_too_large', remoteCode: '10054' },
      ]);
    });

    it.each([
      ['spaces', 'a b'],
      ['a wildcard', '*'],
      ['the wildcard of the rest', '>'],
      ['an empty word', 'a..b'],
      ['a dot at the end', 'a.'],
    ])('a subject with %s', async (_what, key) => {
      const sender = await open({ subject: 'keys.{key}' });
      expect(await sender.send(messagesOf(1, () => ({ key })))).toMatchObject([
        { kind: 'reject', code: 'subject_invalid' },
      ]);
    });

    it('a subject that is a command to the server', async () => {
      const name = await makeStream();
      const sender = await open({ subject: '{key}' });
      const key = `$JS.API.STREAM.DELETE.${name}`;
      expect(await sender.send(messagesOf(1, () => ({ key })))).toMatchObject([
        { kind: 'reject', code: 'subject_invalid' },
      ]);
      expect(await stored(name)).toEqual([]);
    });

    it('a field that is missing, or a header that NATS cannot carry', async () => {
      const name = await makeStream();
      const sender = await open({ subject: `${name}.{key}` });
      const bad = [{ 'a b': '1' }, { 'a:b': '1' }, { a: 'one\r\nNats-Rollup: all' }];
      expect(await sender.send(messagesOf(1))).toMatchObject([
        { kind: 'reject', code: 'name_incomplete' },
      ]);
      for (const headers of bad) {
        const message = messagesOf(1, () => ({ key: 'k', headers: JSON.stringify(headers) }));
        expect(await sender.send(message)).toMatchObject([
          { kind: 'reject', code: 'header_invalid' },
        ]);
      }
      expect(await stored(name)).toEqual([]);
    });

    it('a server without JetStream', async () => {
      const plain = await startNats({ more: 'jetstream: disabled' });
      onTestFinished(() => plain.stop());
      const sender = await Sender.open(nats({ servers: plain.url }));
      expect(await sender.send(messagesOf(1))).toMatchObject([
        { kind: 'retry', code: 'stream_missing' },
      ]);
      expect(await sender.health()).toMatchObject({ ok: false });
    });
  });

  describe('health', () => {
    it('says whether the stream is there', async () => {
      const name = await makeStream();
      expect(await (await open({ stream: name })).health()).toEqual({ ok: true });
      expect(await (await open({})).health()).toEqual({ ok: true });
      expect(await (await open({ stream: 'nobody' })).health()).toEqual({
        ok: false,
        problem: 'stream_missing (10059): stream not found',
      });
    });
  });

  describe('who may', () => {
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

    it('a user with a password, and an nkey', async () => {
      expect(await tryWith({ user: 'admin', password: 'open sesame' })).toMatchObject({
        kind: 'delivered',
      });
      expect(await tryWith({ nkey: seed })).toMatchObject({ kind: 'delivered' });
    });

    it.each<[string, Partial<NatsOptions>]>([
      ['nobody', {}],
      ['a wrong password', { user: 'admin', password: 'hunter2' }],
      ['an unknown token', { token: 'hunter2' }],
      ['an unknown nkey', { nkey: new TextDecoder().decode(nkeys.createUser().getSeed()) }],
    ])('P10 %s pauses the destination, and no secret is told', async (_who, options) => {
      const outcome = await tryWith(options);
      expect(outcome).toMatchObject({
        kind: 'pause',
        code: 'not_authenticated',
        remoteCode: 'AuthorizationError',
      });
      for (const secret of Object.values(options))
        expect(JSON.stringify(outcome)).not.toContain(secret);
    });

    it('a user with credentials that an operator vouches for, and nobody else', async () => {
      const { configuration, credentials } = makeOperator();
      const operated = await startNats({ more: configuration });
      onTestFinished(() => operated.stop());
      // its JetStream has no stream: whoever hears so has been let in
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

    it('a login that took too long is no refusal: it is tried once more', async () => {
      let connections = 0;
      const wire = createServer((client) => {
        connections += 1;
        const service = connect(guarded.address.port, guarded.address.host);
        for (const socket of [client, service]) socket.on('error', () => undefined);
        service.pipe(client);
        // the first only looks whether somebody is there; what the second says is lost
        if (connections !== 2) client.pipe(service);
        client.on('close', () => service.destroy());
      }).listen(0, '127.0.0.1');
      onTestFinished(() => void wire.close());
      await once(wire, 'listening');
      const servers = `127.0.0.1:${(wire.address() as AddressInfo).port}`;
      expect(await tryWith({ servers, nkey: seed })).toMatchObject({ kind: 'delivered' });
      expect(connections).toBe(3);
    });

    it('P10 no right to publish there pauses; no right to look is no problem', async () => {
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

  it('TLS: an authority that is trusted, one that is not, and a server without', async () => {
    const { ca, certFile, keyFile } = makeCertificates(temporaryDirectory());
    const secure = await startNats({
      more: `tls { cert_file: "${certFile}", key_file: "${keyFile}" }`,
    });
    onTestFinished(() => secure.stop());
    const name = await makeStream();
    const tryWith = async (options: Partial<NatsOptions>): Promise<unknown> =>
      (await (await open({ subject: `${name}.{topic}`, ...options })).send(messagesOf(1)))[0];
    // its JetStream has no stream: whoever hears so has been let in
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
    expect(await tryWith({ servers: server.url.replace('nats:', 'tls:') })).toMatchObject(without);
  });

  it('P2 M11 a relay keeps the order of each key, and the receipt with the attempt', async () => {
    const stream = await makeStream();
    const name = 'nats-relay';
    await startRelay(db, {
      destinations: { [name]: nats({ servers: server.url, subject: `${stream}.{topic}` }) },
    });
    const keys = ['a', 'b', 'c'];
    const ids = await send(
      db,
      Array.from({ length: 60 }, (_, n) => ({
        topic: name,
        key: keys[n % 3] ?? '',
        payload: { n },
      })),
    );
    await untilPlaces(db, name, { delivered: 60, waiting: 0, leased: 0 });
    const arrived = (await stored(stream)).map(({ headers }) => headers['waybill-id'] ?? '');
    for (const [offset] of keys.entries())
      expect(arrived.filter((id) => ids.indexOf(id) % 3 === offset)).toEqual(
        ids.filter((_, n) => n % 3 === offset),
      );
    const [first = ''] = ids;
    expect(await attemptsOf(db, first, name)).toMatchObject([
      { state: 'dispatched', reference: `${stream}/${arrived.indexOf(first) + 1}` },
    ]);
  });

  it('the first server that answers is taken', async () => {
    const name = await makeStream();
    const rude = createServer((socket) => socket.end()).listen(0, '127.0.0.1');
    onTestFinished(() => void rude.close());
    await once(rude, 'listening');
    const sender = await open({
      servers: ['127.0.0.1:1', `127.0.0.1:${(rude.address() as AddressInfo).port}`, server.url],
      subject: `${name}.{topic}`,
    });
    expect(await sender.send(messagesOf(1))).toMatchObject([{ kind: 'delivered' }]);
  });
});

it('M12 where nobody is, or nobody answers, it fails with a reason and leaves nothing behind', async () => {
  const outcomes = await outcomesOfNobody("waybill.nats({ servers: '127.0.0.1:' + port })");
  expect(outcomes).toEqual(['retry connection_failed', 'retry timeout']);
});

describe('options', () => {
  const given = { servers: 'nats://localhost' };

  it.each<[string, object, RegExp]>([
    ['no server', {}, /nats\.servers is .*give an address/],
    ['an empty list', { servers: [] }, /nats\.servers is \[\]/],
    ['a web address', { servers: 'http://x' }, /nats\.servers is/],
    ['an unknown one', { ...given, queue: 'x' }, /nats\.queue is not an option/],
    ['an unknown field', { ...given, subject: '{name}' }, /nats\.subject is .*in braces/],
    ['a stream with dots', { ...given, stream: 'a.b' }, /nats\.stream is "a\.b"/],
    ['a format', { ...given, format: 'xml' }, /nats\.format is "xml"/],
    ['a user alone', { ...given, user: 'ada' }, /user and password together/],
    ['two ways to log in', { ...given, token: 'x1', user: 'x2' }, /nats\.user .*token is given/],
    ['an nkey that is none', { ...given, nkey: 'SU1' }, /nats\.nkey is "…": give the seed/],
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
    ['a password that is no text', { ...given, user: 'ada', password: ['hunter2'] }],
    ['a token that is no text', { ...given, token: { hunter2: 1 } }],
    ['an nkey that is no text', { ...given, nkey: ['hunter2'] }],
    ['credentials that are no text', { ...given, credentials: ['hunter2'] }],
    ['a key that is no text', { ...given, tls: { cert: 'x', key: ['hunter2'] } }],
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

  it('without its library it says what to install', async () => {
    expect(
      await openWithoutLibraries('nats/nats.js', "nats({ servers: 'nats://localhost' })"),
    ).toMatch(
      /^configuration_invalid nats\(\) needs the package @nats-io\/transport-node, .*npm install/,
    );
  });
});
