// Dead-letter jobs on the command line: starts a job and runs it in this process, and lists, resumes and cancels jobs of
// any process. A command that is stopped leaves its job interrupted, so that the rest can be done later.

import { randomUUID } from 'node:crypto';
import os from 'node:os';

import { InvalidArgumentError } from 'commander';
import type { Command } from 'commander';

import { errorText } from '../../core/errors.js';
import { isUuid } from '../../core/uuid.js';
import { isTransient } from '../../database/connection.js';
import type { Database } from '../../database/connection.js';
import { sharedOptions, withDatabase } from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { CommandError, exitCode, note, print, printJson, printTable } from '../../cli/output.js';
import { untilStopped } from '../../cli/stop-signal.js';
import { cancelJob, listJobs, resumeJob, startJob } from './jobs.js';
import type { HeldJob, Job, JobAction, JobFilter } from './jobs.js';
import { runJob } from './run-job.js';

const actor = () => `cli:${os.userInfo().username}`;
const resumeLine = (id: string) => `waybill dead-letters resume ${id}`;

/** Changes the letters of each filter with a job, one after the other, and reports the total. */
export async function changeWithJobs(
  database: Database,
  action: JobAction,
  filters: readonly JobFilter[],
  flags: SharedFlags,
): Promise<number> {
  const signal = stopSignal();
  const ran: Job[] = [];
  for (const filter of filters) {
    const job = await startJob(database, { action, filter, actor: actor() }, randomUUID());
    note(`job ${job.id} started; if it is stopped: ${resumeLine(job.id)}`);
    ran.push(await run(database, job, signal));
    if (ran.at(-1)?.state !== 'done') break;
  }
  return report(action, ran, flags);
}

/** Adds the commands that show, resume and cancel jobs. */
export function addJobCommands(parent: Command): void {
  sharedOptions(parent.command('jobs'))
    .description('show the last jobs and their progress, of all servers and commands')
    .addHelpText('after', '\nExamples:\n  $ waybill dead-letters jobs --json')
    .action(async (flags: SharedFlags) => {
      const jobs = await withDatabase(flags, (database) => listJobs(database));
      if (flags.json) return printJson(jobs);
      printTable(jobs, [
        'id',
        'action',
        'filter',
        'state',
        'done',
        'planned',
        'actor',
        'startedAt',
        'endedAt',
        'error',
      ]);
    });

  sharedOptions(parent.command('resume'))
    .description('do the rest of an interrupted job')
    .argument('<job>', 'the id of the job', jobId)
    .addHelpText(
      'after',
      '\nExit codes: 0 done, 1 an error, 3 no such job, 4 the job is not interrupted, 5 stopped before the end.\n\nExamples:\n  $ waybill dead-letters resume 01a1de5f-b731-742f-8845-6c60ca5acb12',
    )
    .action(async (id: string, flags: SharedFlags) => {
      await withDatabase(flags, async (database) => {
        await find(database, id);
        const job = await resumeJob(database, id, randomUUID(), actor());
        if (job === null) {
          const { state } = await find(database, id);
          throw new CommandError(
            exitCode.refused,
            `the job ${id} is ${state}: only one that is interrupted can be resumed`,
          );
        }
        const ended = await run(database, job, stopSignal());
        report(ended.action, [ended], flags);
      });
    });

  sharedOptions(parent.command('cancel'))
    .description('end a job, whichever process runs it; changes that it has made stay')
    .argument('<job>', 'the id of the job', jobId)
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill dead-letters cancel 01a1de5f-b731-742f-8845-6c60ca5acb12',
    )
    .action(async (id: string, flags: SharedFlags) => {
      const cancelled = await withDatabase(flags, async (database) => {
        await find(database, id);
        return cancelJob(database, id, actor());
      });
      if (flags.json) printJson({ job: id, cancelled });
      else print(cancelled ? `cancelled: job ${id}` : `job ${id} had ended before`);
    });
}

/** Runs until the job has ended, another process has taken it over, or the command is stopped. */
async function run(database: Database, held: HeldJob, signal: AbortSignal): Promise<Job> {
  const { id } = held;
  try {
    await runJob(database, held, {
      signal,
      async onStep() {
        if (!process.stderr.isTTY) return;
        const { action, done, planned } = await find(database, id);
        process.stderr.write(`\r${action}: ${done} of ${planned}`);
      },
      onTrouble: (error) => note(`${errorText(error)}: trying again`),
    });
  } catch (error) {
    if (isTransient(error)) note(`stopped: resume it with ${resumeLine(id)}`);
    throw error;
  }
  if (process.stderr.isTTY) note('');
  return find(database, id);
}

function report(action: JobAction, jobs: readonly Job[], flags: SharedFlags): number {
  const done = jobs.reduce((total, job) => total + job.done, 0);
  const unfinished = jobs.find(({ state }) => state !== 'done');
  const rest = unfinished && { job: unfinished.id, state: unfinished.state };
  if (flags.json) printJson({ [action]: done, ...rest });
  else print(`${action}: ${done}`);
  if (unfinished !== undefined) {
    note(why(unfinished));
    process.exitCode = exitCode.limitReached;
  }
  return done;
}

function why({ id, state }: Job): string {
  if (state === 'interrupted') return `stopped before the end: resume it with ${resumeLine(id)}`;
  if (state === 'running') return `another process has resumed job ${id}`;
  return `job ${id} was ${state} before the end`;
}

async function find(database: Database, id: string): Promise<Job> {
  const [job] = await listJobs(database, { id });
  if (job === undefined)
    throw new CommandError(
      exitCode.notFound,
      `there is no job ${id}: waybill dead-letters jobs lists them, waybill audit list what old ones did`,
    );
  return job;
}

function stopSignal(): AbortSignal {
  const controller = new AbortController();
  void untilStopped().then(() => {
    controller.abort();
    note('stopping after the batch that is running; Ctrl-C again ends at once');
  });
  return controller.signal;
}

function jobId(text: string): string {
  if (!isUuid(text)) throw new InvalidArgumentError('give the id of a job: a UUID.');
  return text;
}
