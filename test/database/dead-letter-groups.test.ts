// Groups of dead letters by cause, and changes over several destinations at once: by cause, by selected letters, and
// through jobs. A group costs the same whatever else is dead.

import { beforeEach, describe, expect, it } from 'vitest';

import { groupDeadLetters } from '../../src/features/dead-letters/database.js';
import type { GroupFilter } from '../../src/features/dead-letters/database.js';
import { cliOn, json } from '../support/cli.js';
import { jobOperator, untilJob } from '../support/jobs.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import { settle } from '../support/settling.js';

const db = testDatabase();

beforeEach(async () => {
  await db.query(`DELETE FROM ${db.quoted}.dead_letters`);
});

/** Creates dead letters with these codes; returns their ids. */
async function die(
  queue: Queue,
  count: number,
  errorCode: string,
  remoteCode?: string,
  fields: Parameters<Queue['enqueue']>[1] = {},
): Promise<string[]> {
  const ids = await queue.enqueue(count, fields);
  const claim = await queue.claim({ limit: count });
  await settle(
    db,
    claim,
    claim.ids.map((id) => ({
      id,
      outcome: 'reject' as const,
      errorCode,
      ...(remoteCode !== undefined && { remoteCode }),
      errorMessage: `the receiver answered ${remoteCode ?? errorCode}`,
    })),
  );
  return ids;
}

const groups = (filter: GroupFilter = {}) => groupDeadLetters(openDatabase(db), filter);
const idsAt = async (queue: Queue) =>
  (await queue.deadLetters()).map((letter) => String(letter['message_id'])).toSorted();

describe('groups', () => {
  it('W5 M13 have one row for each cause over all destinations, with counts, times and the newest error', async () => {
    const [one, two] = [await makeQueue(db), await makeQueue(db)];
    await die(one, 2, 'http_status', '500');
    await die(two, 3, 'http_status', '500');
    await die(one, 1, 'http_status', '404');
    const [sampleId] = await die(two, 1, 'connection_failed', 'ECONNREFUSED');
    await db.query(
      `UPDATE ${db.quoted}.dead_letters SET dead_at = now() - interval '1 day' WHERE destination_id = $1 AND remote_code = '500'`,
      [one.id],
    );
    const found = await groups();
    expect(found).toMatchObject([
      {
        cause: 'http_status 500',
        errorCode: 'http_status',
        remoteCode: '500',
        count: 5,
        isExact: true,
        destinations: 2,
        destination: two.name,
        sampleError: 'the receiver answered 500',
      },
      { cause: 'connection_failed ECONNREFUSED', count: 1, sampleId, destinations: 1 },
      { cause: 'http_status 404', count: 1, destination: one.name },
    ]);
    // a code of the other side is found only if it is an HTTP status, as in the lists and jobs
    expect((await groups({ errorCode: '500' })).map(({ cause }) => cause)).toEqual([
      'http_status 500',
    ]);
    expect((await groups({ errorCode: 'connection_failed' })).map(({ count }) => count)).toEqual([
      1,
    ]);
    expect(await groups({ errorCode: 'ECONNREFUSED' })).toEqual([]);
    const [{ oldestAt, newestAt } = { oldestAt: new Date(), newestAt: new Date() }] = found;
    expect(newestAt.getTime() - oldestAt.getTime()).toBeGreaterThan(23 * 3_600_000);
  });

  it('W5 are those of a destination, topic, tenant, error code or HTTP status', async () => {
    const [one, two] = [await makeQueue(db), await makeQueue(db)];
    await die(one, 2, 'http_status', '500', { tenantId: 'acme' });
    await die(two, 1, 'http_status', '500');
    await die(two, 1, 'http_status', '404');
    const counts = async (filter: GroupFilter) =>
      (await groups(filter)).map(({ cause, count }) => [cause, count]);
    expect(await counts({ destination: two.name })).toEqual([
      ['http_status 404', 1],
      ['http_status 500', 1],
    ]);
    expect(await counts({ topic: one.topic })).toEqual([['http_status 500', 2]]);
    expect(await counts({ tenantId: 'acme' })).toEqual([['http_status 500', 2]]);
    expect(await counts({ errorCode: 'http_status' })).toEqual([
      ['http_status 500', 3],
      ['http_status 404', 1],
    ]);
    expect(await counts({ errorCode: '404' })).toEqual([['http_status 404', 1]]);
    expect(await counts({ errorCode: 'timeout' })).toEqual([]);
    expect(await counts({ destination: 'nowhere' })).toEqual([]);
  });

  it('P13 of a token with a tenant are those of its letters', async () => {
    const queue = await makeQueue(db);
    await die(queue, 2, 'no', undefined, { tenantId: 'acme' });
    await die(queue, 5, 'no', undefined, { tenantId: 'globex' });
    const ask = await (await serveDatabase(db)).as('read', 'acme');
    const { body } = await ask('GET', '/api/dead-letters/groups');
    expect(body['groups']).toMatchObject([{ cause: 'no', count: 2 }]);
    expect((await ask('GET', '/api/dead-letters/groups?tenantId=globex')).status).toBe(403);
  });

  it('W5 cost a few pages each, beside a hundred thousand dead letters of ten thousand destinations', async () => {
    await db.query(
      `INSERT INTO ${db.quoted}.destinations (name, kind, max_attempts, retry_base_ms, retry_max_ms, origin)
       SELECT 'many_' || n, 'endpoint', 10, 0, 0, 'database' FROM generate_series(1, 10000) n`,
    );
    await db.query(
      `INSERT INTO ${db.quoted}.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, remote_code)
       SELECT gen_random_uuid(), d.id, clock_timestamp() - n * interval '1 second', 1, 1, 'rejected', 'http_status', (500 + n % 4)::text
         FROM ${db.quoted}.destinations d, generate_series(1, 10) n WHERE d.name LIKE 'many\\_%'`,
    );
    await db.query(`ANALYZE ${db.quoted}.dead_letters, ${db.quoted}.destinations`);
    const database = openDatabase(db);
    await groupDeadLetters(database);
    const startedMs = performance.now();
    const found = await groupDeadLetters(database);
    expect(performance.now() - startedMs).toBeLessThan(1000);
    expect(found).toHaveLength(4);
    const total = found.reduce((sum, { count }) => sum + count, 0);
    expect(total).toBeGreaterThan(80_000);
    expect(total).toBeLessThan(120_000);
    const { rows } = await db.query<{ 'QUERY PLAN': { Plan: Record<string, number> }[] }>(
      `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM ${db.quoted}.dead_letter_groups()`,
    );
    const plan = rows[0]?.['QUERY PLAN'][0]?.Plan ?? {};
    // around 20,000 in two runs, for a hundred thousand letters
    expect((plan['Shared Hit Blocks'] ?? 0) + (plan['Shared Read Blocks'] ?? 0)).toBeLessThan(
      40_000,
    );
    await db.query(`DELETE FROM ${db.quoted}.dead_letters`);
  });
});

describe('a change over several destinations', () => {
  it('W5 takes the letters of the chosen causes, and one job does it', async () => {
    const [one, two] = [await makeQueue(db), await makeQueue(db)];
    await die(one, 2, 'http_status', '500');
    await die(two, 1, 'timeout', 'TimeoutError');
    const kept = await die(two, 2, 'http_status', '404');
    const ask = await jobOperator(db);
    const wanted = { action: 'discard', causes: ['http_status 500', 'timeout TimeoutError'] };
    const { body: plan } = await ask('POST', '/api/dead-letters/plan', wanted);
    expect(plan).toMatchObject({ count: 3 });
    const { deadBefore } = plan;
    const { body: job } = await ask('POST', '/api/dead-letters/jobs', { ...wanted, deadBefore });
    expect(await untilJob(ask, job['id'], 'done')).toMatchObject({
      planned: 3,
      done: 3,
      filter: { causes: wanted.causes },
    });
    expect(await one.deadLetters()).toEqual([]);
    expect(await idsAt(two)).toEqual(kept.toSorted());
  });

  it('W5 takes the selected letters, and not those of the same messages elsewhere', async () => {
    const [one, two] = [await makeQueue(db), await makeQueue(db)];
    const [first = '', second = ''] = await die(one, 2, 'no');
    const [third = ''] = await die(two, 1, 'no');
    // the same message is dead at another destination too
    await db.query(
      `INSERT INTO ${db.quoted}.dead_letters SELECT (jsonb_populate_record(d, jsonb_build_object('destination_id', $2::int))).*
         FROM ${db.quoted}.dead_letters d WHERE message_id = $1`,
      [first, two.id],
    );
    const ask = await jobOperator(db);
    const wanted = { action: 'retry', ids: [first, third], destinations: [one.name, two.name] };
    const { body: plan } = await ask('POST', '/api/dead-letters/plan', wanted);
    expect(plan).toMatchObject({ count: 2 });
    const { deadBefore } = plan;
    const { body: job } = await ask('POST', '/api/dead-letters/jobs', { ...wanted, deadBefore });
    await untilJob(ask, job['id'], 'done');
    expect(await idsAt(one)).toEqual([second]);
    expect(await idsAt(two)).toEqual([first]);
  });

  it('W5 takes what the list shows for an HTTP status', async () => {
    const queue = await makeQueue(db);
    await die(queue, 2, 'http_status', '500');
    await die(queue, 1, 'http_status', '404');
    const ask = await jobOperator(db);
    const { body: list } = await ask('GET', '/api/messages?status=dead&errorCode=500');
    expect(list['messages']).toHaveLength(2);
    const wanted = { action: 'retry', errorCode: '500' };
    const { body: plan } = await ask('POST', '/api/dead-letters/plan', wanted);
    expect(plan).toMatchObject({ count: 2 });
  });

  it('W5 beside a code takes those of the causes that have it, as the groups do', async () => {
    const queue = await makeQueue(db);
    await die(queue, 2, 'http_status', '503');
    await die(queue, 1, 'smtp', '503');
    await die(queue, 4, 'timeout');
    const causes = ['http_status 503', 'smtp 503', 'timeout'];
    const ask = await jobOperator(db);
    const count = async (errorCode: string) => {
      const wanted = { action: 'retry', destination: queue.name, errorCode, causes };
      return (await ask('POST', '/api/dead-letters/plan', wanted)).body['count'];
    };
    const inGroups = async (errorCode: string) => {
      const address = `/api/dead-letters/groups?destination=${queue.name}&errorCode=${errorCode}`;
      const found = (await ask('GET', address)).body['groups'] as { count: number }[];
      return found.reduce((sum, group) => sum + group.count, 0);
    };
    for (const [code, expected] of [
      // 503 of smtp is no HTTP status
      ['503', 2],
      ['http_status', 2],
      ['smtp', 1],
      ['timeout', 4],
      ['404', 0],
      ['50', 0],
    ] as const)
      expect([code, await count(code), await inGroups(code)]).toEqual([code, expected, expected]);
  });

  it.each([
    [{ destinations: ['a'] }, 'destinations has 1 entries and ids has 0'],
    [{ causes: [] }, 'causes is'],
    [{ causes: [7] }, 'causes is'],
    [{ destinations: 'a' }, 'destinations is'],
  ])('W5 with a wrong filter is refused: %j', async (filter, words) => {
    const ask = await jobOperator(db);
    expect(
      await ask('POST', '/api/dead-letters/plan', { action: 'retry', ...filter }),
    ).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining(words) as unknown },
    });
  });

  it('M13 on the command line takes causes, and shows groups', async () => {
    const [one, two] = [await makeQueue(db), await makeQueue(db)];
    await die(one, 2, 'http_status', '500');
    await die(two, 1, 'http_status', '404');
    expect(json(await cliOn(db, ['dead-letters', 'groups', '--json']))).toMatchObject([
      { cause: 'http_status 500', count: 2 },
      { cause: 'http_status 404', count: 1 },
    ]);
    const table = await cliOn(db, ['dead-letters', 'groups', '--destination', two.name]);
    expect(table.stdout.trimEnd().split('\n')).toHaveLength(2);
    const status = ['--error-code', '500', '--json'];
    expect(json(await cliOn(db, ['dead-letters', 'list', ...status]))).toHaveLength(2);
    expect(json(await cliOn(db, ['dead-letters', 'groups', ...status]))).toMatchObject([
      { cause: 'http_status 500', count: 2 },
    ]);
    const args = ['dead-letters', 'discard', '--cause', 'http_status 500', '--yes'];
    expect(await cliOn(db, args)).toMatchObject({ code: 0, stdout: 'discard: 2\n' });
    expect(await two.deadLetters()).toHaveLength(1);
  });
});

describe('the list of dead letters', () => {
  it('W5 has those of one cause, page by page, and with other filters', async () => {
    const [one, two] = [await makeQueue(db), await makeQueue(db)];
    const wanted = await die(one, 3, 'http_status', '500');
    await die(one, 2, 'http_status', '404');
    const others = await die(two, 2, 'http_status', '500');
    const ask = await jobOperator(db);
    const listed = async (more: string) => {
      const found: string[] = [];
      for (let next: string | null = ''; next !== null;) {
        const page: string = next === '' ? '' : `&next=${encodeURIComponent(next)}`;
        const { body } = await ask('GET', `/api/messages?status=dead&limit=2${more}${page}`);
        const { messages } = body as { messages: { messageId: string }[] };
        found.push(...messages.map(({ messageId }) => messageId));
        next = body['next'] as string | null;
      }
      return found.toSorted();
    };
    const cause = `&cause=${encodeURIComponent('http_status 500')}`;
    expect(await listed(cause)).toEqual([...wanted, ...others].toSorted());
    expect(await listed(`${cause}&destination=${one.name}`)).toEqual(wanted.toSorted());
    expect(await listed(`${cause}&topic=${two.topic}`)).toEqual(others.toSorted());
    expect(await ask('GET', '/api/messages?cause=x')).toMatchObject({
      status: 400,
      body: { error: 'cause is "x": give status=dead with it' },
    });
  });
});
