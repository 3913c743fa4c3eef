// The list of destinations and the detail of one, over HTTP: problems first, page by page, and the numbers of a
// destination from its statistics, its attempts and the declarations of relays.

import { describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import { readFirstDeaths } from '../../src/listing/first-deaths.js';
import { makeDead, makeRetrying } from '../support/letters.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { pagesOf } from '../support/pages.js';
import { testDatabase } from '../support/postgres.js';
import { sendOne, startRelay } from '../support/relay.js';
import { loopback, serve } from '../support/relay-partner.js';
import { serveDatabase } from '../support/server.js';
import type { Ask } from '../support/server.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

type Listed = { destinations: { name: string }[]; next: string | null };

async function reader(): Promise<Ask> {
  return (await serveDatabase(db)).as('read');
}

/** The names of all pages. */
async function namesOf(ask: Ask, query: string): Promise<string[]> {
  const names: string[] = [];
  for (let next: string | null = ''; next !== null;) {
    const { status, body } = await ask(
      'GET',
      `/api/destinations?${query}&next=${next}`.replace(/&next=$/, ''),
    );
    expect([status, body['error']]).toEqual([200, undefined]);
    const page = body as unknown as Listed;
    names.push(...page.destinations.map(({ name }) => name));
    ({ next } = page);
  }
  return names;
}

/** As a relay counts them. */
async function counted(
  queue: Queue,
  { delivered = 0, retried = 0, died = 0, agoSeconds = 20 },
): Promise<void> {
  await db.query(
    `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
     VALUES (date_bin('10 seconds', now() - $5 * interval '1 second', 'epoch'), $1, $2, $3, $4)`,
    [queue.id, delivered, retried, died, agoSeconds],
  );
}

describe('the list of destinations', () => {
  it('W5 has those with problems first, the most urgent of them at the top, in pages of any size', async () => {
    const paused = await makeQueue(db);
    const dead = await makeQueue(db);
    const failing = await makeQueue(db);
    const left = await makeQueue(db);
    const broken = await makeQueue(db);
    const calm = await makeQueue(db);
    await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [paused.name]);
    const pausedAndBroken = await makeQueue(db);
    await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [pausedAndBroken.name]);
    await makeDead(dead, 2, 'gone');
    await counted(failing, { delivered: 1, retried: 2 });
    await counted(calm, { delivered: 2, retried: 1 });
    await left.enqueue(1);
    await db.query(`UPDATE ${db.quoted}.destinations SET configured = false WHERE id = $1`, [
      left.id,
    ]);
    await db.query(
      `INSERT INTO ${db.quoted}.relays (id, name, version, configuration, destinations, started_at, heartbeat_at, breakers)
       SELECT gen_random_uuid(), 'r', '0.2.0', 'c', '{}', now(), now(), jsonb_object_agg(n, '{"state": "open", "since": "2026-01-01T00:00:00Z", "failures": 3}'::jsonb)
         FROM unnest($1::text[]) n`,
      [[broken.name, pausedAndBroken.name]],
    );
    const ask = await reader();
    const all = await namesOf(ask, 'limit=500');
    expect(all).toEqual([
      ...[broken, left, failing, dead, paused, pausedAndBroken].map(({ name }) => name),
      ...all.slice(6).toSorted(),
    ]);
    expect(all).toContain(calm.name);
    for (const limit of [1, 2, 3]) expect(await namesOf(ask, `limit=${limit}`)).toEqual(all);
    const problems = {
      breaker: [broken, pausedAndBroken],
      unconfigured: [left],
      failing: [failing],
      dead: [dead],
      paused: [paused, pausedAndBroken],
    };
    for (const [problem, queues] of Object.entries(problems))
      expect([problem, await namesOf(ask, `problem=${problem}&order=name`)]).toEqual([
        problem,
        queues.map(({ name }) => name).toSorted(),
      ]);
    expect(await namesOf(ask, 'limit=2&order=name')).toEqual(all.toSorted());
    await db.query(`DELETE FROM ${db.quoted}.relays`);
  });

  it('W5 is sorted by what waits and by dead letters, the most first, page by page', async () => {
    const [few, many] = [await makeQueue(db), await makeQueue(db)];
    await few.enqueue(2);
    await many.enqueue(5);
    await makeDead(few, 4, 'no');
    const ask = await reader();
    const waiting = await namesOf(ask, 'order=waiting&limit=1');
    expect(waiting.slice(0, 2)).toEqual([many.name, few.name]);
    expect(waiting.toSorted()).toEqual(await namesOf(ask, 'order=name'));
    const dead = await namesOf(ask, 'order=dead&limit=2');
    expect(dead[0]).toBe(few.name);
    expect(new Set(dead).size).toBe(dead.length);
    expect(dead).toHaveLength(waiting.length);
  });

  it('W5 is searched by text in the name, in upper or lower case', async () => {
    await db.query(
      `SELECT ${db.quoted}.define_destination(n, 'test') FROM unnest('{Crm-Berlin,crm_100,billing}'::text[]) n`,
    );
    const ask = await reader();
    expect(await namesOf(ask, 'search=CRM&order=name')).toEqual(['Crm-Berlin', 'crm_100']);
    expect(await namesOf(ask, 'search=_&origin=database')).toEqual([]);
  });

  it('W5 refuses a place of another list, with the remedy', async () => {
    const ask = await reader();
    expect(await ask('GET', '/api/destinations?next=nonsense')).toMatchObject({
      status: 400,
      body: { error: 'next is "nonsense": pass next from the previous page' },
    });
    expect((await ask('GET', '/api/destinations?problem=bad')).body['error']).toBe(
      'problem is "bad": give breaker, unconfigured, failing, dead, paused',
    );
  });
});

describe('the detail of a destination', () => {
  it('W5 has the address and the settings that a relay declares, and no secret', async () => {
    const { url } = await serve((_request, response) => response.writeHead(503).end('later'));
    await startRelay(db, {
      application: 'shop',
      version: '1.2',
      destinations: {
        'detail-crm': webhook({
          url: new URL('/hooks/aB3dE6gH9jK2?key=geheim', url).href,
          headers: { authorization: 'Bearer geheim' },
          secrets: 'whsec_Z2VoZWltZ2VoZWltZ2VoZWltZ2VoZWlt',
          allowedNetworks: loopback,
          concurrency: 7,
          rate: { perSecond: 5, burst: 9 },
          breaker: { failures: 4 },
          retry: { maxAttempts: 3, baseMs: 60_000, maxMs: 90_000 },
        }),
      },
    });
    const id = await sendOne(db, { topic: 'detail-crm', payload: {} });
    const ask = await reader();
    const detail = await waitFor(
      async () => {
        const { body } = await ask('GET', '/api/destinations/detail-crm');
        const { tries } = (body['sample'] ?? { tries: 0 }) as { tries: number };
        // relays write what they have counted later than the try itself
        return tries > 0 && body['failingSince'] !== null ? body : undefined;
      },
      { what: 'the first try, and its count', timeoutMs: 30_000 },
    );
    const { origin } = new URL(url);
    expect(detail).toMatchObject({
      owners: [{ name: 'shop', versions: ['1.2'] }],
      settings: {
        retryBaseMs: 60_000,
        retryMaxMs: 90_000,
        retryDelaysMs: null,
        fairness: 'none',
        relay: {
          address: [{ name: 'url', value: `${origin}/hooks/[hidden]?key=[hidden]` }],
          concurrency: 7,
          burst: 9,
          mode: 'deliver',
          breaker: { failures: 4 },
        },
      },
      routes: [{ topic: 'detail-crm', namespace: null, tenantId: null, owner: 'shop' }],
      failingSince: expect.any(String) as string,
      lastError: { errorCode: 'http_status', remoteCode: '503', lastMessageId: id },
      sample: { tries: 1, errors: [{ errorCode: 'http_status', remoteCode: '503', count: 1 }] },
      durations: { count: 1 },
      deliveryTimes: { count: 0 },
    });
    expect(JSON.stringify(detail)).not.toMatch(/geheim|aB3dE6gH9jK2|Z2VoZWlt/);
  });

  it('W5 relays that differ only in what is shown count as equal', async () => {
    const config = (concurrency: number) => ({
      application: 'pair',
      destinations: { 'detail-pair': handler(() => undefined, { concurrency }) },
    });
    await startRelay(db, config(1));
    const second = await startRelay(db, config(2));
    const { rows } = await db.query<{ configuration: string }>(
      `SELECT DISTINCT configuration FROM ${db.quoted}.relays WHERE application = 'pair'`,
    );
    expect(rows).toHaveLength(1);
    await second.stop();
  });

  it('W5 counts the newest tries by code, and the times of deliveries, of this destination alone', async () => {
    const [queue, other] = [await makeQueue(db), await makeQueue(db)];
    await makeRetrying(queue, 3);
    await makeDead(queue, 2, 'gone');
    await makeDead(other, 4, 'gone');
    // relays count a try up to ten seconds later: two slices must not find it twice
    await counted(queue, { retried: 3, died: 2, agoSeconds: -10 });
    await counted(queue, { retried: 1, agoSeconds: 0 });
    const ask = await reader();
    const { body } = await ask('GET', `/api/destinations/${queue.name}`);
    expect(body).toMatchObject({
      dead: 2,
      retrying: 3,
      lastError: { errorCode: 'gone', lastError: 'refused' },
      sample: {
        hours: 24,
        tries: 5,
        errors: [
          { errorCode: 'busy', remoteCode: null, count: 3, lastError: 'try later' },
          { errorCode: 'gone', count: 2, lastMessageId: expect.any(String) as string },
        ],
      },
    });
  });

  it('W5 says since when tries fail with a code, and since when there is a sample of tries', async () => {
    const queue = await makeQueue(db);
    const [first, last] = [await makeDead(queue, 2, 'gone'), await makeDead(queue, 1, 'gone')];
    await makeDead(queue, 1, 'late');
    // an earlier try of the first two
    await db.query(
      `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at, error_code)
       SELECT a.message_id, a.destination_id, 9, 9, a.state, a.ended_at - interval '1 minute', a.error_code
         FROM ${db.quoted}.attempts a WHERE a.message_id = ANY ($1)`,
      [first],
    );
    await counted(queue, { died: 2, agoSeconds: 60 });
    await counted(queue, { died: 2, agoSeconds: -10 });
    await counted(queue, { died: 0, retried: 1, agoSeconds: 0 });
    const ask = await reader();
    const { body } = await ask('GET', `/api/destinations/${queue.name}`);
    const { rows } = await db.query<{ ended_at: Date }>(
      `SELECT ended_at FROM ${db.quoted}.attempts WHERE destination_id = $1 ORDER BY ended_at`,
      [queue.id],
    );
    const times = rows.map(({ ended_at: at }) => at.toISOString());
    const [earliest, latest] = [times[0], times.at(-2)];
    expect(body['sample']).toMatchObject({
      tries: 6,
      from: earliest,
      errors: [
        { errorCode: 'gone', count: 5, firstAt: earliest, lastAt: latest, lastMessageId: last[0] },
        { errorCode: 'late', count: 1 },
      ],
    });
  });

  it('W5 names the oldest dead letter with the codes of an error, of this destination alone', async () => {
    const [queue, other] = [await makeQueue(db), await makeQueue(db)];
    const [oldest = '', newer = '', answered = ''] = await makeDead(queue, 3, 'gone');
    const [foreign = ''] = await makeDead(other, 1, 'gone');
    await makeRetrying(queue, 1);
    await counted(queue, { retried: 1, died: 3, agoSeconds: 0 });
    const died = (id: string, ago: string, remoteCode: string | null) =>
      db.query(
        `UPDATE ${db.quoted}.dead_letters SET dead_at = now() - $2::interval, remote_code = $3 WHERE message_id = $1`,
        [id, ago, remoteCode],
      );
    await died(newer, '1 hour', null);
    await died(oldest, '3 days', null);
    await died(answered, '5 days', '500');
    await died(foreign, '9 days', null);
    const { body } = await (await reader())('GET', `/api/destinations/${queue.name}`);
    const { rows } = await db.query<{ dead_at: Date }>(
      `SELECT dead_at FROM ${db.quoted}.dead_letters WHERE message_id = $1`,
      [oldest],
    );
    expect((body['sample'] as { errors: unknown[] }).errors).toMatchObject([
      { errorCode: 'gone', remoteCode: null, firstDeadAt: only(rows).dead_at.toISOString() },
      { errorCode: 'busy', firstDeadAt: null },
    ]);
  });

  it('W5 reads a bounded part of the dead letters for it', async () => {
    const queue = await makeQueue(db);
    await db.query(
      `INSERT INTO ${db.quoted}.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code)
       SELECT gen_random_uuid(), $1, now() - n * interval '1 second', 1, 1, 'exhausted', 'common' FROM generate_series(1, 20000) n`,
      [queue.id],
    );
    await db.query(`ANALYZE ${db.quoted}.dead_letters`);
    const of = (...codes: string[]) =>
      pagesOf(db, (database) =>
        readFirstDeaths(
          database,
          queue.name,
          codes.map((errorCode) => ({ errorCode, remoteCode: null })),
        ),
      );
    const none = await of('rare', 'other');
    expect(none.answer.size).toBe(0);
    expect(none.pages).toBeLessThan(30);
    const common = await of('common');
    expect(common.answer.size).toBe(1);
    expect(common.pages).toBeLessThan(1500);
    await db.query(`DELETE FROM ${db.quoted}.dead_letters WHERE destination_id = $1`, [queue.id]);
  });

  it('W5 has failed since the first failure after the last success', async () => {
    const queue = await makeQueue(db);
    const ask = await reader();
    const since = async () =>
      (await ask('GET', `/api/destinations/${queue.name}`)).body['failingSince'] as string | null;
    await counted(queue, { retried: 1, agoSeconds: 600 });
    await counted(queue, { delivered: 1, retried: 1, agoSeconds: 500 });
    expect(await since()).toBeNull();
    await counted(queue, { retried: 1, agoSeconds: 400 });
    await counted(queue, { died: 1, agoSeconds: 300 });
    const agoSeconds = (Date.now() - Date.parse((await since()) ?? '')) / 1000;
    expect(agoSeconds).toBeGreaterThan(395);
    expect(agoSeconds).toBeLessThan(425);
    await counted(queue, { delivered: 1, agoSeconds: 100 });
    expect(await since()).toBeNull();
  });

  it('W5 without a try in a day, the last error is that of the newest dead letter', async () => {
    const queue = await makeQueue(db);
    const ids = await makeDead(queue, 2, 'gone');
    const { body } = await (await reader())('GET', `/api/destinations/${queue.name}`);
    expect(body).toMatchObject({
      sample: { tries: 0, errors: [] },
      lastError: { errorCode: 'gone' },
    });
    expect(ids).toContain((body['lastError'] as { lastMessageId: string }).lastMessageId);
  });

  it('W5 its counts over time are those of its statistics', async () => {
    const queue = await makeQueue(db);
    await counted(queue, { delivered: 3, retried: 2, died: 1 });
    const { body } = await (
      await reader()
    )('GET', `/api/destinations/${queue.name}/statistics?minutes=10`);
    expect(body).toMatchObject({
      delivered: 3,
      failed: 3,
      died: 1,
      deliveryRate: 0.75,
      successRate: 0.5,
    });
  });

  it('W5 its counts between two moments have the totals of that time', async () => {
    const queue = await makeQueue(db);
    await db.query(
      `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
       SELECT date_bin('10 seconds', statement_timestamp(), 'epoch') - n * interval '1 minute', $1, 3, 2, 1
         FROM generate_series(1, 30) n`,
      [queue.id],
    );
    const ask = await reader();
    const to = Math.floor(Date.now() / 10_000) * 10_000 - 300_000;
    const query = `from=${new Date(to - 600_000).toISOString()}&to=${new Date(to).toISOString()}`;
    const { body } = await ask('GET', `/api/destinations/${queue.name}/statistics?${query}`);
    expect(body).toMatchObject({
      delivered: 30,
      failed: 30,
      retried: 20,
      died: 10,
      deliveryRate: 0.75,
      successRate: 0.5,
      stepSeconds: 10,
    });
    expect(body['points']).toHaveLength(60);
    const wrong = `/api/destinations/${queue.name}/statistics?from=${new Date(to).toISOString()}`;
    expect((await ask('GET', wrong)).status).toBe(400);
    expect((await ask('GET', `/api/destinations/none/statistics?${query}`)).status).toBe(404);
  });

  it('P13 a token of one tenant sees no destination', async () => {
    const queue = await makeQueue(db);
    const ask = await (await serveDatabase(db)).as('read', 'acme');
    for (const path of ['', `/${queue.name}`, `/${queue.name}/statistics`])
      expect([path, (await ask('GET', `/api/destinations${path}`)).status]).toEqual([path, 403]);
  });
});
