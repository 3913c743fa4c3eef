// Dead letters by destination and code, and what is done with many of them: a plan says how many and which, a job
// does it.

import { retryMatchingNow } from '../../database/deliveries.js';
import { findDestination } from '../../database/definitions.js';
import type { MessageFilter } from '../../database/message-ranges.js';
import {
  countDeadLetters,
  groupDeadLetters,
  listDeadLetters,
} from '../../database/dead-letters.js';
import type { DeadLetterAction, DeadLetterFilter } from '../../database/dead-letters.js';
import type { Jobs } from '../jobs.js';
import { HttpProblem, text, time, uuid, uuids, wholeNumber, word } from '../route.js';
import type { Route } from '../route.js';
import { actorOf } from './messages.js';

const countedAtMost = 100_000;
const sampled = 5;

const action = word({ in: 'body', required: true, description: 'what to do with them' }, [
  'retry',
  'skip',
  'discard',
] as const);

const filter = {
  destination: text({ in: 'body', description: 'at this destination' }),
  errorCode: text({ in: 'body', description: 'with this code' }),
  topic: text({ in: 'body', description: 'of this topic' }),
  tenantId: text({ in: 'body', description: 'of this tenant' }),
  ids: uuids({ in: 'body', description: 'these messages' }, 1000),
} as const;

export function deadLetterRoutes(jobs: Jobs): readonly Route[] {
  return [
    {
      method: 'GET',
      path: '/api/dead-letters/groups',
      scope: 'read',
      summary: 'Dead letters by destination and code. Above 1,000 of each it is an estimate.',
      parameters: {},
      answer: async ({ database }) => ({ groups: await groupDeadLetters(database) }),
    },
    {
      method: 'POST',
      path: '/api/dead-letters/plan',
      scope: 'read',
      summary: 'How many a job would change, and some of them. Nothing is changed.',
      parameters: { action, ...filter },
      async answer({ database, values }) {
        const { action: planned, ...wanted } = values as DeadLetterFilter & {
          action: DeadLetterAction;
        };
        const { count, deadBefore } = await countDeadLetters(database, wanted, countedAtMost);
        const sample = await listDeadLetters(database, wanted, sampled);
        return { action: planned, count, atLeast: count === countedAtMost, deadBefore, sample };
      },
    },
    {
      method: 'POST',
      path: '/api/dead-letters/jobs',
      scope: 'operate',
      summary:
        'Does what was planned, in the background. What died after `deadBefore` is left alone.',
      parameters: {
        action,
        ...filter,
        deadBefore: time({ in: 'body', required: true, description: 'as the plan gave it' }),
        count: wholeNumber(
          { in: 'body', required: true, description: 'as the plan gave it' },
          { min: 0, max: countedAtMost },
        ),
      },
      answer(request) {
        const {
          action: wanted,
          deadBefore,
          count,
          ...rest
        } = request.values as DeadLetterFilter & {
          action: DeadLetterAction;
          deadBefore: Date;
          count: number;
        };
        const job = jobs.start(wanted, { ...rest, before: deadBefore }, count, actorOf(request));
        return Promise.resolve(job);
      },
    },
    {
      method: 'GET',
      path: '/api/dead-letters/jobs',
      scope: 'read',
      summary: 'The jobs of this server since it started, newest first.',
      on: 'primary',
      parameters: {},
      answer: () => Promise.resolve({ jobs: jobs.list() }),
    },
    {
      method: 'GET',
      path: '/api/dead-letters/jobs/{job}',
      scope: 'read',
      summary: 'How far a job is.',
      // whoever sees that it has ended sees what it did
      on: 'primary',
      parameters: { job: uuid({ in: 'path', description: 'the job' }) },
      answer: ({ values }) => Promise.resolve(known(jobs.find(values['job'] as string))),
    },
    {
      method: 'DELETE',
      path: '/api/dead-letters/jobs/{job}',
      scope: 'operate',
      summary: 'Stops a job; what it has done stays done.',
      parameters: { job: uuid({ in: 'path', description: 'the job' }) },
      answer: ({ values }) => Promise.resolve(known(jobs.cancel(values['job'] as string))),
    },
    {
      method: 'POST',
      path: '/api/retrying/retry',
      scope: 'operate',
      summary: 'Everything that waits for a retry and matches becomes due now.',
      parameters: {
        destination: text({ in: 'body', description: 'at this destination; without it, at all' }),
        errorCode: text({ in: 'body', description: 'that failed with this code last' }),
        topic: text({ in: 'body', description: 'of this topic' }),
        namespace: text({ in: 'body', description: 'of this namespace' }),
        tenantId: text({ in: 'body', description: 'of this tenant' }),
        key: text({ in: 'body', description: 'of this key' }),
        aggregateType: text({ in: 'body', description: 'of this kind of aggregate' }),
        aggregateId: text({ in: 'body', description: 'of this aggregate' }),
        id: uuid({ in: 'body', description: 'this message' }),
        from: time({ in: 'body', description: 'created at or after' }),
        to: time({ in: 'body', description: 'created before' }),
      },
      async answer(request) {
        const { destination } = request.values as MessageFilter;
        // an unknown one is refused, whatever the other filters find
        if (destination !== undefined) await findDestination(request.database, destination);
        return {
          madeDue: await retryMatchingNow(request.database, request.values, actorOf(request)),
        };
      },
    },
  ];
}

function known<T>(job: T | undefined): T {
  if (job === undefined)
    throw new HttpProblem(
      404,
      'this server process knows no such job: it runs in another one, or ended with one; what it did is in the audit',
    );
  return job;
}
