// The request of a webhook, as the server of its relay shows it: what the receiver got, without secrets. And sending a
// message again, whatever its status.

import type { IncomingHttpHeaders } from 'node:http';
import { text } from 'node:stream/consumers';

import { describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import type { Destination } from '../../src/destinations/destination.js';
import type { SentRequest } from '../../src/destinations/sent-request.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import { addEndpoint } from '../support/endpoints.js';
import { makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { configOf, send, sendOne, startRelay, untilPlaces } from '../support/relay.js';
import { loopback, serve } from '../support/relay-partner.js';
import { serveDatabase } from '../support/server.js';
import type { Ask } from '../support/server.js';
import { settle } from '../support/settling.js';

const db = testDatabase();

type Received = { path: string; headers: IncomingHttpHeaders; body: string };

/** A relay with this destination, which has delivered one message, and the server of its process. */
async function delivered(
  name: string,
  make: (url: string) => Destination,
  payload: Record<string, unknown>,
): Promise<{ ask: Ask; id: string; received: Received[]; origin: string }> {
  const received: Received[] = [];
  const { url } = await serve((request, response) => {
    void text(request).then((body) => {
      received.push({ path: request.url ?? '', headers: request.headers, body });
      response.writeHead(202).end('{"taken": true}');
    });
  });
  const destinations = { [name]: make(url) };
  const config = configOf(db, { destinations });
  await startRelay(db, { destinations });
  const id = await sendOne(db, {
    topic: name,
    payload,
    headers: { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' },
  });
  await untilPlaces(db, name, { waiting: 0, leased: 0 });
  const server = await serveDatabase(db, { config });
  return { ask: await server.as('operate'), id, received, origin: new URL(url).origin };
}

function requestIn(body: Record<string, unknown>): SentRequest {
  expect(body['reason']).toBeNull();
  return body['request'] as SentRequest;
}

describe('the request of a webhook of the configuration', { timeout: 60_000 }, () => {
  it.each(['payload', 'envelope', 'cloudevents', 'cloudevents-structured'] as const)(
    'W5 is what the receiver got, with the body as %s, and without secrets',
    async (body) => {
      const name = `shown-${body}`;
      const { ask, id, received, origin } = await delivered(
        name,
        (url) =>
          webhook({
            url: new URL('/hooks/T0k3nInThePath1?api_key=geheim', url).href,
            method: 'PUT',
            body,
            secrets: [
              'whsec_Z2VoZWltZ2VoZWltZ2VoZWltZ2VoZWlt',
              'whsec_Z2VoZWltZ2VoZWltZ2VoZWltZ2VoZWl0',
            ],
            headers: { 'x-api': 'geheim-kopf', 'x-app': 'shop' },
            auth: { type: 'basic', user: 'anna', password: 'geheim' },
            allowedNetworks: loopback,
          }),
        { amount: '12.50', 'with space': [1, 2, 3] },
      );
      const [sent] = received;
      const { status, body: answer } = await ask('GET', `/api/messages/${id}/requests/${name}`);
      expect(status).toBe(200);
      const shown = requestIn(answer);
      expect(shown).toMatchObject({
        method: 'PUT',
        url: `${origin}/hooks/[hidden]?api_key=[hidden]`,
        body: sent?.body,
        bodyBytes: Buffer.byteLength(sent?.body ?? ''),
        hasHiddenHeaders: false,
      });
      const valueOf = (wanted: string) =>
        shown.headers.find((header) => header.name === wanted)?.value;
      const hidden = ['authorization', 'x-api', 'x-app'];
      for (const header of hidden) expect([header, valueOf(header)]).toEqual([header, '[hidden]']);
      expect(valueOf('webhook-signature')).toBe('v1,[hidden] v1,[hidden]');
      // the try began a moment before it was signed
      const signedAt = Number(sent?.headers['webhook-timestamp']);
      expect(Math.abs(Number(valueOf('webhook-timestamp')) - signedAt)).toBeLessThan(30);
      const others = shown.headers.filter(
        ({ name: header }) =>
          ![...hidden, 'webhook-signature', 'webhook-timestamp'].includes(header),
      );
      expect(others.length).toBeGreaterThan(4);
      for (const header of others) expect(header.value).toBe(sent?.headers[header.name]);
      const names = shown.headers.map((header) => header.name);
      const own = ['host', 'connection', 'content-length', 'transfer-encoding'];
      const missing = Object.keys(sent?.headers ?? {}).filter((header) => !names.includes(header));
      expect(own).toEqual(expect.arrayContaining(missing));
      expect(JSON.stringify(answer)).not.toMatch(/geheim|T0k3n|shop"|anna|Z2VoZWlt/);
    },
  );

  it('W5 is not shown where it cannot be known, with the reason', async () => {
    const { ask, id } = await delivered('shown-handler', () => handler(() => undefined), {});
    expect((await ask('GET', `/api/messages/${id}/requests/shown-handler`)).body).toEqual({
      kind: 'handler',
      request: null,
      reason: 'a destination of the kind "handler" sends no HTTP requests',
    });
    const elsewhere = await (await serveDatabase(db)).as('read');
    expect((await elsewhere('GET', `/api/messages/${id}/requests/shown-handler`)).body).toEqual({
      kind: 'handler',
      request: null,
      reason:
        'the configuration of this server does not have the destination "shown-handler": open the page of a relay that serves it',
    });
    expect((await elsewhere('GET', `/api/messages/${id}/requests/other`)).status).toBe(404);
    const endpoint = await addEndpoint(db, {
      url: 'https://example.com/hooks',
      topics: ['for-endpoint'],
    });
    const [sent = ''] = await send(db, [{ topic: 'for-endpoint', payload: {} }]);
    expect(
      (await elsewhere('GET', `/api/messages/${sent}/requests/${endpoint.name}`)).body,
    ).toMatchObject({
      kind: 'endpoint',
      request: null,
      reason: `"${endpoint.name}" is an endpoint: its requests are on the screen of the endpoint`,
    });
  });

  it('P13 a token of one tenant sees no request, and only operators send again', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne({ tenantId: 'acme' });
    const server = await serveDatabase(db);
    const tenant = await server.as('operate', 'acme');
    expect((await tenant('GET', `/api/messages/${id}`)).status).toBe(200);
    expect((await tenant('GET', `/api/messages/${id}/requests/${queue.name}`)).status).toBe(403);
    const body = { destination: queue.name };
    expect((await tenant('POST', `/api/messages/${id}/resend`, body)).status).toBe(403);
    const reader = await server.as('read');
    expect((await reader('POST', `/api/messages/${id}/resend`, body)).status).toBe(403);
  });
});

describe('sending a message again', () => {
  it('W5 retries a dead letter, replays a delivered one, and waits for a try in flight', async () => {
    const queue = await makeQueue(db);
    const server = await serveDatabase(db);
    const ask = await server.as('operate');
    const resend = (id: string) =>
      ask('POST', `/api/messages/${id}/resend`, { destination: queue.name });
    const [dead = ''] = await makeDead(queue, 1, 'gone');
    expect((await resend(dead)).body).toEqual({ messageId: dead, status: 'dead' });
    expect(await queue.status(dead)).toMatchObject({ status: 'pending' });
    const claim = await queue.claim();
    expect(claim.ids).toEqual([dead]);
    expect(await resend(dead)).toMatchObject({
      status: 409,
      body: { error: expect.stringContaining('is being sent') as string },
    });
    await settle(db, claim, [
      { id: dead, outcome: 'delivered', claimNo: claim.rows[0]?.claim_no ?? 0 },
    ]);
    expect((await resend(dead)).body).toEqual({ messageId: dead, status: 'delivered' });
    expect((await queue.claim()).ids).toEqual([dead]);
    expect(
      (await ask('POST', `/api/messages/${dead}/resend`, { destination: 'other' })).status,
    ).toBe(404);
  });

  it('W5 says why a dead letter cannot be retried', async () => {
    const queue = await makeQueue(db);
    const ask = await (await serveDatabase(db)).as('operate');
    const [dead = ''] = await makeDead(queue, 1, 'gone');
    await db.query(`UPDATE ${db.quoted}.dead_letters SET payload = NULL WHERE message_id = $1`, [
      dead,
    ]);
    expect(
      await ask('POST', `/api/messages/${dead}/resend`, { destination: queue.name }),
    ).toMatchObject({
      status: 409,
      body: { error: expect.stringMatching(/cannot be retried: .+ its message is gone/) as string },
    });
  });
});
