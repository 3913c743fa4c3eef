// Jobs over dead letters: begun with what a plan gave, done by this process in the background. All that is known of a
// job is its row in the database: any server lists, shows and cancels it, and one of them goes on with what was
// interrupted. A token that is limited to a tenant sees the jobs that were begun under the same limit.

import { countDeadLetters } from '../../database/dead-letters.js';
import type { DeadLetterAction } from '../../database/dead-letters.js';
import { cancelJob, listJobs, resumeJob, startJob } from '../../database/jobs.js';
import type { Job } from '../../database/jobs.js';
import type { Background } from '../background.js';
import { HttpProblem, time, uuid, wholeNumber } from '../route.js';
import type { Route, RouteRequest } from '../route.js';
import { action, countedAtMost, filter, filterOf } from './dead-letters.js';
import { actorOf } from './messages.js';

const job = uuid({ in: 'path', description: 'the job' });

export function deadLetterJobRoutes({ jobs, holder }: Background): readonly Route[] {
  return [
    {
      method: 'POST',
      path: '/api/dead-letters/jobs',
      scope: 'operate',
      forTenants: true,
      summary:
        'Does what was planned, in the background. What died after `deadBefore` is left alone.',
      parameters: {
        action,
        ...filter,
        deadBefore: time({ in: 'body', required: true, description: 'as the plan gave it' }),
        count: wholeNumber(
          { in: 'body', description: 'as the plan gave it; what is left of that is counted again' },
          { min: 0, max: countedAtMost },
        ),
      },
      async answer(request) {
        const { database, access } = request;
        const values = request.values as { action: DeadLetterAction; deadBefore: Date };
        const wanted = { ...filterOf(request), before: values.deadBefore };
        // everybody sees how far the job is, and so by a count of ours
        const { count } = await countDeadLetters(database, wanted, countedAtMost);
        const asked = {
          action: values.action,
          filter: wanted,
          planned: count,
          actor: actorOf(request),
          limitedTo: access.tenantId,
        };
        const id = await startJob(database, asked, holder);
        jobs.run(id);
        return found(request, id);
      },
    },
    {
      method: 'GET',
      path: '/api/dead-letters/jobs',
      scope: 'read',
      forTenants: true,
      summary: 'The last hundred jobs, newest first, whichever server runs them.',
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
      summary: 'How far a job is. `interrupted`: nobody runs it any more, and it can be resumed.',
      // whoever sees that it has ended sees what it did
      on: 'primary',
      parameters: { job },
      answer: (request) => found(request, idOf(request)),
    },
    {
      method: 'POST',
      path: '/api/dead-letters/jobs/{job}/resume',
      scope: 'operate',
      forTenants: true,
      summary:
        'Goes on with a job that was interrupted. Of several who try, one does; the others get 409.',
      parameters: { job },
      async answer(request) {
        const { id } = await found(request, idOf(request));
        if (!(await resumeJob(request.database, id, holder, actorOf(request)))) {
          const { state } = await found(request, id);
          throw new HttpProblem(
            409,
            `the job ${id} is ${state}: only one that is interrupted can be resumed`,
          );
        }
        jobs.run(id);
        return found(request, id);
      },
    },
    {
      method: 'DELETE',
      path: '/api/dead-letters/jobs/{job}',
      scope: 'operate',
      forTenants: true,
      summary: 'Stops a job, whichever server runs it; what it has done stays done.',
      parameters: { job },
      async answer(request) {
        const { id } = await found(request, idOf(request));
        await cancelJob(request.database, id, actorOf(request));
        return found(request, id);
      },
    },
  ];
}

function idOf({ values }: RouteRequest): string {
  return values['job'] as string;
}

/** Another's job does not exist for a token that is limited to a tenant. */
async function found({ database, access }: RouteRequest, id: string): Promise<Job> {
  const [one] = await listJobs(database, { id, limitedTo: access.tenantId });
  if (one === undefined)
    throw new HttpProblem(404, `there is no job ${id}: what old ones did is in the audit`);
  return one;
}
