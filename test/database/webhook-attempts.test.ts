// Webhook responses in the record, through a relay: status, timing and the beginning of the response are stored for
// every attempt, in one call for a whole lease. A response that began before the timeout counts, even if the rest never
// comes.

import type { ServerResponse } from 'node:http';

import { describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import type { WebhookOptions } from '../../src/destinations/webhook/webhook.js';
import { delivered } from '../../src/core/outcome.js';
import { cliOn } from '../support/cli.js';
import { addEndpoint, startEndpointRelay } from '../support/endpoints.js';
import { testDatabase } from '../support/postgres.js';
import { attemptsOf, numbered, send, sendOne, startRelay, untilEnded } from '../support/relay.js';
import { loopback, serve } from '../support/relay-partner.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

async function hook(
  answer: (response: ServerResponse) => void,
  options: Omit<WebhookOptions, 'url'> = {},
) {
  const { url } = await serve((request, response) => {
    request.resume();
    answer(response);
  });
  return webhook({ url, allowedNetworks: loopback, retry: { delaysMs: [1] }, ...options });
}

/** Its headers and half of its body; the rest never comes. */
const half =
  (status: number) =>
  (response: ServerResponse): void =>
    void response.writeHead(status, { 'content-length': '10' }).write('hello');

describe('a success', () => {
  it('W3 has status, timing and the beginning of the response stored, for a whole lease in one call', async () => {
    let n = 0;
    await startRelay(db, {
      destinations: {
        kept: await hook(
          (response) => {
            n += 1;
            response.writeHead(n === 1 ? 204 : 202).end(n === 1 ? undefined : `{"taken":${n}}`);
          },
          { concurrency: 1 },
        ),
      },
    });
    const ids = await send(db, numbered('kept', 20));
    await untilEnded(db, 'kept');
    const attempts = (await Promise.all(ids.map((id) => attemptsOf(db, id, 'kept')))).flat();
    expect(attempts).toHaveLength(20);
    const found = attempts.map(({ remote_code, response }) => `${remote_code} ${response}`);
    expect(found.toSorted()).toEqual(
      [
        '204 null',
        ...Array.from({ length: 19 }, (_, index) => `202 {"taken":${index + 2}}`),
      ].toSorted(),
    );
    for (const { latency_ms: latencyMs } of attempts) expect(latencyMs).toBeGreaterThanOrEqual(0);
  });

  it('W3 has the same stored for endpoints', async () => {
    await startEndpointRelay(db);
    const { url } = await serve((request, response) => {
      request.resume();
      response.writeHead(201).end('thanks');
    });
    const { name } = await addEndpoint(db, { url, topics: ['customers'] });
    const id = await sendOne(db, { topic: 'customers' });
    await untilEnded(db, name);
    expect(await attemptsOf(db, id, name)).toMatchObject([
      { state: 'dispatched', remote_code: '201', response: 'thanks' },
    ]);
  });

  it('W3 is shown by the command line', async () => {
    await startRelay(db, {
      destinations: {
        shown: await hook(
          (response) => void response.end(`{"taken":\n\u001B[31mtrue}${'x'.repeat(400)}`),
        ),
      },
    });
    const id = await sendOne(db, { topic: 'shown' });
    await untilEnded(db, 'shown');
    const { stdout } = await cliOn(db, ['messages', 'show', id]);
    expect(stdout).toMatch(/^shown answered claim 1: \{"taken": \[31mtrue\}x+…$/m);
    expect(stdout).toMatch(
      /^shown: delivered\. It was delivered at .*, at try 1, answered 200\.$/m,
    );
    const explained = await cliOn(db, ['explain', id]);
    expect(explained.stdout).toContain(', at try 1, answered 200.');
  });
});

describe('a response that is incomplete', () => {
  it('P9 W2 counts at the timeout', async () => {
    let closed = 0;
    await startRelay(db, {
      destinations: {
        half: await hook(
          (response) => {
            response.on('close', () => (closed += 1));
            half(200)(response);
          },
          { timeoutMs: 2000 },
        ),
      },
    });
    const id = await sendOne(db, { topic: 'half' });
    await waitFor(() => closed === 1, { what: 'the end of the time' });
    await untilEnded(db, 'half');
    expect(await attemptsOf(db, id, 'half')).toMatchObject([
      { state: 'dispatched', remote_code: '200', response: 'hello[cut off]', error_code: null },
    ]);
  });

  it('P9 W2 counts at the timeout in stream mode too: the next message follows', async () => {
    const asked: unknown[] = [];
    const { url } = await serve((request, response) => {
      request.resume();
      asked.push(request.headers['webhook-id']);
      half(200)(response);
    });
    const options = { mode: 'stream', from: 'beginning', timeoutMs: 2000 } as const;
    await startRelay(db, {
      destinations: {
        flow: webhook({ url, allowedNetworks: loopback, retry: { delaysMs: [1] }, ...options }),
      },
    });
    const ids = await send(db, numbered('flow', 3));
    await waitFor(() => asked.length >= 3, { what: 'three requests', timeoutMs: 20_000 });
    expect(asked).toEqual(ids);
  });

  it('W2 counts at the timeout also when it is a failure', async () => {
    await startRelay(db, {
      destinations: { failing: await hook(half(422), { timeoutMs: 2000, terminalCodes: [422] }) },
    });
    const id = await sendOne(db, { topic: 'failing' });
    await untilEnded(db, 'failing');
    expect(await attemptsOf(db, id, 'failing')).toMatchObject([
      { state: 'failed', error_code: 'http_status', remote_code: '422' },
    ]);
  });

  it('M12 W2 counts when the relay stops', async () => {
    let begun = 0;
    const relay = await startRelay(db, {
      destinations: {
        stopped: await hook((response) => {
          half(200)(response);
          begun += 1;
        }),
      },
      relay: { stopDeadlineMs: 2000 },
    });
    const id = await sendOne(db, { topic: 'stopped' });
    await waitFor(() => begun === 1, { what: 'the answer' });
    await relay.stop();
    expect(await attemptsOf(db, id, 'stopped')).toMatchObject([
      { state: 'dispatched', remote_code: '200' },
    ]);
  });

  it.each<[string, () => unknown, object[]]>([
    ['an outcome', () => delivered('r-1'), [{ state: 'dispatched', reference: 'r-1' }]],
    ['a number', () => 7, [{ state: 'retryable', error_code: 'timeout' }, { state: 'dispatched' }]],
    [
      'a promise',
      () => Promise.resolve(delivered()),
      [{ state: 'retryable', error_code: 'timeout' }, {}],
    ],
    [
      'an error',
      () => {
        throw new Error('knows nothing');
      },
      [{ state: 'retryable', error_code: 'timeout' }, { state: 'dispatched' }],
    ],
    [
      'a promise that fails',
      () => Promise.reject(new Error('knows nothing')),
      [{ state: 'retryable', error_code: 'timeout' }, { state: 'dispatched' }],
    ],
  ])(
    'P9 a handler reports it by what it returns at the abort: %s',
    async (what, known, expected) => {
      const name = `knows-${what.replaceAll(' ', '-')}`;
      await startRelay(db, {
        destinations: {
          [name]: handler(
            async ({ tries }, context) => {
              if (tries > 1) return;
              await new Promise<void>((resolve) => {
                context.onAbort?.(() => {
                  resolve();
                  return known();
                });
              });
            },
            { timeoutMs: 50, retry: { delaysMs: [1] } },
          ),
        },
      });
      const id = await sendOne(db, { topic: name });
      await untilEnded(db, name);
      expect(await attemptsOf(db, id, name)).toMatchObject(expected);
    },
  );
});
