// Changes of many dead letters from the command line are jobs: others see and stop them, a stopped one can be resumed,
// and the exit code says whether all was done.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { cliAs, environmentOf, json, startCli } from '../support/cli.js';
import type { Running } from '../support/cli.js';
import { jobOf, jobOperator, lapse, startJob, untilJob } from '../support/jobs.js';
import { holdLetter, makeBlocked, makeDead } from '../support/letters.js';
import { waitUntilBlocking } from '../support/locks.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const cliOn = cliAs('test_server');

async function queueOf(thousands: number): Promise<Queue> {
  const queue = await makeQueue(db);
  for (let part = 0; part < thousands; part += 1) await makeDead(queue, 1000, 'many');
  return queue;
}

function change(queue: Queue, action: string, ...more: string[]): Running {
  const args = ['dead-letters', action, '--destination', queue.name, '--yes', ...more];
  return startCli(args, { environment: environmentOf(db, 'test_server') });
}

async function started(running: Running): Promise<string> {
  const line = /job (\S+) started; if it is stopped: waybill dead-letters resume \1/;
  await running.says(line);
  return line.exec(running.stderr)?.[1] ?? '';
}

describe('a change of many dead letters', () => {
  it('W5 N5 is a job that a server shows and cancels; the command says so: exit code 5', async () => {
    const queue = await queueOf(3);
    const ask = await jobOperator(db);
    const client = await holdLetter(queue, 1500);
    const running = change(queue, 'discard');
    const id = await started(running);
    await waitFor(async () => (await jobOf(ask, id))['done'] === 1000, { what: 'a batch' });
    expect(await jobOf(ask, id)).toMatchObject({
      state: 'running',
      action: 'discard',
      planned: 3000,
      filter: { destination: queue.name },
      actor: expect.stringMatching(/^cli:/) as unknown,
    });
    await waitUntilBlocking(db, client);
    await ask('DELETE', `/api/dead-letters/jobs/${id}`);
    await client.query('COMMIT');
    expect(await running.ended()).toMatchObject({
      code: 5,
      stdout: 'discard: 2000\n',
      stderr: expect.stringContaining(`job ${id} was cancelled before the end`) as unknown,
    });
    expect(await queue.deadLetters()).toHaveLength(1000);
  });

  it('W5 N5 that is stopped with Ctrl-C ends after its batch, exit code 5, and is resumed at once', async () => {
    const queue = await queueOf(3);
    const client = await holdLetter(queue, 1500);
    const running = change(queue, 'retry', '--json');
    const id = await started(running);
    await waitUntilBlocking(db, client);
    await waitFor(async () => (await queue.waiting()).length === 1000, { what: 'a batch' });
    running.process.kill('SIGINT');
    await running.says('stopping after the batch that is running');
    await client.query('COMMIT');
    const stopped = await running.ended();
    expect(stopped.code).toBe(5);
    expect(json(stopped)).toEqual({ retry: 2000, job: id, state: 'interrupted' });
    expect(stopped.stderr).toContain(
      `stopped before the end: resume it with waybill dead-letters resume ${id}`,
    );
    expect(await cliOn(db, ['dead-letters', 'resume', id])).toMatchObject({
      code: 0,
      stdout: 'retry: 3000\n',
    });
    expect(await queue.waiting()).toHaveLength(3000);
    expect(await queue.deadLetters()).toEqual([]);
  });

  it('W5 that is killed leaves a job that a server resumes, and the count is exact', async () => {
    const queue = await queueOf(2);
    const ask = await jobOperator(db);
    const client = await holdLetter(queue, 1500);
    const running = change(queue, 'discard');
    const id = await started(running);
    await waitUntilBlocking(db, client);
    running.process.kill('SIGKILL');
    await running.ended();
    await client.query('COMMIT');
    // its batch in flight ends, and renews the hold once more
    await waitFor(
      async () => {
        const { rows } = await db.query(
          `SELECT FROM pg_stat_activity WHERE query LIKE $1 AND state <> 'idle' AND datname = current_database() AND pid <> pg_backend_pid()`,
          ['%job_step(%'],
        );
        return rows.length === 0;
      },
      { what: 'the batch in flight' },
    );
    await lapse(db, id);
    expect(await jobOf(ask, id)).toMatchObject({ state: 'interrupted' });
    await ask('POST', `/api/dead-letters/jobs/${id}/resume`);
    expect(await untilJob(ask, id, 'done')).toMatchObject({ done: 2000 });
  });

  it('M13 N5 of blocked keys is one job for each destination', async () => {
    const queues = [
      await makeQueue(db, { whenDead: 'block' }),
      await makeQueue(db, { whenDead: 'block' }),
    ];
    for (const queue of queues) await makeBlocked(queue, 'a', 1);
    const skipped = await cliOn(db, ['keys', 'skip', '--key', 'a', '--yes', '--json']);
    expect(json(skipped)).toEqual({ skip: 2 });
    const jobs = json(await cliOn(db, ['dead-letters', 'jobs', '--json'])) as {
      action: string;
      state: string;
      done: number;
      filter: { destination: string };
    }[];
    for (const { name } of queues)
      expect(jobs.filter(({ filter }) => filter.destination === name)).toMatchObject([
        { action: 'skip', state: 'done', done: 1 },
      ]);
  });
});

describe('waybill dead-letters', () => {
  it('W5 N5 cancel ends a job of another process, and says if it had ended before', async () => {
    const queue = await makeQueue(db);
    await makeDead(queue, 1, 'no');
    const id = await startJob(db, queue.name);
    const listed = await cliOn(db, ['dead-letters', 'jobs']);
    expect(listed.stdout).toContain(id);
    expect(await cliOn(db, ['dead-letters', 'cancel', id])).toMatchObject({
      code: 0,
      stdout: `cancelled: job ${id}\n`,
    });
    expect(json(await cliOn(db, ['dead-letters', 'cancel', id, '--json']))).toEqual({
      job: id,
      cancelled: false,
    });
    expect(await queue.deadLetters()).toHaveLength(1);
  });

  it('N5 resume refuses a job that is running or has ended (exit code 4), and one that is unknown (3)', async () => {
    const queue = await makeQueue(db);
    const id = await startJob(db, queue.name);
    const resume = (job: string) => cliOn(db, ['dead-letters', 'resume', job]);
    expect(await resume(id)).toMatchObject({
      code: 4,
      stderr: expect.stringContaining(`the job ${id} is running: only one`) as unknown,
    });
    await cliOn(db, ['dead-letters', 'cancel', id]);
    expect(await resume(id)).toMatchObject({ code: 4 });
    expect((await resume(randomUUID())).code).toBe(3);
    expect((await resume('7')).code).toBe(2);
  });
});
