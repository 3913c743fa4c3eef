// The four formats of a body, as receivers read them: the exact payload, an envelope, and CloudEvents with the public
// package. No content of a message breaks a request.

import { HTTP } from 'cloudevents';
import type { CloudEvent } from 'cloudevents';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { headerValue } from '../../src/destinations/webhook/body.js';
import { deliver, id, opened, received, receiver } from '../support/webhook.js';
import type { Fields, Received } from '../support/webhook.js';

/** Spaces, a number beyond double precision, characters of several bytes. */
const payload = '{"a":  12345678901234567890.10, "b": "Zoë 🚚"}';

function eventOf({ headers, body }: Received): CloudEvent<unknown> {
  const event = HTTP.toEvent({ headers, body });
  if (Array.isArray(event)) throw new Error('a batch');
  expect((event as CloudEvent).validate()).toBe(true);
  return event as CloudEvent<unknown>;
}

describe('payload', () => {
  it('W2 M2 the body is the payload, byte for byte', async () => {
    const request = await received({}, { payload });
    expect(request.body).toBe(payload);
    expect(request.headers).toMatchObject({
      'content-type': 'application/json',
      'content-length': String(Buffer.byteLength(payload)),
      'webhook-id': id,
      'webhook-topic': 'user.registered',
      'user-agent': expect.stringMatching(/^waybill\/\d/) as unknown,
    });
  });
});

describe('envelope', () => {
  it('W2 has the event name, the data and the time of the event, and the payload unchanged', async () => {
    const { body, headers } = await received({ body: 'envelope' }, { payload });
    expect(body).toBe(
      `{"event":"user.registered","data":${payload},"timestamp":"2026-11-15T12:00:00.123Z"}`,
    );
    expect(headers['content-type']).toBe('application/json');
    expect(JSON.parse(body)).toMatchObject({ event: 'user.registered', data: { b: 'Zoë 🚚' } });
  });

  it.each([
    ['2026-01-02T03:04:05.678901Z', '2026-01-02T03:04:05.678Z'],
    ['2026-01-02T05:04:05+02:00', '2026-01-02T03:04:05.000Z'],
    ['2026-01-02 03:04:05.678901+00', '2026-01-02T03:04:05.678Z'],
    ['2026-01-02 03:04:05', '2026-01-02T03:04:05.000Z'],
    ['2026-01-02', '2026-01-02T00:00:00.000Z'],
    ['yesterday', '2026-11-15T12:00:00.123Z'],
    ['shift 3', '2026-11-15T12:00:00.123Z'],
    ['12', '2026-11-15T12:00:00.123Z'],
    ['2026-02-30T00:00:00Z', '2026-11-15T12:00:00.123Z'],
    ['+010000-01-01T00:00:00Z', '2026-11-15T12:00:00.123Z'],
    ['', '2026-11-15T12:00:00.123Z'],
  ])('W2 W9 a header time of %j is the time of the event, if it is one', async (time, shown) => {
    const headers = JSON.stringify({ time });
    const { body } = await received({ body: 'envelope' }, { headers });
    expect(JSON.parse(body)).toMatchObject({ timestamp: shown });
    const event = eventOf(await received({ body: 'cloudevents' }, { headers }));
    expect(event.time).toBe(shown);
  });
});

const everything: Fields = {
  payload: '{"userId": 42}',
  namespace: 'shop',
  tenantId: 'acme',
  key: 'user/42',
  sequence: '7',
  aggregateType: 'user',
  aggregateId: '42',
  headers: JSON.stringify({
    traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    tracestate: 'vendor=a b',
  }),
};
const attributes = {
  specversion: '1.0',
  id,
  type: 'user.registered',
  time: '2026-11-15T12:00:00.123Z',
  datacontenttype: 'application/json',
  data: { userId: 42 },
};

describe.each(['cloudevents', 'cloudevents-structured'] as const)('%s', (body) => {
  it('W2 M11 is a CloudEvent for the public package', async () => {
    const event = eventOf(await received({ body }, everything));
    expect(event.toJSON()).toMatchObject({
      ...attributes,
      source: '/waybill/shop',
      subject: 'user/42',
      partitionkey: 'user/42',
      sequence: '0000000000000000007',
      tenantid: 'acme',
      traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    });
  });

  it('M11 has the configured source, and omits fields that the message lacks', async () => {
    const options = { body, source: 'https://shop.example.com/orders' };
    const event = eventOf(await received(options, { payload: '{"userId": 42}' }));
    expect(event.toJSON()).toEqual({ ...attributes, source: 'https://shop.example.com/orders' });
  });

  it('M2 keeps the payload unchanged', async () => {
    const request = await received({ body }, { payload });
    expect(request.body).toContain(payload);
  });
});

describe('header values', () => {
  it('are encoded as the HTTP binding of CloudEvents says', () => {
    // the examples of the specification
    expect(headerValue('Euro € 😀')).toBe('Euro%20%E2%82%AC%20%F0%9F%98%80');
    expect(headerValue('"100%"')).toBe('%22100%25%22');
    expect(headerValue("!#$&'()*+,-./:;<=>?@[\\]^_`{|}~")).toBe("!#$&'()*+,-./:;<=>?@[\\]^_`{|}~");
  });

  it('M2 arrive and can be decoded, whatever the message contains', async () => {
    const { url, requests } = await receiver();
    const destination = await opened({ url, body: 'cloudevents' });
    const text = fc.string({ unit: 'binary', minLength: 1, maxLength: 40 });
    await fc.assert(
      fc.asyncProperty(text, text, async (key, aggregateId) => {
        const fields = { key, tenantId: key, sequence: '1', aggregateType: 'a', aggregateId };
        expect(await deliver(destination, { ...fields, topic: key })).toMatchObject({
          kind: 'delivered',
        });
        const headers = requests.pop()?.headers ?? {};
        expect(decodeURIComponent(String(headers['ce-partitionkey']))).toBe(key);
        expect(decodeURIComponent(String(headers['ce-subject']))).toBe(`a/${aggregateId}`);
        expect(decodeURIComponent(String(headers['webhook-topic']))).toBe(key);
      }),
      { numRuns: 200 },
    );
  });
});

describe('the trace context that was stored with a message', () => {
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

  it.each(['payload', 'envelope', 'cloudevents', 'cloudevents-structured'] as const)(
    'M11 is sent in its own headers: %s',
    async (body) => {
      const { headers } = await received({ body }, everything);
      expect(headers).toMatchObject({ traceparent, tracestate: 'vendor=a b' });
    },
  );

  it.each([
    ['no headers', null],
    ['no trace', { other: 'x' }],
    ['something else', { traceparent: 'x', tracestate: 'a=b' }],
    ['a line break', { traceparent: `${traceparent}\r\nx-injected: 1` }],
    ['a character that HTTP cannot carry', { traceparent: `${traceparent}-ż` }],
  ])('is not sent if it is invalid: %s', async (_what, stored) => {
    const headersText = stored === null ? null : JSON.stringify(stored);
    const { headers } = await received({}, { headers: headersText });
    for (const name of ['traceparent', 'tracestate', 'x-injected'])
      expect(headers).not.toHaveProperty(name);
  });

  it('is sent without its state if only the state is invalid', async () => {
    const { headers } = await received(
      {},
      { headers: JSON.stringify({ traceparent, tracestate: 'a=ż\n' }) },
    );
    expect(headers).toMatchObject({ traceparent });
    expect(headers).not.toHaveProperty('tracestate');
  });
});
