// Read-only requests are answered by a replica: which routes are, what a client sees after a change, and that they need
// no more than a standby and the rights of a server. Tested on a real standby whose replay can be paused.

import { describe, expect, it, onTestFinished } from 'vitest';

import { parsePosition } from '../../src/features/replicas/wal-position.js';
import { resolveServerOptions } from '../../src/server/options.js';
import { mayReadReplica } from '../../src/server/route.js';
import { startShardsServer } from '../../src/server/server.js';
import { Metrics } from '../../src/telemetry/metrics.js';
import { describedRoutes } from '../support/api-routes.js';
import { makeDead } from '../support/letters.js';
import { addEndpoint } from '../support/endpoints.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { sendOne } from '../support/relay.js';
import { openReplica, replicatedDatabase } from '../support/replication.js';
import { serveDatabase } from '../support/server.js';
import type { Answer, Ask, TestServer } from '../support/server.js';
import { waitFor } from '../support/wait.js';

const db = replicatedDatabase();

async function serve(): Promise<{ server: TestServer; ask: Ask }> {
  const server = await serveDatabase(db, await openReplica(db));
  return { server, ask: await server.as('operate') };
}

const from = ({ headers }: Answer) => headers.get('waybill-read-from');
const idsIn = ({ body }: Answer) =>
  (body['messages'] as { messageId: string }[]).map(({ messageId }) => messageId);
const cookieOf = ({ headers }: Answer) => headers.get('set-cookie')?.split(';')[0] ?? '';

/** A client that sends back its cookies, as a browser does. */
async function browser(server: TestServer): Promise<Ask> {
  const authorization = `Bearer ${await server.token('operate')}`;
  let cookie = '';
  return async (method, path, body) => {
    const answer = await server.with({ authorization, cookie })(method, path, body);
    cookie = cookieOf(answer) || cookie;
    return answer;
  };
}

async function isPaused(ask: Ask, queue: Queue): Promise<[boolean | undefined, string | null]> {
  const answer = await ask('GET', '/api/destinations');
  const found = (answer.body['destinations'] as { name: string; paused: boolean }[]).find(
    ({ name }) => name === queue.name,
  );
  return [found?.paused, from(answer)];
}

describe('reads', () => {
  it('N9 come from the replica: while it is paused, they show its state and its age', async () => {
    const queue = await makeQueue(db);
    const [old = ''] = await queue.enqueue(1);
    const { ask } = await serve();
    await db.caughtUp();
    await db.pauseReplay();
    const young = await queue.enqueueOne();
    const path = `/api/messages?topic=${queue.topic}`;
    const answer = await ask('GET', path);
    expect([from(answer), idsIn(answer)]).toEqual(['replica', [old]]);
    const { body } = await waitFor(
      async () => {
        const overview = await ask('GET', '/api/overview');
        const { ageMs } = overview.body['source'] as { ageMs: number };
        return ageMs > 2500 && overview;
      },
      { what: 'it to grow old' },
    );
    expect(body['source']).toMatchObject({ from: 'replica', reason: null });
    await db.resumeReplay();
    await waitFor(async () => idsIn(await ask('GET', path)).includes(young), {
      what: 'the new message',
    });
    await waitFor(
      async () => {
        const { source } = (await ask('GET', '/api/overview')).body as {
          source: { ageMs: number };
        };
        return source.ageMs < 2000;
      },
      { what: 'it to be young again' },
    );
  });

  it('what the replica does not find is looked up in the primary', async () => {
    const queue = await makeQueue(db);
    const { ask } = await serve();
    await db.caughtUp();
    await db.pauseReplay();
    const id = await queue.enqueueOne();
    const answer = await ask('GET', `/api/messages/${id}`);
    expect([answer.status, from(answer)]).toEqual([200, 'primary']);
    const unknown = await ask('GET', '/api/messages/019a8f2e-7a31-7c55-9a3b-6f1f2a9d0c11');
    expect(unknown.status).toBe(404);
  });

  it('without a replica none is mentioned', async () => {
    const ask = await (await serveDatabase(db)).as('operate');
    const queue = await makeQueue(db);
    const answer = await ask('GET', '/api/overview');
    expect(answer.body['source']).toBeNull();
    expect(from(answer)).toBeNull();
    const paused = await ask('POST', `/api/destinations/${queue.name}/pause`, {});
    expect(paused.headers.get('waybill-position')).toBeNull();
    expect((await ask('GET', '/metrics')).body['text']).not.toMatch(/^outbox_replica/m);
  });
});

describe('which database a route works on', () => {
  const routes = describedRoutes();
  // written out, so that a route that changes by mistake is noticed
  const onReplica = [
    '/api/messages',
    '/api/messages/{id}',
    '/api/messages/{id}/actions',
    '/api/messages/{id}/payload',
    '/api/messages/{id}/requests/{destination}',
    '/api/dead-letters/groups',
    '/api/overview',
    '/api/health',
    '/api/destinations',
    '/api/destinations/{name}',
    '/api/destinations/{name}/statistics',
    '/api/relays',
    '/api/keys',
    '/api/alerts',
    '/api/audit',
    '/api/catalogue',
    '/api/catalogue/event',
    '/api/endpoints',
    '/api/endpoints/{name}',
    '/api/endpoints/{name}/messages',
    '/api/endpoints/{name}/messages/{id}',
    '/api/endpoints/{name}/statistics',
    '/api/events',
    '/api/flow',
    '/api/reports/destinations',
    '/api/reports/tenants',
    '/api/reports/topics',
    '/api/rollouts',
    '/api/rollouts/{name}',
    '/api/suggestions',
  ];

  it('is the replica for these, and the primary for all others', () => {
    const found = routes.filter(mayReadReplica).map(({ path }) => path);
    expect(found.toSorted()).toEqual(onReplica.toSorted());
    expect(routes.filter(({ method }) => method !== 'GET').some(mayReadReplica)).toBe(false);
  });

  it('every one of these works there, with the rights of a server, without writing', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    await db.query(
      `INSERT INTO ${db.quoted}.rollouts (name, destination_id, shadow_destination_id) VALUES ('slowly', ${queue.id}, ${queue.id})`,
    );
    await addEndpoint(db, { url: 'https://example.com/', topics: ['nowhere'], name: 'slowly' });
    const atEndpoint = await sendOne(db, { topic: 'nowhere' });
    const { ask } = await serve();
    await db.caughtUp();
    for (const path of [...onReplica, '/metrics']) {
      const asked = path.replace(
        'messages/{id}',
        path.includes('{name}') ? `messages/${atEndpoint}` : `messages/${id}`,
      );
      const answer = await ask(
        'GET',
        asked
          .replace('{id}', id)
          .replace('{name}', 'slowly')
          .replace('{destination}', queue.name)
          .replace(/catalogue\/event$/, `$&?topic=${queue.topic}`)
          .replace(/suggestions$/, '$&?text=a'),
      );
      expect([path, answer.status, from(answer)]).toEqual([path, 200, 'replica']);
    }
    for (const path of ['/api/database', '/api/dead-letters/jobs', '/api/replays'])
      expect(from(await ask('GET', path))).toBeNull();
  });
});

describe('after a change', () => {
  it('N9 its author sees it, from the primary until the replica has it', async () => {
    const queue = await makeQueue(db);
    const { server, ask: stranger } = await serve();
    const operator = await browser(server);
    await db.caughtUp();
    await db.pauseReplay();
    const answer = await operator('POST', `/api/destinations/${queue.name}/pause`, {});
    expect(answer.headers.get('set-cookie')).toMatch(
      /^waybill_position=[^;]+; Max-Age=40; Path=\/; HttpOnly; SameSite=Strict$/,
    );
    expect(await isPaused(operator, queue)).toEqual([true, 'primary']);
    expect(await isPaused(stranger, queue)).toEqual([false, 'replica']);
    const position = answer.headers.get('waybill-position') ?? '';
    const authorization = `Bearer ${await server.token('read')}`;
    const script = server.with({ authorization, 'waybill-position': position });
    expect(await isPaused(script, queue)).toEqual([true, 'primary']);
    await db.resumeReplay();
    await db.caughtUp();
    for (const ask of [operator, script, stranger])
      expect(await isPaused(ask, queue)).toEqual([true, 'replica']);
  });

  it('a change whose position cannot be read succeeds, and later reads use the primary', async () => {
    const queue = await makeQueue(db);
    const opened = await openReplica(db);
    const database = new Proxy(opened.database, {
      get(object, name) {
        if (name !== 'query') return Reflect.get(object, name) as unknown;
        return (what: string, sql: string, values: unknown[]) =>
          what === 'read the position of the log'
            ? Promise.reject(new Error('not now'))
            : object.query(what, sql, values);
      },
    });
    const operator = await browser(await serveDatabase(db, { ...opened, database }));
    const { status } = await operator('POST', `/api/destinations/${queue.name}/pause`, {});
    expect(status).toBe(200);
    expect(await isPaused(operator, queue)).toEqual([true, 'primary']);
  });

  it('a failed request carries the position too, because part of it may have been done', async () => {
    const { ask } = await serve();
    const answer = await ask('POST', '/api/destinations/undefined-destination/pause', {});
    expect(answer.status).toBe(404);
    expect(parsePosition(answer.headers.get('waybill-position') ?? '')).toBeGreaterThan(0n);
    expect(cookieOf(answer)).toMatch(/^waybill_position=/);
  });

  it.each([true, false])(
    'a drain carries it, whether it succeeds (%s) or not',
    async (succeeds) => {
      const opened = await openReplica(db);
      const queue = await makeQueue(db);
      const drain = async () => {
        await queue.enqueueOne();
        if (!succeeds) throw new Error('half-way');
        return {
          processed: 1,
          succeeded: 1,
          failed: 0,
          released: 0,
          finished: true,
          unrouted: 0,
          heldCursors: [],
        };
      };
      const operator = await browser(await serveDatabase(db, { ...opened, drain }));
      await db.caughtUp();
      await db.pauseReplay();
      const answer = await operator('POST', '/drain');
      expect(answer.status).toBe(succeeds ? 200 : 500);
      const list = await operator('GET', `/api/messages?topic=${queue.topic}`);
      expect([from(list), idsIn(list).length]).toEqual(['primary', 1]);
    },
  );

  it('a replica that is slightly behind is awaited', async () => {
    const queue = await makeQueue(db);
    const { server } = await serve();
    const operator = await browser(server);
    for (const verb of ['pause', 'resume', 'pause', 'resume']) {
      await operator('POST', `/api/destinations/${queue.name}/${verb}`, {});
      expect(await isPaused(operator, queue)).toEqual([verb === 'pause', 'replica']);
    }
  });

  it.each(['nonsense', '', 'FFFFFFFFF/0'])('the position "%s" is invalid', async (position) => {
    const { server } = await serve();
    const authorization = `Bearer ${await server.token('read')}`;
    const ask = server.with({ authorization, 'waybill-position': position });
    expect(from(await ask('GET', '/api/destinations'))).toBe('replica');
  });

  it('plans come from the primary, and a client that sees a job end sees what it did', async () => {
    const queue = await makeQueue(db);
    const { server } = await serve();
    const operator = await browser(server);
    await makeDead(queue, 2, 'early');
    await db.caughtUp();
    await db.pauseReplay();
    await makeDead(queue, 3, 'late');
    const wanted = { action: 'discard', destination: queue.name };
    const { body: plan } = await operator('POST', '/api/dead-letters/plan', wanted);
    expect(plan).toMatchObject({ count: 5 });
    // the job waits for this transaction: it cannot end before the response that reports its start
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(
      `SELECT FROM ${db.quoted}.dead_letters WHERE destination_id = $1 FOR UPDATE`,
      [queue.id],
    );
    const { body: job, headers: begun } = await operator('POST', '/api/dead-letters/jobs', {
      ...wanted,
      deadBefore: plan['deadBefore'],
    });
    await client.query('COMMIT');
    const ended = await waitFor(
      async () => {
        const answer = await operator('GET', `/api/dead-letters/jobs/${String(job['id'])}`);
        return answer.body['state'] === 'done' && answer;
      },
      { what: 'the job to end' },
    );
    const position = (headers: Headers) =>
      parsePosition(headers.get('waybill-position') ?? undefined) ?? 0n;
    expect(position(ended.headers)).toBeGreaterThan(position(begun));
    const { body } = await operator('GET', '/api/dead-letters/groups');
    const groups = body['groups'] as { destination: string }[];
    expect(groups.filter(({ destination }) => destination === queue.name)).toEqual([]);
  });
});

describe('a shard with a replica', () => {
  it('N9 is read from it, and its position does not apply to other shards on the same host', async () => {
    const queue = await makeQueue(db);
    const server = await serveDatabase(db);
    const shards = await startShardsServer(resolveServerOptions({ port: 0 }), [
      {
        ...(await openReplica(db)),
        name: 'eu',
        metrics: new Metrics({ shard: 'eu' }),
        isRunning: () => true,
        drain: () => Promise.reject(new Error('nothing is drained here')),
      },
    ]);
    onTestFinished(() => shards.close());
    await db.caughtUp();
    const authorization = `Bearer ${await server.token('operate')}`;
    const ask = (path: string, method = 'GET') =>
      fetch(shards.url + path, { method, headers: { authorization } });
    const list = await ask('/shards/eu/api/destinations');
    expect([list.status, list.headers.get('waybill-read-from')]).toEqual([200, 'replica']);
    const paused = await ask(`/shards/eu/api/destinations/${queue.name}/pause`, 'POST');
    expect(paused.headers.get('set-cookie')).toMatch(/^waybill_position_eu=/);
    expect(await (await ask('/metrics')).text()).toContain('outbox_replica_usable{shard="eu"} 1');
  });
});
