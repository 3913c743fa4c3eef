// The API as clients use it: what each route answers, and what it changes in the database.

import { describe, expect, it } from 'vitest';

import { describedRoutes } from '../support/api-routes.js';
import { setKey, testKey } from '../support/endpoints.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import type { Ask } from '../support/server.js';
import { settle } from '../support/settling.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase({ allPartitions: true });

async function operator(): Promise<Ask> {
  return (await serveDatabase(db)).as('operate');
}

/** Creates this many dead letters with this code. */
async function kill(queue: Queue, count: number, errorCode: string): Promise<string[]> {
  const ids = await queue.enqueue(count);
  const claim = await queue.claim({ limit: count });
  await settle(
    db,
    claim,
    claim.ids.map((id) => ({ id, outcome: 'reject' as const, errorCode })),
  );
  return ids;
}

/** A valid value of a parameter that names nothing that exists. */
function unknownValue(
  name: string,
  { type, format, enum: words }: Record<string, unknown>,
): unknown {
  if (Array.isArray(words)) return words[0];
  if (format === 'uuid') return '01a1de74-bca1-759a-ad30-c5d7fa53243b';
  if (format === 'date-time') return '2026-01-31T08:00:00Z';
  if (format === 'uri') return 'https://example.com/';
  if (type === 'array') return ['nothing'];
  if (type === 'integer') return 999_999;
  if (type === 'boolean') return true;
  return name === 'body' ? {} : 'nothing';
}

describe('messages', () => {
  it('W5 are listed page by page, by filters of the address', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(5);
    const ask = await operator();
    const first = await ask('GET', `/api/messages?topic=${queue.topic}&limit=3`);
    expect(first.body['messages']).toMatchObject(
      ids
        .slice(2)
        .toReversed()
        .map((messageId) => ({ messageId, status: 'pending' })),
    );
    const second = await ask(
      'GET',
      `/api/messages?topic=${queue.topic}&limit=3&next=${String(first.body['next'])}`,
    );
    expect(second.body).toMatchObject({
      messages: ids
        .slice(0, 2)
        .toReversed()
        .map((messageId) => ({ messageId })),
      next: null,
    });
  });

  it.each([
    ['limit=0', 'limit is "0": give a whole number from 1 to 500'],
    ['status=lost', 'status is "lost": give pending, retrying'],
    ['from=soon', 'from is "soon": give a time such as'],
    ['failedFrom=-271821-04-20T00:00:00Z', 'failedFrom is "-271821-04-20T00:00:00Z": give a time'],
    ['colour=red', 'colour is not a parameter here: use id, status, destination'],
    ['next=x', 'next is "x": pass next from the previous page'],
    ['topic=', 'topic is "": give text'],
    ['topic=a&topic=b', 'topic is given 2 times: give it once'],
  ])('W5 %s is refused with the reason', async (query, words) => {
    const ask = await operator();
    const { status, body } = await ask('GET', `/api/messages?${query}`);
    expect(status).toBe(400);
    expect(body['error']).toContain(words);
  });

  it('W5 a page that begins at a forged place is refused in our own words', async () => {
    const ask = await operator();
    for (const [list, place] of [
      ['unrouted', ['unrouted', ['nonsense'], 0]],
      ['pending', ['lanes', ['2147483648', '1', '1'], 1]],
      ['pending', ['lanes', ['1', '9223372036854775808', '1'], 1]],
      ['unrouted', ['unrouted', null, -5]],
      ['unrouted', ['unrouted', null, 1e308]],
    ] as const) {
      const next = Buffer.from(JSON.stringify(place)).toString('base64url');
      const { status, body } = await ask('GET', `/api/messages?status=${list}&next=${next}`);
      expect([status, body['error']]).toEqual([
        400,
        `next is "${next}": pass next from the previous page`,
      ]);
    }
  });

  it('W5 W8 one is shown completely, and its payload unchanged', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne({ payload: { big: 'x'.repeat(200_000) } });
    const ask = await operator();
    const { body } = await ask('GET', `/api/messages/${id}`);
    expect(body).toMatchObject({
      id,
      topic: queue.topic,
      payloadBytes: 200_011,
      deliveries: [{ destination: queue.name, status: 'pending', retrying: false, tries: 0 }],
    });
    const found = await ask('GET', `/api/messages?id=${id}`);
    expect(found.body).toMatchObject({ messages: [{ messageId: id }], next: null });
    expect(body['payloadText']).toHaveLength(100_000);
    const payload = await ask('GET', `/api/messages/${id}/payload`);
    expect(payload.body).toEqual({ big: 'x'.repeat(200_000) });
    expect(payload.headers.get('content-disposition')).toContain(`${id}.json`);
    expect((await ask('GET', '/api/messages/nonsense')).status).toBe(400);
  });

  it('W5 retry now makes a pending message due, and retries a dead one', async () => {
    const queue = await makeQueue(db);
    const waiting = await queue.enqueueOne({ delayMs: 3_600_000 });
    const [dead = ''] = await kill(queue, 1, 'no');
    const ask = await operator();
    expect((await ask('POST', `/api/messages/${waiting}/retry`, {})).body).toEqual({
      retried: 0,
      madeDue: 1,
    });
    expect(
      (await ask('POST', `/api/messages/${dead}/retry`, { destination: queue.name })).body,
    ).toEqual({ retried: 1, madeDue: 0 });
    expect((await queue.claim()).ids.toSorted()).toEqual([waiting, dead].toSorted());
  });

  it('W5 delete cancels a pending message and discards a dead one, with a record of the actor', async () => {
    const queue = await makeQueue(db);
    const [dead = ''] = await kill(queue, 1, 'no');
    const waiting = await queue.enqueueOne();
    const ask = await operator();
    expect((await ask('POST', `/api/messages/${waiting}/delete`, {})).body).toEqual({
      cancelled: 1,
      discarded: 0,
    });
    expect((await ask('POST', `/api/messages/${dead}/delete`, {})).body).toEqual({
      cancelled: 0,
      discarded: 1,
    });
    for (const id of [waiting, dead])
      expect(await queue.status(id)).toMatchObject({ status: 'discarded' });
    const { body } = await ask('GET', '/api/audit?limit=2');
    expect(body['actions']).toMatchObject([
      {
        action: 'discard_dead_letters',
        count: '1',
        actor: expect.stringMatching(/^api:operate-/) as string,
      },
      { action: 'cancel', count: '1', actor: expect.stringMatching(/^api:operate-/) as string },
    ]);
  });
});

describe('dead letters', () => {
  it('W5 M13 are grouped by cause', async () => {
    const queue = await makeQueue(db);
    await kill(queue, 3, 'a');
    await kill(queue, 2, 'b');
    const [noCode] = await kill(queue, 1, 'c');
    await db.query(`UPDATE ${db.quoted}.dead_letters SET error_code = NULL WHERE message_id = $1`, [
      noCode,
    ]);
    const address = `/api/dead-letters/groups?destination=${queue.name}`;
    const { body } = await (await operator())('GET', address);
    expect(body['groups']).toMatchObject([
      { cause: 'a', errorCode: 'a', count: 3, destination: queue.name, destinations: 1 },
      { cause: 'b', errorCode: 'b', count: 2 },
      { cause: 'unknown', errorCode: null, count: 1, isExact: true },
    ]);
  });

  it('W5 a plan counts and changes nothing; the job does what was planned, and no more', async () => {
    const queue = await makeQueue(db);
    const ids = await kill(queue, 12, 'busy');
    await kill(queue, 2, 'other');
    const ask = await operator();
    const wanted = { action: 'discard', destination: queue.name, errorCode: 'busy' };
    const plan = await ask('POST', '/api/dead-letters/plan', wanted);
    expect(plan.body).toMatchObject({ count: 12, atLeast: false });
    expect(plan.body['sample']).toHaveLength(5);
    expect(await queue.deadLetters()).toHaveLength(14);
    // later dead letters were not planned
    const [later] = await kill(queue, 1, 'busy');
    const { deadBefore } = plan.body;
    const started = await ask('POST', '/api/dead-letters/jobs', { ...wanted, deadBefore });
    expect(started.body).toMatchObject({ planned: 12, action: 'discard' });
    const job = await waitFor(
      async () => {
        const { body } = await ask('GET', `/api/dead-letters/jobs/${String(started.body['id'])}`);
        return body['state'] === 'running' ? undefined : body;
      },
      { what: 'the job' },
    );
    expect(job).toMatchObject({ state: 'done', done: 12, error: null });
    const left = (await queue.deadLetters()).map((letter) => letter['message_id'] as string);
    expect(left).toContain(later);
    expect(left).toHaveLength(3);
    expect(left).not.toContain(ids[0]);
    expect((await ask('GET', '/api/dead-letters/jobs')).body['jobs']).toHaveLength(1);
  });

  it('W5 a job can be stopped, and the changes already made are kept', async () => {
    const queue = await makeQueue(db);
    for (let part = 0; part < 3; part += 1) await kill(queue, 1000, 'many');
    const ask = await operator();
    const wanted = { action: 'discard', destination: queue.name };
    const { body: plan } = await ask('POST', '/api/dead-letters/plan', wanted);
    expect(plan['count']).toBe(3000);
    // the first transaction of the job waits for this one
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(
      `SELECT FROM ${db.quoted}.dead_letters WHERE destination_id = $1 ORDER BY dead_at, message_id LIMIT 1 FOR UPDATE`,
      [queue.id],
    );
    const { body: job } = await ask('POST', '/api/dead-letters/jobs', {
      ...wanted,
      deadBefore: plan['deadBefore'],
    });
    const address = `/api/dead-letters/jobs/${String(job['id'])}`;
    expect((await ask('DELETE', address)).body).toMatchObject({ state: 'cancelled' });
    await client.query('COMMIT');
    await waitFor(async () => (await queue.deadLetters()).length <= 2000, {
      what: 'the batch in flight',
    });
    expect((await ask('GET', address)).body).toMatchObject({ state: 'cancelled' });
    expect(await queue.deadLetters()).toHaveLength(2000);
  });

  it('W5 retry failed makes everything due that waits for a retry', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(4);
    const claim = await queue.claim();
    await settle(
      db,
      claim,
      claim.ids.map((id) => ({ id, outcome: 'retry' as const, retryAfterMs: 3_600_000 })),
    );
    const ask = await operator();
    expect((await ask('POST', '/api/retrying/retry', { destination: queue.name })).body).toEqual({
      madeDue: 4,
    });
    expect((await queue.claim()).ids).toHaveLength(4);
    expect((await ask('POST', '/api/retrying/retry', { destination: 'nowhere' })).status).toBe(404);
  });
});

describe('operations', () => {
  it('W5 blocked keys are listed with what blocks them, and unblocked', async () => {
    const queue = await makeQueue(db, { whenDead: 'block' });
    const [head = ''] = await queue.enqueue(3, { key: 'k', tenantId: 'acme' });
    const claim = await queue.claimOne();
    await settle(db, claim, [{ id: head, outcome: 'reject', errorCode: 'no' }]);
    await db.query(
      `SELECT ${db.quoted}.wake_lanes(d, 100) FROM ${db.quoted}.destinations d WHERE id = $1`,
      [queue.id],
    );
    const ask = await operator();
    const { body } = await ask('GET', `/api/keys?destination=${queue.name}`);
    expect(body).toMatchObject({
      keys: [{ key: 'k', tenantId: 'acme', messageId: head, errorCode: 'no', waiting: 2 }],
      next: null,
    });
    const skip = () => ask('POST', `/api/keys/${head}/skip`, { destination: queue.name });
    expect((await skip()).body).toEqual({ changed: 1 });
    expect((await skip()).status).toBe(409);
    expect((await queue.claim()).ids).toHaveLength(2);
  });

  it('W5 destinations are paused and resumed', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(1);
    const ask = await operator();
    await ask('POST', `/api/destinations/${queue.name}/pause`, {});
    expect((await queue.claim()).ids).toEqual([]);
    const { body } = await ask('GET', '/api/destinations');
    expect(
      (body['destinations'] as { name: string }[]).find(({ name }) => name === queue.name),
    ).toMatchObject({
      paused: true,
      pausedBy: expect.stringMatching(/^api:operate-/) as string,
      waiting: 1,
    });
    await ask('POST', `/api/destinations/${queue.name}/resume`, {});
    expect((await queue.claim()).ids).toHaveLength(1);
    expect((await ask('POST', '/api/destinations/nowhere/pause', {})).status).toBe(404);
  });

  it('P14 the state of the database is shown', async () => {
    const { body } = await (await operator())('GET', '/api/database');
    expect(body).toMatchObject({ schema: db.schema, partitionDaysAhead: 60 });
    const tables = body['tables'] as { table: string; partitions: number; bytes: string }[];
    expect(tables.find(({ table }) => table === 'messages')?.partitions).toBeGreaterThan(60);
    expect(Number(tables.find(({ table }) => table === 'deliveries')?.bytes)).toBeGreaterThan(0);
  });

  it('W5 something unknown is reported as not found', async () => {
    const ask = await operator();
    expect(await ask('GET', '/api/nothing')).toMatchObject({
      status: 404,
      body: { error: '/api/nothing is not here' },
    });
    expect((await ask('POST', '/api/health', {})).status).toBe(404);
  });

  it('W5 the description in OpenAPI names every route with its scope', async () => {
    const { body } = await (await operator())('GET', '/api/openapi.json');
    expect(body['openapi']).toBe('3.1.0');
    const paths = body['paths'] as Record<string, Record<string, { description: string }>>;
    expect(paths['/api/messages/{id}/retry']?.['post']?.description).toContain('scope operate');
    expect(paths['/api/messages']?.['get']?.description).toContain('scope read');
  });

  it.each(describedRoutes().map((route) => [`${route.method} ${route.path}`, route] as const))(
    'W5 %s answers what its description says, and 404 for something unknown if it says so',
    async (_title, { method, path, parameters, returns, errors = {} }) => {
      setKey(testKey);
      const ask = await operator();
      const unknown = (name: string) => unknownValue(name, parameters[name]?.schema ?? {});
      const query = Object.entries(parameters)
        .filter(
          ([name, { in: place, required }]) => place === 'query' && (required || name === 'name'),
        )
        .map(([name]) => `${name}=${String(unknown(name))}`);
      const address = `${path.replaceAll(/\{(\w+)\}/g, (_all, name: string) => String(unknown(name)))}?${query.join('&')}`;
      const inBody = Object.entries(parameters).filter(
        ([name, { in: place, required }]) =>
          place === 'body' &&
          (required || ['destination', 'all', 'shadow', 'url', 'tenantId'].includes(name)),
      );
      const body = Object.fromEntries(inBody.map(([name]) => [name, unknown(name)]));
      const answer = await ask(method, address, method === 'GET' ? undefined : body);
      expect(answer.status, JSON.stringify(answer.body)).toBe(404 in errors ? 404 : 200);
      if (answer.status !== 200) return;
      const named = [...returns.matchAll(/`(\w+)`/g)].map((match) => match[1] ?? '');
      expect(Object.keys(answer.body)).toEqual(expect.arrayContaining(named));
    },
  );
});

it('W7 frequent requests share one query, and a new one is made after an action', async () => {
  const queue = await makeQueue(db);
  const ask = await (await serveDatabase(db, { sharedForMs: 3_600_000 })).as('operate');
  const isPaused = async () => {
    const { body } = await ask('GET', '/api/destinations');
    const all = body['destinations'] as { name: string; paused: boolean }[];
    return all.find(({ name }) => name === queue.name)?.paused;
  };
  const waiting = async () => {
    const { body } = await ask('GET', '/healthz');
    return (body['counts'] as Record<string, number>)['waiting'] ?? 0;
  };
  expect(await isPaused()).toBe(false);
  const before = await waiting();
  await queue.enqueue(3);
  expect(await waiting()).toBe(before);
  await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [queue.name]);
  expect(await isPaused()).toBe(false);
  await ask('POST', `/api/destinations/${queue.name}/pause`);
  expect(await isPaused()).toBe(true);
  expect(await waiting()).toBe(before + 3);
});
