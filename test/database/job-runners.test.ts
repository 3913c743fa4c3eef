// Jobs over dead letters are stored in the database: any server shows, stops and resumes any of them, one server runs a
// job at a time, and its count is exact, wherever its runner dies.

import { randomUUID } from 'node:crypto';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { describe, expect, it } from 'vitest';

import type { HeldJob } from '../../src/features/dead-letters/jobs.js';
import { environmentOf, runNode } from '../support/cli.js';
import {
  jobOf,
  jobOperator,
  lapse,
  startHeldJob,
  startJob,
  stateOf,
  untilJob,
} from '../support/jobs.js';
import { holdLetter, makeDead } from '../support/letters.js';
import { backendId, waitUntilBlocked, waitUntilBlocking } from '../support/locks.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Connection, Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import type { Answer, Ask } from '../support/server.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

async function begin(ask: Ask, queue: Queue, action = 'discard'): Promise<Answer> {
  const wanted = { action, destination: queue.name };
  const { body } = await ask('POST', '/api/dead-letters/plan', wanted);
  const { deadBefore } = body;
  return ask('POST', '/api/dead-letters/jobs', { ...wanted, deadBefore });
}

async function recorded(queue: Queue): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT coalesce(sum(count), 0)::int AS count FROM ${db.quoted}.operator_actions
      WHERE action IN ('retry_dead_letters', 'discard_dead_letters') AND subject ->> 'destination' = $1`,
    [queue.name],
  );
  return only(rows).count;
}

describe('two servers', () => {
  it('W5 a job that one of them runs is listed, shown and stopped by the other', async () => {
    const queue = await makeQueue(db);
    for (let part = 0; part < 3; part += 1) await makeDead(queue, 1000, 'many');
    const [one, other] = [await jobOperator(db), await jobOperator(db)];
    const client = await holdLetter(queue, 1500);
    const { body: job } = await begin(one, queue);
    expect(job).toMatchObject({ state: 'running', planned: 3000, action: 'discard' });
    await waitFor(async () => (await jobOf(other, job['id']))['done'] === 1000, {
      what: 'the first batch',
    });
    const { jobs } = (await other('GET', '/api/dead-letters/jobs')).body as { jobs: object[] };
    expect(jobs).toContainEqual(await jobOf(one, job['id']));
    await waitUntilBlocking(db, client);
    const { body } = await other('DELETE', `/api/dead-letters/jobs/${String(job['id'])}`);
    expect(body).toMatchObject({ state: 'cancelled', done: 1000 });
    await client.query('COMMIT');
    // the batch in flight is counted, and is the last
    await waitFor(async () => (await jobOf(other, job['id']))['done'] === 2000, {
      what: 'the batch in flight',
    });
    expect(await jobOf(other, job['id'])).toMatchObject({ state: 'cancelled' });
    expect(await queue.deadLetters()).toHaveLength(1000);
    expect(await recorded(queue)).toBe(2000);
    const { rows } = await db.query(
      `SELECT actor, count::int FROM ${db.quoted}.operator_actions WHERE action = 'cancel_job' AND subject ->> 'job' = $1`,
      [job['id']],
    );
    expect(rows).toEqual([
      { actor: expect.stringMatching(/^api:operate-/) as unknown, count: 1000 },
    ]);
  });

  it('W5 a server that is stopped releases its jobs at once, and another resumes them', async () => {
    const queue = await makeQueue(db);
    for (let part = 0; part < 2; part += 1) await makeDead(queue, 1000, 'many');
    const first = await serveDatabase(db);
    const other = await jobOperator(db);
    const client = await holdLetter(queue, 0);
    const { body: job } = await begin(await first.as('operate'), queue, 'retry');
    await waitUntilBlocking(db, client);
    const closed = first.close();
    await client.query('COMMIT');
    await closed;
    expect(await jobOf(other, job['id'])).toMatchObject({ state: 'interrupted', done: 1000 });
    const { status } = await other('POST', `/api/dead-letters/jobs/${String(job['id'])}/resume`);
    expect(status).toBe(200);
    expect(await untilJob(other, job['id'], 'done')).toMatchObject({ done: 2000, error: null });
    expect(await queue.waiting()).toHaveLength(2000);
    expect(await recorded(queue)).toBe(2000);
  });

  it('W5 of two servers that take up a job at once, one succeeds; a running or ended job is not taken', async () => {
    const queue = await makeQueue(db);
    await makeDead(queue, 5, 'no');
    const asks = [await jobOperator(db), await jobOperator(db)];
    const id = await startJob(db, queue.name);
    const resume = (ask: Ask) => ask('POST', `/api/dead-letters/jobs/${id}/resume`);
    const [one = await jobOperator(db)] = asks;
    expect(await resume(one)).toMatchObject({
      status: 409,
      body: { error: expect.stringContaining('is running') as unknown },
    });
    // blocked until both have reached the row of the job
    const client = await db.connect();
    await lapse(db, id);
    await client.query('BEGIN');
    await client.query(`SELECT FROM ${db.quoted}.jobs WHERE id = $1 FOR UPDATE`, [id]);
    const answers = Promise.all(asks.map(resume));
    await waitFor(
      async () => {
        const { rows } = await db.query(
          `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%resume_job(%' AND datname = current_database()`,
        );
        return rows.length === 2;
      },
      { what: 'both to wait' },
    );
    await client.query('COMMIT');
    expect((await answers).map(({ status }) => String(status)).toSorted()).toEqual(['200', '409']);
    expect(await untilJob(one, id, 'done')).toMatchObject({ done: 5 });
    expect(await recorded(queue)).toBe(5);
    expect(await resume(one)).toMatchObject({
      status: 409,
      body: { error: expect.stringContaining('is done') as unknown },
    });
    const { rows } = await db.query(
      `SELECT FROM ${db.quoted}.operator_actions WHERE action = 'resume_job' AND subject ->> 'job' = $1`,
      [id],
    );
    expect(rows).toHaveLength(1);
  });

  it('W5 a job that was lost and resumed on the same server continues there', async () => {
    const queue = await makeQueue(db);
    for (let part = 0; part < 3; part += 1) await makeDead(queue, 1000, 'many');
    const ask = await jobOperator(db);
    const client = await holdLetter(queue, 500);
    const { body: job } = await begin(ask, queue);
    await waitUntilBlocking(db, client);
    // as after an outage of the database that was longer than the hold
    await lapse(db, job['id']);
    const { status } = await ask('POST', `/api/dead-letters/jobs/${String(job['id'])}/resume`);
    expect(status).toBe(200);
    await client.query('COMMIT');
    expect(await untilJob(ask, job['id'], 'done')).toMatchObject({ done: 3000 });
    expect(await recorded(queue)).toBe(3000);
  });

  it('W5 a killed server leaves an exact count, and another does the rest', async () => {
    const queue = await makeQueue(db);
    for (let part = 0; part < 3; part += 1) await makeDead(queue, 1000, 'many');
    const dist = pathToFileURL(path.resolve('dist')).href;
    const victim = runNode(
      [
        '--input-type=module',
        '--eval',
        `import { Database, resolveDatabaseOptions } from '${dist}/database/connection.js';
         import { resolveServerOptions } from '${dist}/server/options.js';
         import { startServer } from '${dist}/server/server.js';
         const options = resolveDatabaseOptions({ schema: process.env.WAYBILL_SCHEMA });
         const database = new Database(options, { connections: 4, applicationName: 'victim' });
         const { url } = await startServer(resolveServerOptions({ port: 0, authentication: 'none' }), { database, isReady: () => true });
         console.log('serves ' + url + ' now');`,
      ],
      { environment: environmentOf(db, 'test_server') },
    );
    await victim.says(/serves .* now/);
    const url = /serves (\S+) now/.exec(victim.stdout)?.[1] ?? '';
    const toVictim: Ask = async (method, address, body) => {
      const response = await fetch(url + address, {
        method,
        headers: { 'content-type': 'application/json' },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      const answer = (await response.json()) as Record<string, unknown>;
      return { status: response.status, headers: response.headers, body: answer };
    };
    const client = await holdLetter(queue, 1500);
    const { body: job } = await begin(toVictim, queue);
    await waitUntilBlocking(db, client);
    victim.process.kill('SIGKILL');
    await victim.ended();
    await client.query('ROLLBACK');

    const other = await jobOperator(db);
    expect(await jobOf(other, job['id'])).toMatchObject({ state: 'running' });
    await waitFor(
      async () => {
        const { rows } = await db.query(
          `SELECT FROM pg_stat_activity WHERE application_name = 'victim' AND state = 'active'`,
        );
        return rows.length === 0;
      },
      { what: 'the last batch of the killed one' },
    );
    const { rows } = await db.query<{ done: number; gone: number }>(
      `SELECT done::int, 3000 - (SELECT count(*) FROM ${db.quoted}.dead_letters WHERE destination_id = $2)::int AS gone
         FROM ${db.quoted}.jobs WHERE id = $1`,
      [job['id'], queue.id],
    );
    const { done, gone } = only(rows);
    expect(done).toBe(gone);
    expect(done).toBeGreaterThanOrEqual(1000);
    expect(done).toBeLessThan(3000);
    // the time without a heartbeat
    await lapse(db, job['id']);
    expect(await stateOf(other, job['id'])).toBe('interrupted');
    await other('POST', `/api/dead-letters/jobs/${String(job['id'])}/resume`);
    expect(await untilJob(other, job['id'], 'done')).toMatchObject({ done: 3000 });
    expect(await recorded(queue)).toBe(3000);
  });
});

describe('a runner', () => {
  const step = async (on: Connection, { id, token }: HeldJob, count = 1000) => {
    const { rows } = await on.query<{ changed: number; state: string; goes_on: boolean }>(
      `SELECT * FROM ${db.quoted}.job_step($1, $2, $3)`,
      [id, token, count],
    );
    return only(rows);
  };

  it('W5 whose job was taken over does nothing more, and its batch in flight is counted', async () => {
    const queue = await makeQueue(db);
    await makeDead(queue, 6, 'no');
    const late = await startHeldJob(db, queue.name);
    const { id } = late;
    const client = await holdLetter(queue, 0);
    const slow = await db.connect();
    const slowStep = step(slow, late, 2);
    await waitUntilBlocking(db, client);
    await lapse(db, id);
    const resumed = await db.query<{ token: string }>(
      `SELECT ${db.quoted}.resume_job($1, $2, 60000, 'test') AS token`,
      [id, randomUUID()],
    );
    const next = { id, token: only(resumed.rows).token };
    const nextClient = await db.connect();
    const backend = await backendId(nextClient);
    const nextStep = step(nextClient, next, 2);
    await waitUntilBlocked(db, backend);
    await client.query('COMMIT');
    expect(await slowStep).toEqual({ changed: 2, state: 'running', goes_on: false });
    expect(await nextStep).toEqual({ changed: 2, state: 'running', goes_on: true });
    expect(await step(slow, late)).toEqual({ changed: 0, state: 'running', goes_on: false });
    expect(await queue.deadLetters()).toHaveLength(2);
    for (const call of ['renew_job($1, $2)', 'release_job($1, $2)', "fail_job($1, $2, 'late')"]) {
      const sign = await db.query(`SELECT ${db.quoted}.${call} AS held`, [id, late.token]);
      expect(sign.rows, call).toEqual([{ held: false }]);
    }
    expect(await step(db.pool, next)).toMatchObject({ changed: 2, goes_on: true });
    expect(await step(db.pool, next)).toEqual({ changed: 0, state: 'done', goes_on: false });
    const ask = await jobOperator(db);
    expect(await jobOf(ask, id)).toMatchObject({ state: 'done', done: 6 });
  });

  it('W5 that cannot continue records the reason, and the job has failed', async () => {
    const queue = await makeQueue(db);
    await makeDead(queue, 1, 'no');
    const ask = await jobOperator(db);
    const id = await startJob(db, queue.name, { heldMs: 1 });
    await waitFor(async () => (await stateOf(ask, id)) === 'interrupted', { what: 'the lapse' });
    await db.query(
      `UPDATE ${db.quoted}.jobs SET filter = '{"destination": "gone away"}' WHERE id = $1`,
      [id],
    );
    await ask('POST', `/api/dead-letters/jobs/${id}/resume`);
    expect(await untilJob(ask, id, 'failed')).toMatchObject({
      done: 0,
      error: expect.stringContaining('gone away') as unknown,
      endedAt: expect.any(String) as unknown,
    });
  });
});
