// The receiver of signed webhooks, with real requests: of Waybill's own webhook, and of the public package of Standard
// Webhooks, which stands for other senders.

import { generateKeyPairSync, randomBytes } from 'node:crypto';

import { Hono } from 'hono';
import { Webhook } from 'standardwebhooks';
import { describe, expect, it, onTestFinished, vi } from 'vitest';

import { createReceiver } from '../../src/receiver/index.js';
import type { ReceiverOptions, WebhookEvent } from '../../src/receiver/index.js';
import { serve } from '../support/relay-partner.js';
import { deliver, id, opened } from '../support/webhook.js';

const shared = (): string => `whsec_${randomBytes(32).toString('base64')}`;

function keyPair(): { secret: string; publicKey: string } {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const seed = privateKey.export({ format: 'der', type: 'pkcs8' }).subarray(-32);
  const half = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
  return {
    secret: `whsk_${seed.toString('base64')}`,
    publicKey: `whpk_${half.toString('base64')}`,
  };
}

/** A server whose receiver keeps the events. */
async function listening(options: ReceiverOptions) {
  const events: WebhookEvent[] = [];
  const refused: string[] = [];
  const receiver = createReceiver({
    onError: (error) => refused.push((error as Error).message),
    ...options,
  });
  const listener = receiver.toNode((event) => events.push(event));
  const { url } = await serve(listener);
  return { url, events, refused };
}

type Signed = { id?: string; body?: string; at?: Date; secret: string };

/** A request of another sender. */
function signed({
  id: eventId = 'evt_1',
  body = '{"n":1}',
  at = new Date(),
  secret,
}: Signed): RequestInit & { headers: Record<string, string>; body: string } {
  return {
    method: 'POST',
    body,
    headers: {
      'content-type': 'application/json',
      'webhook-id': eventId,
      'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
      'webhook-signature': new Webhook(secret).sign(eventId, at, body),
    },
  };
}

describe('a request of a Waybill webhook', () => {
  const { secret, publicKey } = keyPair();
  const [old, fresh] = [shared(), shared()];
  it.each([
    ['a shared secret', old, old],
    ['a public key', secret, publicKey],
    ['the old secret of two', old, [fresh, old]],
    ['one of the two secrets of the sender', [fresh, old], old],
    ['both kinds', [secret, old], publicKey],
  ])('M11 is accepted with %s', async (_what, secrets, own) => {
    const { url, events } = await listening({ secrets: own });
    const outcome = await deliver(await opened({ url, secrets }), {
      topic: 'user.registered',
      payload: '{"name":  "Zoë 🚚", "n": 12345678901234567890}',
    });
    expect(outcome).toMatchObject({ kind: 'delivered', remoteCode: '204' });
    expect(events).toEqual([
      {
        id,
        sentAt: expect.any(Date) as Date,
        topic: 'user.registered',
        body: '{"name":  "Zoë 🚚", "n": 12345678901234567890}',
        payload: { name: 'Zoë 🚚', n: Number('12345678901234567890') },
      },
    ]);
  });

  it('M11 is refused with another secret, and the sender is told why', async () => {
    const { url, events } = await listening({ secrets: shared() });
    const outcome = await deliver(await opened({ url, secrets: old }));
    expect(outcome).toMatchObject({ kind: 'retry', remoteCode: '401' });
    expect(JSON.stringify(outcome)).toContain('the sender has another secret');
    expect(events).toEqual([]);
  });
});

describe('a request of another sender', () => {
  const secret = shared();

  it('M11 is accepted, whatever the form of its id', async () => {
    const { url, events } = await listening({ secrets: secret });
    expect(
      (await fetch(url, signed({ id: 'msg_2KWPBgLlAfxdpx2AI54pPJ85f4W', secret }))).status,
    ).toBe(204);
    expect(events).toMatchObject([{ id: 'msg_2KWPBgLlAfxdpx2AI54pPJ85f4W', topic: null }]);
  });

  const now = Date.now();
  it.each([
    ['a changed body', 401, /no signature/, (r: ReturnType<typeof signed>) => (r.body += ' ')],
    [
      'a changed id',
      401,
      /no signature/,
      (r: ReturnType<typeof signed>) => (r.headers['webhook-id'] = 'evt_2'),
    ],
    [
      'a signature of another version',
      401,
      /no signature/,
      (r: ReturnType<typeof signed>) =>
        (r.headers['webhook-signature'] = String(r.headers['webhook-signature']).replace(
          'v1,',
          'v2,',
        )),
    ],
    [
      'no signature',
      400,
      /webhook-signature is missing/,
      (r: ReturnType<typeof signed>) => delete r.headers['webhook-signature'],
    ],
    [
      'a timestamp that is no number',
      401,
      /webhook-timestamp/,
      (r: ReturnType<typeof signed>) => (r.headers['webhook-timestamp'] = 'NaN'),
    ],
    [
      'too many signatures',
      400,
      /more than 20/,
      (r: ReturnType<typeof signed>) =>
        (r.headers['webhook-signature'] = Array(21).fill(r.headers['webhook-signature']).join(' ')),
    ],
  ])('M11 is refused with %s', async (_what, status, reason, change) => {
    const { url, events, refused } = await listening({ secrets: secret });
    const request = signed({ secret });
    change(request);
    const answer = await fetch(url, request);
    expect(answer.status).toBe(status);
    expect(await answer.text()).toMatch(reason);
    expect(refused).toEqual([expect.stringMatching(reason)]);
    expect(events).toEqual([]);
  });

  it.each([
    ['four minutes old', now - 240_000, 204],
    ['six minutes old', now - 360_000, 401],
    ['six minutes ahead', now + 360_000, 401],
  ])('M11 %s is answered by its age', async (_what, at, status) => {
    const { url } = await listening({ secrets: secret });
    expect((await fetch(url, signed({ at: new Date(at), secret }))).status).toBe(status);
  });

  it('M11 is refused if its body is too long, is no JSON or no UTF-8', async () => {
    const { url, refused } = await listening({ secrets: secret, maxBytes: 1000 });
    const long = signed({ body: JSON.stringify('x'.repeat(200_000)), secret });
    expect((await fetch(url, long)).status).toBe(413);
    expect((await fetch(url, signed({ body: '{', secret }))).status).toBe(400);
    expect(refused).toEqual(['the body has more than 1000 bytes', 'the body is not JSON']);
  });
});

describe('a receiver', () => {
  const secret = shared();

  it('answers 500 if the handler throws, so that the sender tries again', async () => {
    const failed = vi.fn();
    const receiver = createReceiver({ secrets: secret, onError: failed });
    const answer = receiver.toFetch(() => {
      throw new Error('the disk is full');
    });
    const response = await answer(new Request('http://127.0.0.1/', signed({ secret })));
    expect(response.status).toBe(500);
    // an error of the application is not shown to the sender
    expect(await response.text()).toBe('the event was not processed');
    expect(failed.mock.calls).toEqual([[expect.objectContaining({ message: 'the disk is full' })]]);
  });

  it('survives an onError that rejects, and a response that was answered already', async () => {
    const rejected = vi.fn();
    process.on('unhandledRejection', rejected);
    onTestFinished(() => void process.off('unhandledRejection', rejected));
    const log = vi.spyOn(console, 'error').mockImplementation(() => {});
    onTestFinished(() => log.mockRestore());
    const receiver = createReceiver({
      secrets: secret,
      onError: () => Promise.reject(new Error('the log is full')),
    });
    const receive = receiver.toNode(() => new Promise((resolve) => setTimeout(resolve, 100)));
    const { url } = await serve((request, response) => {
      receive(request, response);
      if (request.url === '/slow') setTimeout(() => response.writeHead(503).end(), 20);
    });
    expect((await fetch(url, { method: 'POST', body: '{}' })).status).toBe(400);
    expect((await fetch(new URL('/slow', url), signed({ secret }))).status).toBe(503);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(rejected.mock.calls).toEqual([]);
    expect(log.mock.calls).toEqual([[expect.objectContaining({ message: 'the log is full' })]]);
  });

  it('refuses a dot in the id, which would make the signed text ambiguous', async () => {
    const seconds = Math.floor(Date.now() / 1000);
    const at = new Date((seconds - 200) * 1000);
    const request = signed({ id: 'orig', at, body: `${seconds}.5`, secret });
    request.headers['webhook-id'] = `orig.${seconds - 200}`;
    request.headers['webhook-timestamp'] = String(seconds);
    request.body = '5';
    const { url, refused } = await listening({ secrets: secret });
    expect((await fetch(url, request)).status).toBe(400);
    expect(refused).toEqual(['webhook-id contains a dot']);
  });

  it('is a handler of Hono, and of everything else with the Fetch API', async () => {
    const events: WebhookEvent[] = [];
    const receive = createReceiver({ secrets: secret }).toFetch((event) => events.push(event));
    const app = new Hono().post('/webhooks', (context) => receive(context.req.raw));
    expect((await app.request('/webhooks', signed({ secret }))).status).toBe(204);
    expect((await app.request('/webhooks', { method: 'POST', body: '{}' })).status).toBe(400);
    expect(events).toMatchObject([{ id: 'evt_1', payload: { n: 1 } }]);
  });

  it('says what to do if the body was parsed before it', async () => {
    const failed = vi.fn();
    const receive = createReceiver({ secrets: secret, onError: failed }).toNode(() => {});
    const { url } = await serve((request, response) =>
      receive(Object.assign(request, { body: { n: 1 } }), response),
    );
    expect((await fetch(url, signed({ secret }))).status).toBe(500);
    expect(failed.mock.calls).toEqual([
      [
        expect.objectContaining({
          message: expect.stringContaining('before express.json()') as string,
        }),
      ],
    ]);
  });

  it.each([
    ['secrets', { secrets: 'whsec_short' }, /receiver\.secrets is "…": give whsec_/],
    ['secrets', { secrets: [] }, /give 1 to 10 secrets/],
    ['secrets', {}, /receiver\.secrets is undefined/],
    ['toleranceSeconds', { secrets: secret, toleranceSeconds: 0 }, /toleranceSeconds is 0/],
    ['inbox', { secrets: secret, inbox: { consumer: 'bank' } }, /inTransaction is undefined/],
    ['an unknown option', { secrets: secret, secret }, /receiver\.secret is not an option/],
  ])('refuses wrong %s without showing a secret', (_what, options, problem) => {
    expect(() => createReceiver(options as ReceiverOptions)).toThrow(problem);
  });
});
