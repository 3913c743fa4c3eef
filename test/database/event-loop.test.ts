// No input of a producer, a tenant or a receiver blocks a relay's event loop for more than 50 ms. Each case is the
// largest or worst that the limits allow. The receiver runs in its own process.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';

import { describe, expect, it, onTestFinished } from 'vitest';

import { batchHandler, handler } from '../../src/destinations/handler.js';
import { paymentGuard } from '../../src/destinations/payment-guard/payment-guard.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import type { Message } from '../../src/index.js';
import { addEndpoint, startEndpointRelay } from '../support/endpoints.js';
import { blockedMs, longestTurnMs, mostBlockedMs } from '../support/event-loop.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { attemptsOf, sendOne, startRelay, untilCount, untilEnded } from '../support/relay.js';
import { loopback } from '../support/relay-partner.js';
import { serveDatabase } from '../support/server.js';
import { collect } from '../support/streams.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

async function startReceiver(): Promise<string> {
  const child = spawn(process.execPath, ['test/support/hostile-receiver.mjs'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  onTestFinished(() => void child.stdin.end());
  const [port] = (await once(child.stdout, 'data')) as [Buffer];
  return `http://127.0.0.1:${Number(String(port))}`;
}

describe('the watchdog', () => {
  it('measures a long block of the event loop, and does not count waiting', async () => {
    const busy = async (): Promise<void> => {
      await sleep(1);
      const { user } = process.cpuUsage();
      while (process.cpuUsage().user - user < 100_000);
    };
    expect(await blockedMs(busy)).toBeGreaterThan(mostBlockedMs);
    expect(await longestTurnMs(() => sleep(200))).toBeLessThan(mostBlockedMs);
  }, 120_000);
});

const mebibyte = 1024 * 1024;
const most = mebibyte - 100;
const fill = (part: string, bytes = most): string =>
  part.repeat(Math.floor(bytes / (Buffer.byteLength(JSON.stringify(part)) - 2)));

const produced: [string, Omit<Message, 'topic'>][] = [
  ['a long text', { payload: fill('x') }],
  ['control characters', { payload: fill('\u0001') }],
  ['backslashes and quotes', { payload: fill('\\"') }],
  ['characters of four bytes', { payload: fill('😀') }],
  ['escaped surrogate pairs', { payloadText: `"${'\\ud83d\\ude00'.repeat(most / 12)}"` }],
  ['many keys', { payload: Object.fromEntries(Array.from({ length: 60_000 }, (_, n) => [n, n])) }],
  [
    'many keys that are words',
    { payload: Object.fromEntries(Array.from({ length: 50_000 }, (_, n) => [`k${n}`, n])) },
  ],
  ['many small lists', { payloadText: `[${Array.from({ length: 200_000 }, () => '[]').join()}]` }],
  [
    'deep nesting',
    {
      payloadText: `[${Array.from({ length: 2000 }, () => `${'['.repeat(199)}${']'.repeat(199)}`).join()}]`,
    },
  ],
  ['long numbers', { payloadText: `[${Array.from({ length: 7 }, () => '1e131071').join()}]` }],
  ['many numbers', { payload: Array.from({ length: 100_000 }, (_, n) => n / 7).slice(0, 45_000) }],
  [
    'headers up to the limit',
    {
      headers: Object.fromEntries(
        Array.from({ length: 100 }, (_, n) => [`x-${n}`, 'v'.repeat(630)]),
      ),
    },
  ],
];

describe('a producer', () => {
  it.each(produced)('P9 cannot block a relay with %s', async (_what, { payload, ...message }) => {
    const url = `${await startReceiver()}/ok`;
    const secrets = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
    await startRelay(db, {
      destinations: {
        hook: webhook({ url, secrets, allowedNetworks: loopback, body: 'envelope' }),
        reads: handler((given) => void [given.payloadText, given.headers]),
      },
      routes: [{ topic: 'produced', to: ['hook', 'reads'] }],
    });
    const { payloadText = JSON.stringify(payload ?? null), headers = {} } = message;
    const values = [payloadText, JSON.stringify(headers)];
    const work = async (): Promise<void> => {
      await db.query(
        `SELECT ${db.quoted}.enqueue('produced', $1::text::jsonb, headers => $2)`,
        values,
      );
      await untilEnded(db, 'hook');
      await untilEnded(db, 'reads');
    };
    expect(await blockedMs(work)).toBeLessThan(mostBlockedMs);
  });

  // without deep nesting: parsing its 400,000 lists alone takes longer, and that is the application's own time
  it.each(produced.filter(([what]) => what !== 'deep nesting'))(
    'M2 is not blocked when it enqueues %s',
    async (_what, message) => {
      const work = () => sendOne(db, { topic: 'enqueued', ...message });
      expect(await blockedMs(work)).toBeLessThan(mostBlockedMs);
    },
  );

  it.each([
    ['half of a surrogate pair', `${'x'.repeat(most)}\ud83d`],
    ['a NUL', `${fill('\\')}\u0000`],
  ])('P9 cannot block the loop with %s, which is refused', async (_what, payload) => {
    const work = async (): Promise<void> => {
      await expect(sendOne(db, { topic: 'produced', payload })).rejects.toThrow('payload');
    };
    expect(await blockedMs(work)).toBeLessThan(mostBlockedMs);
  });
});

const object = (members: string): string => `{${members}, ${payment}}`;
const payment =
  '"amount": "12.34", "currency": "EUR", "rail": "sepa", "destination": "DE89370400440532013000"';
const members = (name: (n: number) => string): string =>
  Array.from({ length: 65_000 }, (_, n) => `"${name(n)}": 0`).join();

/** Eight of them are one claim. */
const batch = 8;

describe('a full batch', () => {
  const sends = async (topic: string, payloadText: string): Promise<void> => {
    await db.query(
      `SELECT ${db.quoted}.enqueue($1, $2::text::jsonb) FROM generate_series(1, ${batch})`,
      [topic, payloadText],
    );
    await untilEnded(db, topic);
  };

  it.each([
    ['many names', object(members((n) => n.toString(36)))],
    ['many names as long as those of the fields', object(members((n) => String(n + 100_000)))],
    ['many names with escapes', object(members((n) => `\\n${n.toString(36)}`))],
    ['a long destination', `{${payment.replace('DE89', fill('4 2', mebibyte / 2))}}`],
  ])('P8 P9 cannot block a relay in its payment guard with %s', async (_what, payload) => {
    const guard = paymentGuard({ rails: { sepa: { destination: 'iban' } } });
    await startRelay(db, {
      destinations: {
        guarded: handler(() => {}, { guard }),
        'guarded-batch': batchHandler(async () => {}, { guard }),
      },
    });
    expect(await blockedMs(() => sends('guarded', payload))).toBeLessThan(mostBlockedMs);
    expect(await blockedMs(() => sends('guarded-batch', payload))).toBeLessThan(mostBlockedMs);
  });

  const payloads = [fill('x'), fill('\\"'), fill('😀')].map((text) => JSON.stringify(text));

  it.each(['payload', 'envelope', 'cloudevents-structured'] as const)(
    'P9 does not block a relay that sends it as %s',
    async (body) => {
      const url = `${await startReceiver()}/ok`;
      const secrets = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
      await startRelay(db, {
        destinations: { hook: webhook({ url, secrets, allowedNetworks: loopback, body }) },
      });
      for (const payload of payloads)
        expect.soft(await blockedMs(() => sends('hook', payload))).toBeLessThan(mostBlockedMs);
    },
  );

  it('P9 does not block a relay that hands it to a handler', async () => {
    await startRelay(db, {
      destinations: {
        one: handler(({ payloadText }) => void payloadText),
        all: batchHandler((messages) =>
          Promise.resolve(void messages.map((given) => given.payloadText)),
        ),
      },
    });
    for (const topic of ['one', 'all'])
      for (const payload of payloads)
        expect
          .soft(await blockedMs(() => sends(topic, payload)), topic)
          .toBeLessThan(mostBlockedMs);
  });
});

describe('a reader', () => {
  it.each(produced)('of the log is not blocked by %s', async (_what, message) => {
    const { payloadText = JSON.stringify(message.payload ?? null) } = message;
    const collected = await collect(db, { from: 'now' });
    const work = async (): Promise<void> => {
      const before = collected.messages.length;
      await db.query(
        `SELECT ${db.quoted}.enqueue('read', $1::text::jsonb) FROM generate_series(1, ${batch})`,
        [payloadText],
      );
      await untilCount(collected.messages, before + batch, 'messages');
    };
    expect(await blockedMs(work)).toBeLessThan(mostBlockedMs);
  });

  it.each(produced)('of the HTTP API does not block it with %s', async (what, message) => {
    const { payloadText = JSON.stringify(message.payload ?? null), headers = {} } = message;
    const tenantId = what.replaceAll(' ', '-');
    const { rows } = await db.query<{ id: string }>(
      `SELECT (${db.quoted}.enqueue('shown', $1::text::jsonb, headers => $2, tenant_id => $3)).id
         FROM generate_series(1, ${batch})`,
      [payloadText, JSON.stringify(headers), tenantId],
    );
    const server = await serveDatabase(db, {
      config: { server: { searchablePayloadFields: ['orderId'] } },
    });
    const token = await server.token('read');
    const read = async (path: string): Promise<void> => {
      // the text is not parsed here: that would be the test's own time
      const answer = await fetch(server.url + path, {
        headers: { authorization: `Bearer ${token}` },
      });
      expect(answer.status).toBe(200);
      for await (const chunk of answer.body ?? []) void chunk;
    };
    for (const path of [
      `/api/messages?tenantId=${tenantId}`,
      `/api/messages?tenantId=${tenantId}&payload.orderId=4711`,
      `/api/messages/${rows[0]?.id}`,
      `/api/messages/${rows[0]?.id}/payload`,
    ])
      expect.soft(await blockedMs(() => read(path)), path).toBeLessThan(mostBlockedMs);
  });
});

/**
 * Twenty headers with eight kilobytes together, and an address of two kilobytes: the most that a tenant can configure.
 */
const largestEndpoint = (url: string) => ({
  url: `${url}?${'a=%2F&'.repeat(300)}`,
  headers: Object.fromEntries(
    Array.from({ length: 20 }, (_, n) => [`x-secret-${n}`, `${n}-${'aB3$'.repeat(95)}`]),
  ),
});

describe('a tenant', () => {
  it('W2 cannot block the loop with the largest endpoint', async () => {
    const url = `${await startReceiver()}/ok`;
    await startEndpointRelay(db);
    const topics = Array.from({ length: 99 }, (_, n) => `t${n}.${'a'.repeat(240)}.*`);
    let count = 0;
    const work = async (): Promise<void> => {
      const topic = `tenant.${(count += 1)}`;
      const { name } = await addEndpoint(db, {
        ...largestEndpoint(url),
        topics: [...topics, topic],
      });
      await sendOne(db, { topic });
      await untilEnded(db, name);
    };
    expect(await blockedMs(work)).toBeLessThan(mostBlockedMs);
  });
});

describe('a receiver', () => {
  it.each([
    'long-body',
    'many-headers',
    'charset',
    'invalid-utf8',
    'drip',
    'echo',
    'nearly-echo',
    'backslashes',
    'percents',
    'entities',
  ])('W2 cannot block the loop with its response: %s', async (answer) => {
    const url = `${await startReceiver()}/${answer}`;
    await startRelay(db, {
      destinations: {
        [answer]: webhook({
          ...largestEndpoint(url),
          secrets: `whsec_${Buffer.alloc(32, 7).toString('base64')}`,
          allowedNetworks: loopback,
          timeoutMs: 1000,
          retry: { maxAttempts: 1 },
        }),
      },
    });
    const work = async (): Promise<void> => {
      const id = await sendOne(db, { topic: answer });
      await waitFor(async () => (await attemptsOf(db, id, answer)).length === 1, {
        what: 'the attempt',
        timeoutMs: 20_000,
      });
      expect(only(await attemptsOf(db, id, answer))).toMatchObject({ state: 'failed' });
    };
    expect(await blockedMs(work)).toBeLessThan(mostBlockedMs);
  });
});
