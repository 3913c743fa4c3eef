// Jobs over dead letters over HTTP and in SQL: their state, which tokens may start and see them, and how long they are
// kept. Their runners are in job-runners.test.ts.

import { describe, expect, it } from 'vitest';

import type { HeldJob } from '../../src/features/dead-letters/jobs.js';
import { jobOperator, lapse, startHeldJob, startJob, stateOf, untilJob } from '../support/jobs.js';
import { makeDead } from '../support/letters.js';
import { as } from '../support/logins.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import type { Ask } from '../support/server.js';
import { settle } from '../support/settling.js';

const db = testDatabase();

describe('the state of a job', () => {
  it('W5 has the count of the letters that had died before the plan', async () => {
    const queue = await makeQueue(db);
    await makeDead(queue, 3, 'no');
    const ask = await jobOperator(db);
    const wanted = { action: 'discard', destination: queue.name };
    const { body: plan } = await ask('POST', '/api/dead-letters/plan', wanted);
    expect(plan).toMatchObject({ count: 3 });
    await makeDead(queue, 1, 'later');
    const { deadBefore } = plan;
    const { body: job } = await ask('POST', '/api/dead-letters/jobs', { ...wanted, deadBefore });
    expect(job).toMatchObject({ planned: 3 });
    expect(await untilJob(ask, job['id'], 'done')).toMatchObject({ planned: 3, done: 3 });
  });

  it('W5 is counted by the server: a count of the client is refused', async () => {
    const { name } = await makeQueue(db);
    const wanted = { action: 'discard', destination: name, deadBefore: '2026-01-31T08:00:00Z' };
    const ask = await jobOperator(db);
    expect(await ask('POST', '/api/dead-letters/jobs', { ...wanted, count: 3 })).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining('count') as unknown },
    });
  });

  it('W5 never exceeds its total, also if more was done than was counted', async () => {
    const queue = await makeQueue(db);
    await makeDead(queue, 2, 'no');
    const ask = await jobOperator(db);
    const id = await startJob(db, queue.name);
    await lapse(db, id);
    await ask('POST', `/api/dead-letters/jobs/${id}/resume`);
    expect(await untilJob(ask, id, 'done')).toMatchObject({ planned: 2, done: 2 });
  });
});

describe('the results of a job', () => {
  it('W5 count what became of the letters that it retried, by their newest state', async () => {
    const queue = await makeQueue(db);
    const letters = await makeDead(queue, 6, 'no');
    const ask = await jobOperator(db);
    const results = async () =>
      (await ask('GET', `/api/dead-letters/jobs/${String(job['id'])}/results`)).body;
    const wanted = { action: 'retry', destination: queue.name };
    const { body: plan } = await ask('POST', '/api/dead-letters/plan', wanted);
    const { deadBefore } = plan;
    const { body: job } = await ask('POST', '/api/dead-letters/jobs', { ...wanted, deadBefore });
    await untilJob(ask, job['id'], 'done');
    const none = { followed: 6, delivered: 0, dead: 0, retrying: 0, unfinished: 6 };
    expect(await results()).toEqual(none);
    // five of them are claimed: one stays in flight, and one of the others is cancelled after its failure
    const claim = await queue.claim({ limit: 5 });
    expect(await results()).toEqual(none);
    const outcomes = ['delivered', 'reject', 'retry', 'retry'] as const;
    await settle(
      db,
      claim,
      outcomes.map((outcome, n) => ({
        id: claim.ids[n] ?? '',
        outcome,
        retryAfterMs: 3_600_000,
        ...(outcome !== 'delivered' && { errorCode: 'no' }),
      })),
    );
    await db.query(`SELECT ${db.quoted}.cancel($1, $2)`, [claim.ids[3], queue.name]);
    expect(await results()).toEqual({
      followed: 6,
      delivered: 1,
      dead: 1,
      retrying: 1,
      unfinished: 2,
    });
    expect(letters).toEqual(expect.arrayContaining(claim.ids));
  });

  it('W5 follow the first 1,000 letters, and nothing for a discard', async () => {
    const queue = await makeQueue(db);
    await makeDead(queue, 600, 'no');
    await makeDead(queue, 600, 'no');
    const retry = await startHeldJob(db, queue.name, { action: 'retry' });
    const step = (job: HeldJob, most: number) =>
      db.query(`SELECT ${db.quoted}.job_step($1, $2, $3)`, [job.id, job.token, most]);
    await step(retry, 700);
    await step(retry, 700);
    const ask = await jobOperator(db);
    const followed = async (id: string) =>
      (await ask('GET', `/api/dead-letters/jobs/${id}/results`)).body;
    expect(await followed(retry.id)).toMatchObject({ followed: 1000, unfinished: 1000 });
    await makeDead(queue, 1, 'no');
    const discard = await startHeldJob(db, queue.name);
    await step(discard, 10);
    expect(await followed(discard.id)).toMatchObject({ followed: 0, unfinished: 0 });
  });
});

describe('access to jobs', () => {
  it('P13 a token of one tenant starts jobs for its own dead letters, and sees no others', async () => {
    const queue = await makeQueue(db);
    await makeDead(queue, 2, 'no', { tenantId: 'acme' });
    const [foreign] = await makeDead(queue, 1, 'no', { tenantId: 'globex' });
    const server = await serveDatabase(db);
    const [acme, globex, all] = [
      await server.as('operate', 'acme'),
      await server.as('operate', 'globex'),
      await server.as('operate'),
    ];
    const wanted = { action: 'discard', destination: queue.name };
    const { body: plan } = await acme('POST', '/api/dead-letters/plan', wanted);
    expect(plan).toMatchObject({ count: 2, sample: [{ tenantId: 'acme' }, { tenantId: 'acme' }] });
    const { body: job } = await acme('POST', '/api/dead-letters/jobs', {
      ...wanted,
      deadBefore: plan['deadBefore'],
    });
    expect(await untilJob(acme, job['id'], 'done')).toMatchObject({ done: 2 });
    expect(await queue.deadLetters()).toMatchObject([{ message_id: foreign }]);

    const listed = async (ask: Ask) =>
      ((await ask('GET', '/api/dead-letters/jobs')).body['jobs'] as { id: string }[]).map(
        ({ id }) => id,
      );
    const others = await startJob(db, queue.name);
    const limited = await startJob(db, queue.name, { tenantId: 'acme' });
    expect(await listed(acme)).toEqual([job['id']]);
    expect(await listed(globex)).toEqual([]);
    expect(await listed(all)).toEqual(expect.arrayContaining([job['id'], others, limited]));
    for (const [method, id, more] of [
      ['GET', others, ''],
      ['GET', limited, ''],
      ['GET', others, '/results'],
      ['DELETE', others, ''],
      ['POST', others, '/resume'],
    ] as const) {
      const answer = await acme(method, `/api/dead-letters/jobs/${id}${more}`);
      expect([method, answer.status]).toEqual([method, 404]);
    }
    expect(await stateOf(all, others)).toBe('running');
  });

  it('P13 a job by a token of one tenant must name that tenant', async () => {
    const { name } = await makeQueue(db);
    for (const tenantId of [undefined, 'globex'])
      await expect(
        startJob(db, name, { limitedTo: 'acme', ...(tenantId !== undefined && { tenantId }) }),
      ).rejects.toMatchObject({ code: '22023' });
  });

  it('P15 operators start and cancel jobs only through the functions; relays do neither, and maintenance removes old ones', async () => {
    const { name } = await makeQueue(db);
    const id = await startJob(db, name);
    await as(db, 'test_operator', async (client) => {
      await expect(client.query(`UPDATE ${db.quoted}.jobs SET done = 7`)).rejects.toMatchObject({
        code: '42501',
      });
      const { rows } = await client.query(`SELECT ${db.quoted}.cancel_job($1) AS cancelled`, [id]);
      expect(rows).toEqual([{ cancelled: true }]);
    });
    await as(db, 'test_relay', async (client) => {
      await expect(client.query(`SELECT ${db.quoted}.cancel_job($1)`, [id])).rejects.toMatchObject({
        code: '42501',
      });
      await expect(client.query(`SELECT ${db.quoted}.prune_jobs()`)).rejects.toMatchObject({
        code: '42501',
      });
    });
    await as(db, 'test_maintenance', (client) => client.query(`SELECT ${db.quoted}.prune_jobs()`));
  });
});

it('W5 maintenance removes old jobs; running and recent ones stay', async () => {
  const { name } = await makeQueue(db);
  const ids = [];
  for (let n = 0; n < 4; n += 1) ids.push(await startJob(db, name));
  const [ended, left, running, recent] = ids;
  const age = (change: string, id: string | undefined) =>
    db.query(
      `UPDATE ${db.quoted}.jobs SET started_at = now() - interval '40 days', ${change} WHERE id = $1`,
      [id],
    );
  await age(`state = 'done', ended_at = now() - interval '31 days'`, ended);
  await age(`moved_at = now() - interval '31 days'`, left);
  await age('done = 1', running);
  await age(`state = 'done', ended_at = now() - interval '29 days'`, recent);
  const prune = async () =>
    (await db.query<{ count: number }>(`SELECT ${db.quoted}.prune_jobs('30 days', 1) AS count`))
      .rows[0]?.count;
  expect([await prune(), await prune(), await prune()]).toEqual([1, 1, 0]);
  const { rows } = await db.query<{ id: string }>(
    `SELECT id FROM ${db.quoted}.jobs WHERE id = ANY ($1)`,
    [ids],
  );
  expect(new Set(rows.map(({ id }) => id))).toEqual(new Set([running, recent]));
});
