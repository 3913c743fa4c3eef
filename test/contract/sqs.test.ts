// SQS: the form of a message, requests of bounded size, which side is at fault for a refusal, and groups and duplicates
// of FIFO queues. The queue is ElasticMQ. Codes that it never returns come from a gate in front of it, which answers
// some requests as the SQS documents say and forwards the others.

import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';

import { QueueDoesNotExist } from '@aws-sdk/client-sqs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { Config } from '../../src/config.js';
import { sqs } from '../../src/destinations/sqs/sqs.js';
import type { SqsOptions } from '../../src/destinations/sqs/sqs.js';
import { entryFailed, requestFailed, taken } from '../../src/destinations/sqs/outcome.js';
import { claimedMessage, claimedRow } from '../support/claimed-message.js';
import { destinationUrl, packageUrl, runNode, temporaryDirectory } from '../support/cli.js';
import { only } from '../support/only.js';
import { serve } from '../support/relay-partner.js';
import { Sender, fields, messagesOf } from './sender.js';
import { sqsCredentials, sqsUnavailable, startSqs } from './services/sqs.js';
import type { RunningSqs } from './services/sqs.js';
import { openWithoutLibraries } from './without-libraries.js';

const unavailable = sqsUnavailable();
if (unavailable !== null) {
  if (process.env['CI']) throw new Error(unavailable);
  console.warn(`The tests of sqs are left out: ${unavailable}.`);
}

const secretAccessKey = 'correct-horse';

describe.skipIf(unavailable !== null)('sqs', () => {
  let server: RunningSqs;
  beforeAll(async () => void (server = await startSqs()), 90_000);
  afterAll(() => server?.stop());

  const open = (options: Partial<SqsOptions> = {}): Promise<Sender> =>
    Sender.open(
      sqs({
        queueUrl: server.urlOf('other'),
        region: 'elasticmq',
        credentials: sqsCredentials,
        ...options,
      }),
    );
  const openFifo = (options: Partial<SqsOptions> = {}): Promise<Sender> =>
    open({ queueUrl: server.urlOf('other.fifo'), ...options });

  /**
   * The gate in front of the queue: requests that contain one of these words are refused with its code; all are
   * counted.
   */
  async function gate(
    refusals: Record<string, string> = {},
  ): Promise<{ endpoint: string; sizes: number[] }> {
    const sizes: number[] = [];
    const { port } = await serve((request, response) => {
      void text(request).then(async (body) => {
        const { Entries = [] } = JSON.parse(body) as { Entries?: unknown[] };
        sizes.push(Entries.length);
        const refused = Object.keys(refusals).find((word) => body.includes(word));
        if (refused !== undefined) {
          const error = { __type: `com.amazonaws.sqs#${refusals[refused]}`, message: 'said so' };
          response.writeHead(400, { 'content-type': 'application/x-amz-json-1.0' });
          return response.end(JSON.stringify(error));
        }
        const answer = await fetch(`http://127.0.0.1:${server.address.port}/`, {
          method: 'POST',
          headers: {
            'content-type': 'application/x-amz-json-1.0',
            'x-amz-target': String(request.headers['x-amz-target']),
          },
          body,
        });
        response.writeHead(answer.status, { 'content-type': 'application/x-amz-json-1.0' });
        response.end(await answer.text());
      });
    });
    return { endpoint: `http://127.0.0.1:${port}`, sizes };
  }

  it('M11 the payload is the body, attributes describe it, and the receipt is the SQS message id', async () => {
    const message = claimedMessage({
      ...fields(),
      topic: 'order.placed',
      key: 'order-7',
      headers: '{"traceparent":"00-1-2-01","tracestate":"a=b","empty":"","waybill-id":"forged"}',
      payload: '{"a":  12345678901234567890.10, "b": "Zoë 🚚"}',
    });
    const sender = await open();
    const outcome = only(await sender.send([message]));
    const there = only(await server.take('other'));
    expect(outcome).toEqual({ kind: 'delivered', reference: there.MessageId });
    expect(there.Body).toBe(message.payloadText);
    const attributes = Object.entries(there.MessageAttributes ?? {});
    const { 'waybill-headers': headers, ...others } = Object.fromEntries(
      attributes.map(([name, { StringValue }]) => [name, StringValue]),
    );
    expect(others).toEqual({
      traceparent: '00-1-2-01',
      tracestate: 'a=b',
      'waybill-id': message.id,
      'waybill-topic': 'order.placed',
    });
    expect(JSON.parse(headers ?? '')).toEqual({
      traceparent: '00-1-2-01',
      tracestate: 'a=b',
      empty: '',
      'waybill-id': message.id,
      'waybill-topic': 'order.placed',
      'waybill-namespace': 'default',
      'waybill-created-at': '2026-01-02T03:04:05.678Z',
      'waybill-key': 'order-7',
    });
  });

  it('M11 characters that SQS refuses arrive as the same JSON', async () => {
    const odd = 'a\uFFFEb\uFFFFc';
    const sender = await open();
    const messages = messagesOf(1, () => ({
      payload: JSON.stringify({ odd }),
      headers: JSON.stringify({ odd, traceparent: odd }),
    }));
    expect(await sender.send(messages)).toMatchObject([{ kind: 'delivered' }]);
    const there = only(await server.take('other'));
    expect(JSON.parse(there.Body ?? '')).toEqual({ odd });
    const headers = there.MessageAttributes?.['waybill-headers']?.StringValue ?? '';
    expect(JSON.parse(headers)).toMatchObject({ odd, traceparent: odd });
  });

  it('M11 ten messages go in one request, or in several if they would exceed 1 MiB', async () => {
    const { endpoint, sizes } = await gate();
    const sender = await open({ endpoint });
    await sender.send(messagesOf(25));
    expect(sizes).toEqual([10, 10, 5]);
    const payload = JSON.stringify('x'.repeat(300 * 1024));
    const outcomes = await sender.send(messagesOf(10, () => ({ payload })));
    expect(outcomes.map(({ kind }) => kind)).toEqual(Array(10).fill('delivered'));
    expect(sizes.slice(3)).toEqual([3, 3, 3, 1]);
    expect(await server.take('other')).toHaveLength(35);
  });

  it('M11 a message larger than SQS accepts is refused, and the others are sent', async () => {
    const sender = await open();
    const large = JSON.stringify('x'.repeat(1024 * 1024));
    const outcomes = await sender.send(
      messagesOf(3, (index) => ({ payload: index === 1 ? large : '{}' })),
    );
    expect(outcomes.map(({ kind }) => kind)).toEqual(['delivered', 'reject', 'delivered']);
    expect(outcomes[1]).toMatchObject({ code: 'message_too_large' });
    expect(await server.take('other')).toHaveLength(2);
  });

  it('P10 a request that is refused because of one message is repeated message by message', async () => {
    const { endpoint, sizes } = await gate({ poison: 'InvalidMessageContents' });
    const sender = await open({ endpoint });
    const messages = messagesOf(4, (index) => ({ payload: index === 2 ? '"poison"' : '{}' }));
    const outcomes = await sender.send(messages);
    const wanted = ['delivered', 'delivered', 'reject', 'delivered'];
    expect(outcomes.map(({ kind }) => kind)).toEqual(wanted);
    expect(outcomes[2]).toMatchObject({
      code: 'content_refused',
      remoteCode: 'InvalidMessageContents',
      message: 'said so',
    });
    expect(sizes).toEqual([4, 1, 1, 1, 1]);
    await server.take('other');
  });

  it.each([
    ['QueueDoesNotExist', 'retry', 'queue_missing'],
    ['AccessDeniedException', 'pause', 'not_authorized'],
    ['InvalidClientTokenId', 'pause', 'not_authenticated'],
    ['ExpiredTokenException', 'retry', 'not_authenticated'],
    ['KmsAccessDenied', 'pause', 'encryption_failed'],
    ['KmsThrottled', 'retry', 'throttled'],
    ['RequestThrottled', 'retry', 'throttled'],
    ['ServiceUnavailable', 'retry', 'destination_unavailable'],
    ['SomethingNew', 'retry', 'sqs_error'],
  ])('P10 %s: %s as %s, for the whole request, which is not repeated', async (type, kind, code) => {
    const { endpoint, sizes } = await gate({ Entries: type });
    const sender = await open({ endpoint });
    const expected = { kind, code, remoteCode: type };
    expect(await sender.send(messagesOf(2))).toMatchObject([expected, expected]);
    expect(sizes).toEqual([2]);
  });

  it('M11 in a FIFO queue the key is the group, in order; a message without a key is its own group', async () => {
    const sender = await openFifo();
    const odd = 'a key with spaces and ü';
    const messages = messagesOf(6, (index) => ({
      key: ['a', null, 'a', odd, odd, 'a'][index] ?? null,
      payload: String(index),
    }));
    const outcomes = await sender.send(messages);
    expect(outcomes.map(({ kind }) => kind)).toEqual(Array(6).fill('delivered'));
    const groups = new Map<string, string[]>();
    for (const { Attributes, Body = '' } of await server.take('other.fifo')) {
      const group = Attributes?.MessageGroupId ?? '';
      groups.set(group, [...(groups.get(group) ?? []), Body]);
    }
    expect(groups.size).toBe(3);
    expect(groups.get('a')).toEqual(['0', '2', '5']);
    expect(groups.get(messages[1].id)).toEqual(['1']);
    const hashed = [...groups].find(([name]) => /^[0-9a-f]{64}$/.test(name));
    expect(hashed?.[1]).toEqual(['3', '4']);
  });

  it('M11 a FIFO queue accepts a repeated message only once', async () => {
    const sender = await openFifo();
    const messages = messagesOf(2);
    const [first, second] = [await sender.send(messages), await sender.send(messages)];
    expect(second).toEqual(first);
    expect(first.map(({ kind }) => kind)).toEqual(['delivered', 'delivered']);
    expect(await server.take('other.fifo')).toHaveLength(2);
  });

  it('M11 a FIFO queue accepts one message twice from two destinations with different groups', async () => {
    const ledger = await openFifo({ messageGroupId: 'ledger' });
    const mail = await openFifo({ messageGroupId: 'mail' });
    const messages = messagesOf(1);
    expect(await ledger.send(messages)).toMatchObject([{ kind: 'delivered' }]);
    expect(await mail.send(messages)).toMatchObject([{ kind: 'delivered' }]);
    const there = await server.take('other.fifo');
    const groups = there.map(({ Attributes }) => Attributes?.MessageGroupId);
    expect(new Set(groups)).toEqual(new Set(['ledger', 'mail']));
    expect(there).toHaveLength(2);
  });

  it('a configured group is used as given; a message without one of its fields is refused', async () => {
    const sender = await openFifo({ messageGroupId: 'tenant-{tenantId}' });
    const messages = messagesOf(2, (index) => ({ tenantId: index === 0 ? 'acme' : null }));
    expect(await sender.send(messages)).toMatchObject([
      { kind: 'delivered' },
      { kind: 'reject', code: 'name_incomplete' },
    ]);
    const there = only(await server.take('other.fifo'));
    expect(there.Attributes?.MessageGroupId).toBe('tenant-acme');
  });

  it('health names the missing queue', async () => {
    const sender = await open({ queueUrl: server.urlOf('nowhere') });
    expect(await sender.health()).toMatchObject({
      ok: false,
      problem: expect.stringContaining('QueueDoesNotExist') as unknown,
    });
    expect(await (await open()).health()).toEqual({ ok: true });
  });

  /** One delivery in a separate process, with only the credentials in its home directory. */
  async function deliverFrom(home: string, signal: string): Promise<string> {
    const script = `
      import { sqs } from ${JSON.stringify(destinationUrl('sqs'))};
      import { ClaimedMessage } from ${JSON.stringify(new URL('core/claimed-message.js', packageUrl).href)};
      const destination = sqs({ queueUrl: 'http://127.0.0.1:1/0/q', region: 'eu-west-1' });
      await destination.open();
      const message = new ClaimedMessage(${JSON.stringify(claimedRow(fields()))});
      const [outcome] = await destination.deliverBatch([message], { signal: ${signal} });
      console.log(outcome.kind, outcome.code, outcome.remoteCode);
      process.exit();
    `;
    const child = runNode(['--input-type=module', '-e', script], {
      environment: { HOME: home, AWS_EC2_METADATA_DISABLED: 'true' },
    });
    return (await child.ended()).stdout;
  }

  it('P10 missing credentials are retried, because they may come later', async () => {
    expect(await deliverFrom(temporaryDirectory(), 'AbortSignal.timeout(10_000)')).toBe(
      'retry not_authenticated CredentialsProviderError\n',
    );
  });

  it('P9 a call is aborted at once even while the SDK waits for credentials', async () => {
    const home = temporaryDirectory();
    mkdirSync(path.join(home, '.aws'));
    writeFileSync(path.join(home, '.aws', 'config'), '[default]\ncredential_process = sleep 25\n');
    expect(await deliverFrom(home, 'AbortSignal.timeout(200)')).toBe(
      'retry connection_failed TimeoutError\n',
    );
  });

  it('a missing library is named when the destination is opened', async () => {
    const said = await openWithoutLibraries(
      'sqs/sqs.js',
      "sqs({ queueUrl: 'https://sqs.eu-west-1.amazonaws.com/1/q' })",
    );
    expect(said).toBe(
      'configuration_invalid sqs() needs the package @aws-sdk/client-sqs, which is not installed: npm install @aws-sdk/client-sqs',
    );
  });
});

describe('the meaning of a response', () => {
  it('P10 a sender fault of an entry is final, a fault of SQS is not, and a known code takes precedence', () => {
    const entry = { Id: '0', Message: 'why' };
    expect(entryFailed({ ...entry, Code: 'Unheard', SenderFault: true })).toMatchObject({
      kind: 'reject',
      code: 'content_refused',
      remoteCode: 'Unheard',
      message: 'why',
    });
    expect(entryFailed({ ...entry, Code: 'Unheard', SenderFault: false })).toMatchObject({
      kind: 'retry',
      code: 'sqs_error',
    });
    expect(entryFailed({ ...entry, Code: 'RequestThrottled', SenderFault: true })).toMatchObject({
      kind: 'retry',
      code: 'throttled',
    });
  });

  it('P10 a code is recognised with and without the prefix and suffix of SQS', () => {
    const metadata = { $metadata: {}, message: 'gone' };
    const missing = { kind: 'retry', code: 'queue_missing' };
    expect(requestFailed(new QueueDoesNotExist(metadata))).toMatchObject(missing);
    const Code = 'AWS.SimpleQueueService.NonExistentQueue';
    expect(entryFailed({ Id: '0', Code, SenderFault: true })).toMatchObject(missing);
  });

  it('the sequence number of a FIFO queue is part of the receipt', () => {
    const answer = { Id: '0', MessageId: 'm', MD5OfMessageBody: '', SequenceNumber: '18' };
    expect(taken(answer)).toEqual({ kind: 'delivered', reference: 'm/18' });
  });
});

it('the configuration in the documents is valid', async () => {
  const { default: config } = (await import(
    path.resolve('examples/first-steps/sqs.config.mjs')
  )) as { default: Config };
  expect(config.destinations).toMatchObject({ billing: { kind: 'sqs' } });
});

describe('options that are refused', () => {
  const queueUrl = 'https://sqs.eu-west-1.amazonaws.com/1/q';
  it.each([
    [{}, /sqs\.queueUrl is undefined: give an https/],
    [{ queueUrl: 'my-queue' }, /sqs\.queueUrl is "…": give an https/],
    [{ queueUrl: `https://u:${secretAccessKey}@host/q` }, /sqs\.queueUrl is "https:\/\/…@host"/],
    [{ queueUrl, endpoint: 'ftp://x' }, /sqs\.endpoint is "…": give an https/],
    [{ queueUrl, region: 'Ireland!' }, /sqs\.region is "Ireland!": give a region/],
    [{ queueUrl, messageGroupId: '{key}' }, /sqs\.messageGroupId is "\{key\}": only a \.fifo/],
    [{ queueUrl: `${queueUrl}.fifo`, messageGroupId: '{kee}' }, /in braces use topic/],
    [{ queueUrl, credentials: secretAccessKey }, /sqs\.credentials is "…": give \{ accessKeyId/],
    [{ queueUrl, credentials: { secretAccessKey } }, /sqs\.credentials\.accessKeyId is "…"/],
    [
      { queueUrl, credentials: { accessKeyId: 'a', secretAccessKey, token: 'x' } },
      /sqs\.credentials\.token is not an option/,
    ],
    [{ queueUrl, batchSize: 5 }, /sqs\.batchSize is not an option/],
  ])('%j', (options, problem) => {
    let said = '';
    try {
      sqs(options as SqsOptions);
    } catch (error) {
      said = (error as Error).message;
    }
    expect(said).toMatch(problem);
    expect(said).not.toContain(secretAccessKey);
  });
});
