// HTTP routes of dead-letter jobs: a job takes the values of a plan and runs in the background of this process. The
// database holds the whole state of a job, so any server lists, shows and cancels it, also a job of the command line,
// and one server resumes an interrupted job. A token that is limited to a tenant sees the jobs that were started under the same limit.

import type { DeadLetterAction } from './database.js';
import { cancelJob, isBeingUndone, listJobs, readJobResults, resumeJob, startJob } from './jobs.js';
import type { Job } from './jobs.js';
import type { Background } from '../../server/background.js';
import { HttpProblem, time, uuid } from '../../server/route.js';
import type { Route, RouteRequest } from '../../server/route.js';
import { action, filter, filterOf } from './routes.js';
import { actorOf } from '../../server/access.js';

const job = uuid({ in: 'path', description: 'the job' });

export function deadLetterJobRoutes({ jobs, holder }: Background): readonly Route[] {
  return [
    {
      method: 'POST',
      path: '/api/dead-letters/jobs',
      scope: 'operate',
      forTenants: true,
      takesKey: true,
      summary:
        'Starts a planned job in the background. Letters that died after `deadBefore` are not changed.',
      returns: 'the job, with its `id` and `state`',
      errors: { 404: 'no such destination' },
      parameters: {
        action,
        ...filter,
        deadBefore: time({
          in: 'body',
          required: true,
          description: 'use the value from the plan',
        }),
      },
      async answer(request) {
        const { database, access } = request;
        const values = request.values as { action: DeadLetterAction; deadBefore: Date };
        const started = await startJob(
          database,
          {
            action: values.action,
            filter: { ...filterOf(request), before: values.deadBefore },
            actor: actorOf(request),
            limitedTo: access.tenantId,
          },
          holder,
        );
        request.afterwards(() => jobs.run(started));
        return found(request, started.id);
      },
    },
    {
      method: 'GET',
      path: '/api/dead-letters/jobs',
      scope: 'read',
      forTenants: true,
      summary: 'The last hundred jobs, newest first, whichever server runs them.',
      returns: '`jobs`',
      on: 'primary',
      parameters: {},
      answer: async ({ database, access }) => ({
        jobs: await listJobs(database, { limitedTo: access.tenantId }),
      }),
    },
    {
      method: 'GET',
      path: '/api/dead-letters/jobs/{job}',
      scope: 'read',
      forTenants: true,
      summary: 'The progress of a job. `interrupted`: its server stopped, and it can be resumed.',
      returns: 'the job, with its `state`, `planned` and `done`',
      errors: { 404: 'no such job' },
      // from the primary: a client that sees the end of a job also sees its effect
      on: 'primary',
      parameters: { job },
      answer: (request) => found(request, idOf(request)),
    },
    {
      method: 'GET',
      path: '/api/dead-letters/jobs/{job}/results',
      scope: 'read',
      forTenants: true,
      summary:
        'What became of the letters that a job retried. It follows the first 1,000 letters, without the parked ones behind them.',
      returns:
        'the numbers of letters that are `followed`, and of these `delivered`, `dead` again, `retrying` (failed, and tried again later) and `unfinished` (not tried yet, or processing). Discarded letters are in `followed`, but in none of the other numbers',
      errors: { 404: 'no such job' },
      on: 'primary',
      parameters: { job },
      async answer(request) {
        const { id } = await found(request, idOf(request));
        return readJobResults(request.database, id);
      },
    },
    {
      method: 'POST',
      path: '/api/dead-letters/jobs/{job}/resume',
      scope: 'operate',
      forTenants: true,
      summary:
        'Resumes an interrupted job. Of several concurrent requests, one succeeds; the others get 409.',
      returns: 'the job',
      errors: { 404: 'no such job', 409: 'the job is not interrupted' },
      parameters: { job },
      async answer(request) {
        const { id } = await found(request, idOf(request));
        const resumed = await resumeJob(request.database, id, holder, actorOf(request));
        if (resumed === null) {
          const { state } = await found(request, id);
          throw new HttpProblem(
            409,
            `the job ${id} is ${state}: only one that is interrupted can be resumed`,
          );
        }
        jobs.run(resumed);
        return found(request, id);
      },
    },
    {
      method: 'POST',
      path: '/api/dead-letters/jobs/{job}/undo',
      scope: 'operate',
      forTenants: true,
      takesKey: true,
      summary:
        'Undoes a job that discarded letters: another job makes them dead letters again, as far as retention has not removed their messages.',
      returns: 'the new job, with its `id` and `state`',
      errors: {
        404: 'no such job',
        409: 'the job has not ended, discarded nothing, was undone already, or is being undone',
      },
      parameters: { job },
      async answer(request) {
        const { database, access } = request;
        const undone = await found(request, idOf(request));
        if (!undone.canUndo) throw new HttpProblem(409, whyNoUndo(undone));
        const started = await startJob(
          database,
          {
            action: 'restore',
            filter: {
              job: undone.id,
              ...(access.tenantId !== null && { tenantId: access.tenantId }),
            },
            actor: actorOf(request),
            limitedTo: access.tenantId,
          },
          holder,
        ).catch((error: unknown) => {
          if (isBeingUndone(error)) throw new HttpProblem(409, error.message, { cause: error });
          throw error;
        });
        request.afterwards(() => jobs.run(started));
        return found(request, started.id);
      },
    },
    {
      method: 'DELETE',
      path: '/api/dead-letters/jobs/{job}',
      scope: 'operate',
      forTenants: true,
      summary: 'Stops a job, whichever server runs it. Changes that it has made stay.',
      returns: 'the job',
      errors: { 404: 'no such job' },
      parameters: { job },
      async answer(request) {
        const { id } = await found(request, idOf(request));
        await cancelJob(request.database, id, actorOf(request));
        return found(request, id);
      },
    },
  ];
}

function whyNoUndo({ id, action: done, state }: Job): string {
  if (done !== 'discard') return `the job ${id} is a ${done}: only a discard can be undone`;
  if (state === 'running' || state === 'interrupted')
    return `the job ${id} is ${state}: stop it first, then undo it`;
  return `the job ${id} is being undone by another job, or has nothing left to restore: its letters were restored or replayed, or retention has removed their messages`;
}

function idOf({ values }: RouteRequest): string {
  return values['job'] as string;
}

/** For a token that is limited to a tenant, jobs of others do not exist. */
async function found({ database, access }: RouteRequest, id: string): Promise<Job> {
  const [one] = await listJobs(database, { id, limitedTo: access.tenantId });
  if (one === undefined)
    throw new HttpProblem(404, `there is no job ${id}: the audit shows what old jobs did`);
  return one;
}
