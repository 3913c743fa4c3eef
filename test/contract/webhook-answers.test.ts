// The meaning of each response of a receiver, by its status and never by its text, and the part of it that is stored.

import type { ServerResponse } from 'node:http';

import { beforeAll, describe, expect, it } from 'vitest';

import type { WebhookOptions } from '../../src/destinations/webhook/webhook.js';
import type { Outcome } from '../../src/core/outcome.js';
import { serve } from '../support/relay-partner.js';
import { waitFor } from '../support/wait.js';
import { deliver, opened } from '../support/webhook.js';

type Answer = (response: ServerResponse) => void;

async function outcomeOf(
  answer: Answer,
  options: Omit<WebhookOptions, 'url'> = {},
): Promise<Outcome> {
  const { url } = await serve((request, response) => {
    request.resume();
    answer(response);
  });
  return deliver(await opened({ ...options, url }));
}

const status =
  (code: number, headers: Record<string, string> = {}, body = 'what happened'): Answer =>
  (response) =>
    void response.writeHead(code, headers).end(code === 204 ? undefined : body);

describe('the status', () => {
  it.each([200, 201, 202, 299])(
    'W2 W3 %i is delivered, with the status and the beginning of the response',
    async (code) => {
      expect(await outcomeOf(status(code))).toEqual({
        kind: 'delivered',
        remoteCode: String(code),
        response: 'what happened',
      });
    },
  );

  it('W2 W3 of a response without a body is enough', async () => {
    expect(await outcomeOf(status(204))).toEqual({ kind: 'delivered', remoteCode: '204' });
    expect(await outcomeOf(status(200, {}, ''))).toEqual({ kind: 'delivered', remoteCode: '200' });
  });

  it.each([400, 401, 404, 408, 409, 425, 429, 500, 502, 503, 504, 599])(
    'W2 %i is retried, with the status and the beginning of the response',
    async (code) => {
      const outcome = await outcomeOf(status(code));
      expect(outcome).toEqual({
        kind: 'retry',
        code: 'http_status',
        remoteCode: String(code),
        message: expect.stringContaining(`answered ${code}`) as unknown,
        response: 'what happened',
      });
    },
  );

  it('W2 410 pauses the destination, because the receiver wants no later message either', async () => {
    expect(await outcomeOf(status(410))).toEqual({
      kind: 'pause',
      code: 'endpoint_gone',
      remoteCode: '410',
      message: 'the receiver answered 410 Gone',
      response: 'what happened',
    });
  });

  it.each([301, 302, 303, 307, 308])('W2 a redirect (%i) is not followed', async (code) => {
    const visited: (string | undefined)[] = [];
    const { url } = await serve((request, response) => {
      visited.push(request.url);
      request.resume();
      response.writeHead(code, { location: '/elsewhere' }).end();
    });
    const outcome = await deliver(await opened({ url }));
    expect(outcome).toMatchObject({ kind: 'retry', code: 'http_status', remoteCode: String(code) });
    expect(visited).toEqual(['/hook']);
  });

  it('W2 terminal statuses are rejected, all others are still retried', async () => {
    const options = { terminalCodes: [400, 410, 422] };
    for (const code of options.terminalCodes)
      expect(await outcomeOf(status(code), options)).toMatchObject({
        kind: 'reject',
        code: 'http_status',
        remoteCode: String(code),
        response: 'what happened',
      });
    expect(await outcomeOf(status(404), options)).toMatchObject({ kind: 'retry' });
  });

  it('W2 success statuses can be configured, and are then the only ones', async () => {
    const options = { successCodes: [202, 409] };
    for (const code of [202, 409])
      expect(await outcomeOf(status(code), options)).toMatchObject({
        kind: 'delivered',
        remoteCode: String(code),
      });
    expect(await outcomeOf(status(200), options)).toMatchObject({
      kind: 'retry',
      remoteCode: '200',
    });
  });

  it('the last one counts: an interim response is not the response', async () => {
    const early: Answer = (response) => {
      response.writeEarlyHints({ link: '</a>; rel=preload' });
      response.writeProcessing();
      status(500)(response);
    };
    expect(await outcomeOf(early)).toMatchObject({ kind: 'retry', remoteCode: '500' });
  });
});

describe('Retry-After', () => {
  // HTTP dates are in GMT, whatever the local time zone is
  beforeAll(() => {
    const before = process.env['TZ'];
    process.env['TZ'] = 'Asia/Tokyo';
    return () => {
      if (before === undefined) delete process.env['TZ'];
      else process.env['TZ'] = before;
    };
  });

  const date = 'Sun, 15 Nov 2026 12:00:00 GMT';
  const soon = { 'retry-after': 'Sun, 15 Nov 2026 12:01:30 GMT' };

  it.each<[string, Record<string, string>, number]>([
    ['seconds', { 'retry-after': '7' }, 7000],
    ['the date of today', { date, 'retry-after': 'Sun, 15 Nov 2026 12:01:30 GMT' }, 90_000],
    ['the date of RFC 850 in a Date', { date: 'Sunday, 15-Nov-26 12:00:00 GMT', ...soon }, 90_000],
    ['the date of asctime in a Date', { date: 'Sun Nov 15 12:00:00 2026', ...soon }, 90_000],
    [
      'asctime with a one-digit day',
      { date: 'Sun Nov  1 12:00:00 2026', 'retry-after': 'Sun Nov  1 12:01:30 2026' },
      90_000,
    ],
    [
      'a short year that lies ahead',
      { date, 'retry-after': 'Monday, 15-Nov-60 12:00:00 GMT' },
      3_600_000,
    ],
    ['the date of RFC 850', { date, 'retry-after': 'Sunday, 15-Nov-26 12:01:30 GMT' }, 90_000],
    ['the date of asctime', { date, 'retry-after': 'Sun Nov 15 12:01:30 2026' }, 90_000],
    [
      'a clock an hour ahead',
      { date: 'Sun, 15 Nov 2099 12:00:00 GMT', 'retry-after': 'Sun, 15 Nov 2099 12:00:05 GMT' },
      5000,
    ],
    ['more than the cap', { 'retry-after': '86400' }, 3_600_000],
    ['a date beyond the cap', { date, 'retry-after': 'Sun, 15 Nov 2037 12:00:00 GMT' }, 3_600_000],
    ['a large number', { 'retry-after': '9999999999' }, 3_600_000],
    ['a number out of range', { 'retry-after': '9'.repeat(400) }, 3_600_000],
  ])('W2 is honoured by 429 and 503: %s', async (_what, headers, afterMs) => {
    for (const code of [429, 503])
      expect(await outcomeOf(status(code, headers))).toMatchObject({ kind: 'retry', afterMs });
  });

  it('W3 never shortens the retry delay, or a failing receiver would use up all tries', async () => {
    const retry = { delaysMs: [10_000, 600_000] };
    expect(await outcomeOf(status(503, { 'retry-after': '9' }), { retry })).not.toHaveProperty(
      'afterMs',
    );
    expect(await outcomeOf(status(503, { 'retry-after': '11' }), { retry })).toMatchObject({
      afterMs: 11_000,
    });
  });

  it('its cap can be configured', async () => {
    const options = { maxRetryAfterMs: 60_000 };
    expect(await outcomeOf(status(503, { 'retry-after': '86400' }), options)).toMatchObject({
      afterMs: 60_000,
    });
  });

  it.each<[string, Record<string, string>]>([
    ['none', {}],
    ['at once', { 'retry-after': '0' }],
    ['the past', { date, 'retry-after': 'Sun, 15 Nov 2026 11:59:59 GMT' }],
    ['a negative number', { 'retry-after': '-5' }],
    ['a fraction', { 'retry-after': '1.5' }],
    ['words', { 'retry-after': 'in a minute' }],
    ['a date in words that a lenient parser accepts', { date, 'retry-after': 'Nov 16 2026' }],
    ['nothing', { 'retry-after': '' }],
    ['an invalid month', { date, 'retry-after': 'Sun, 15 Nix 2099 12:00:00 GMT' }],
    ['an invalid hour', { date, 'retry-after': 'Sun, 15 Nov 2099 25:00:00 GMT' }],
    ['a date in another zone', { date, 'retry-after': 'Sun, 15 Nov 2099 12:00:00 CET' }],
    ['a date of ISO 8601', { date, 'retry-after': '2099-11-15T12:00:00Z' }],
    ['a short year long past', { date, 'retry-after': 'Monday, 15-Nov-99 12:00:00 GMT' }],
  ])('W2 the retry schedule decides for %s', async (_what, headers) => {
    const outcome = await outcomeOf(status(503, headers));
    expect(outcome).toMatchObject({ kind: 'retry', code: 'http_status' });
    expect(outcome).not.toHaveProperty('afterMs');
  });

  describe('a date without the receiver’s own Date header', () => {
    const forms: [string, (at: Date) => string][] = [
      ['the date of today', (at) => at.toUTCString()],
      ['the date of RFC 850', rfc850],
      ['the date of asctime', asctime],
    ];
    const clocks: [string, string | undefined][] = [
      ['no Date', undefined],
      ['a Date that is none', 'this morning'],
    ];
    const answer =
      (retryAfter: string, clock: string | undefined): Answer =>
      (response) => {
        response.sendDate = false;
        const own = clock === undefined ? {} : { date: clock };
        status(503, { ...own, 'retry-after': retryAfter })(response);
      };
    const cases = forms.flatMap(([form, text]) =>
      clocks.map(([what, clock]) => ({ form, text, what, clock })),
    );

    it.each(cases)('W2 is compared with the local clock: $form, $what', async ({ text, clock }) => {
      const at = new Date(Date.now() + 600_000);
      const outcome = await outcomeOf(answer(text(at), clock));
      const { afterMs = 0 } = outcome as { afterMs?: number };
      // an HTTP date has whole seconds, and the response took a while
      expect(afterMs).toBeGreaterThan(500_000);
      expect(afterMs).toBeLessThanOrEqual(600_000);
    });

    it.each(cases)('W2 is capped: $form, $what', async ({ text, clock }) => {
      const at = new Date(Date.now() + 86_400_000);
      expect(await outcomeOf(answer(text(at), clock))).toMatchObject({ afterMs: 3_600_000 });
    });

    it.each(cases)('W2 is ignored if it is in the past: $form, $what', async ({ text, clock }) => {
      const at = new Date(Date.now() - 600_000);
      expect(await outcomeOf(answer(text(at), clock))).not.toHaveProperty('afterMs');
    });

    it.each(['in a minute', '-5', '2099-11-15', 'Sun, 99 Nov 2099 12:00:00 GMT'])(
      'W2 is ignored if it is invalid: %s',
      async (nonsense) => {
        expect(await outcomeOf(answer(nonsense, undefined))).not.toHaveProperty('afterMs');
      },
    );
  });

  it.each([400, 500, 502, 410])('W2 of another status (%i) is ignored', async (code) => {
    expect(await outcomeOf(status(code, { 'retry-after': '7' }))).not.toHaveProperty('afterMs');
  });
});

describe('the stored response', () => {
  it.each<[NonNullable<WebhookOptions['keepResponses']>, number, object]>([
    ['failures', 200, { kind: 'delivered', remoteCode: '200' }],
    ['failures', 500, { remoteCode: '500', response: 'what happened' }],
    ['all', 200, { kind: 'delivered', remoteCode: '200', response: 'what happened' }],
    ['all', 204, { kind: 'delivered', remoteCode: '204' }],
    ['all', 500, { remoteCode: '500', response: 'what happened' }],
    ['none', 200, { kind: 'delivered', remoteCode: '200' }],
    ['none', 500, { remoteCode: '500' }],
  ])('W3 with keepResponses %s, of a %i', async (keepResponses, code, kept) => {
    const outcome = await outcomeOf(status(code), { keepResponses });
    expect(outcome).toMatchObject(kept);
    expect('response' in outcome).toBe('response' in kept);
    expect(outcome).not.toHaveProperty('message', expect.stringContaining('what happened'));
  });

  it('W3 has the first 4 KiB, and no half character', async () => {
    const outcome = await outcomeOf(status(500, {}, `x${'ż'.repeat(4000)}`));
    expect(outcome).toMatchObject({ response: `x${'ż'.repeat(2047)}` });
  });

  it.each<[number, object]>([
    [200, { kind: 'delivered', response: 'x'.repeat(4096) }],
    [500, { kind: 'retry', code: 'http_status', response: 'x'.repeat(4096) }],
  ])('of an endless body (%i) is its beginning, read up to a bound', async (code, kept) => {
    let sentBytes = 0;
    const { url, closed } = await serveEndlessly(code, (bytes) => (sentBytes += bytes));
    expect(await deliver(await opened({ url }))).toMatchObject(kept);
    await waitFor(closed, { what: 'the connection to be closed' });
    expect(sentBytes).toBeLessThan(32 * 1024 * 1024);
  });

  it('W3 is valid text without control characters, whatever the receiver sent', async () => {
    const bytes = Buffer.from([
      0x00, 0x1b, 0x5b, 0x33, 0x31, 0x6d, 0xff, 0xfe, 0x41, 0x0d, 0x0a, 0x09, 0x42,
    ]);
    const text = Buffer.concat([bytes, Buffer.from('\u202e\u0085\u2066ż🚚')]);
    const outcome = await outcomeOf((response) => void response.writeHead(500).end(text));
    expect(outcome).toMatchObject({ response: '[31m\uFFFD\uFFFDA\n\tBż🚚' });
  });
});

describe('secrets that the receiver sends back', () => {
  const key = Buffer.alloc(32, 9).toString('base64');
  const options = {
    secrets: [`whsec_${key}`],
    headers: {
      authorization: 'Bearer geheim-"token"/1',
      'x-basic': `Basic ${Buffer.from('user:passwort').toString('base64')}`,
      'x-pin': '4711',
      'x-long': '4711-lang',
      'x-short': '1',
      'x-coded': 'top%20secret',
    },
  };
  const echo = (body: string | Buffer): Promise<Outcome> =>
    outcomeOf((response) => void response.writeHead(500).end(body), options);

  it.each([
    ['the whole header', 'Bearer geheim-"token"/1'],
    ['the token', 'geheim-"token"/1'],
    ['the token in JSON', JSON.stringify({ seen: 'geheim-"token"/1' }).slice(9, -2)],
    ['the token in an address', encodeURIComponent('geheim-"token"/1')],
    ['the token as PHP escapes it', 'geheim-\\"token\\"\\/1'],
    ['the token as HTML', 'geheim-&#34;token&quot;&#x2f;1'],
    ['the token with escapes of JSON', 'geheim-\\u0022token\\u0022\\u002F1'],
    ['the secret', `whsec_${key}`],
    ['the secret without its prefix', key],
    ['the password of basic authentication', 'passwort'],
    ['basic authentication', `Basic ${Buffer.from('user:passwort').toString('base64')}`],
    ['a short one', '4711'],
    ['one that begins like it', '4711-lang'],
    ['one that is given in percent-encoding, decoded', 'top secret'],
  ])('W3 are not stored: %s', async (_what, secret) => {
    expect(await echo(`before ${secret} after ${secret}`)).toMatchObject({
      response: 'before [redacted] after [redacted]',
    });
  });

  it('W3 are not stored where the response is nothing else', async () => {
    expect(await echo('4711')).toMatchObject({ response: '[redacted]' });
  });

  it('W3 are not stored: the part of the address behind its host', async () => {
    const { url } = await serve((request, response) => {
      request.resume();
      response.writeHead(404).end(`Cannot POST ${request.url}`);
    });
    const address = new URL('/services/T00001/geheimer-Pfad?token=geheimes%20Wort', url).href;
    expect(await deliver(await opened({ url: address }))).toMatchObject({
      response: 'Cannot POST /[redacted]/T00001/[redacted]?token=[redacted]',
    });
  });

  it('W3 are not stored from a success either', async () => {
    const outcome = await outcomeOf(status(200, {}, `thanks for ${key}`), options);
    expect(outcome).toMatchObject({ kind: 'delivered', response: 'thanks for [redacted]' });
  });

  it('W3 are not stored in part where the stored text ends', async () => {
    const outcome = await echo(`${'x'.repeat(4090)}${key}${'y'.repeat(100)}`);
    expect(outcome).toMatchObject({ response: `${'x'.repeat(4090)}[redacted]` });
  });

  it('W3 the redaction does not move later parts into the stored text', async () => {
    const filler = 'x'.repeat(4096 - 80 * 45 - 3);
    const outcome = await echo(`${`${key} `.repeat(80)}${filler}${key} tail ${key}`);
    expect(outcome).toMatchObject({ response: `${'[redacted] '.repeat(80)}${filler}[redacted]` });
  });

  it('W3 are also found in UTF-16, and where the stored text ends', async () => {
    const before = 'x'.repeat(2040);
    expect(await echo(Buffer.from(`${before}${key}`, 'utf16le'))).toMatchObject({
      response: `${before}[redacted]`,
    });
  });

  it('W3 are not stored where the connection breaks in the middle of them', async () => {
    const outcome = await outcomeOf((response) => {
      response.writeHead(500, { 'content-length': '1000' });
      response.write('seen: geheim-%22tok%2', () => response.destroy());
    }, options);
    expect(outcome).toMatchObject({ response: 'seen: [redacted][cut off]' });
  });

  it('W3 are not in the error message of a response that is not HTTP', async () => {
    const { url } = await serve((request, response) => {
      request.resume();
      response.socket?.end(`HTTP/1.1 500 ${key}\r\n${key} : ${key}\r\n\r\n`);
    });
    const outcome = await deliver(await opened({ ...options, url }));
    expect(outcome).toMatchObject({ kind: 'retry', code: 'answer_invalid' });
    expect(JSON.stringify(outcome)).not.toContain(key);
  });

  it('a value too short to be a secret is not redacted', async () => {
    expect(await echo('1 of 11 items')).toMatchObject({ response: '1 of 11 items' });
  });
});

const names = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

/** `Sunday, 15-Nov-26 12:00:00 GMT` */
function rfc850(at: Date): string {
  const [, day, month, year, time] = at.toUTCString().split(' ');
  return `${names[at.getUTCDay()]}, ${day}-${month}-${year?.slice(2)} ${time} GMT`;
}

/** `Sun Nov 15 12:00:00 2026`; a one-digit day has a space before it. */
function asctime(at: Date): string {
  const [, , month, year, time] = at.toUTCString().split(' ');
  const day = String(at.getUTCDate()).padStart(2);
  return `${names[at.getUTCDay()]?.slice(0, 3)} ${month} ${day} ${time} ${year}`;
}

/** A server that never stops sending. */
async function serveEndlessly(
  code: number,
  onSent: (bytes: number) => void,
): Promise<{ url: string; closed: () => boolean }> {
  const chunk = Buffer.alloc(64 * 1024, 'x');
  let closed = false;
  const { url } = await serve((request, response) => {
    request.resume();
    response.writeHead(code);
    response.on('close', () => (closed = true));
    const pour = (): void => {
      if (closed) return;
      onSent(chunk.length);
      if (response.write(chunk)) setImmediate(pour);
      else response.once('drain', pour);
    };
    pour();
  });
  return { url, closed: () => closed };
}
