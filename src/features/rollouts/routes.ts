// HTTP routes of rollouts: the share that Waybill sends, and the comparison with the other system.

import {
  countVerdicts,
  listComparisons,
  newestComparisonsSince,
  listRollouts,
  reportSent,
  setRollout,
} from './database.js';
import {
  HttpProblem,
  jsonText,
  fraction,
  text,
  time,
  truth,
  wholeNumber,
} from '../../server/route.js';
import type { Route, RouteRequest } from '../../server/route.js';
import { actorOf } from '../../server/access.js';

const name = text({ in: 'path', description: 'the rollout' }, 50);
/** How long a browser waits for open transactions. */
const maxWaitMs = 5000;
/** A comparison takes time: if there are more, only the newest are compared. */
const comparedAtMost = 5000;

export const rolloutRoutes: readonly Route[] = [
  {
    method: 'GET',
    path: '/api/rollouts',
    scope: 'read',
    summary: 'Rollouts, and the share of each that Waybill sends.',
    returns: '`rollouts`',
    parameters: {},
    answer: async ({ database }) => ({ rollouts: await listRollouts(database) }),
  },
  {
    method: 'GET',
    path: '/api/rollouts/{name}',
    scope: 'read',
    summary:
      'What Waybill would have sent, compared with what the other system sent: the newest 5,000 comparisons, and since when if there are more.',
    returns: 'the `rollout`, the number of each of its `verdicts`, and `examples`',
    errors: { 404: 'no such rollout' },
    parameters: {
      name,
      since: time({ description: 'from then on' }),
      ignore: text({ description: 'paths that may differ, separated by commas' }),
      limit: wholeNumber(
        { description: 'the number of examples; 20 if not given' },
        { min: 0, max: 500 },
      ),
    },
    async answer(request) {
      const {
        since,
        ignore,
        limit = 20,
      } = request.values as {
        since?: Date;
        ignore?: string;
        limit?: number;
      };
      const rollout = await found(request);
      const bound = await newestComparisonsSince(request.database, rollout.name, comparedAtMost);
      const isBounded = bound !== null && (since === undefined || since < bound);
      const from = isBounded ? bound : since;
      const filter = { since: from?.toISOString() ?? null, ignore: ignore?.split(',') ?? [] };
      return {
        rollout,
        comparedSince: isBounded ? bound : null,
        verdicts: await countVerdicts(request.database, rollout.name, filter),
        examples: await listComparisons(request.database, rollout.name, filter, limit),
      };
    },
  },
  {
    method: 'POST',
    path: '/api/rollouts/{name}',
    scope: 'operate',
    summary: 'Changes the share that Waybill sends: a percentage, or only a shadow.',
    returns: 'the rollout',
    errors: { 404: 'no such rollout' },
    parameters: {
      name,
      percent: fraction(
        { in: 'body', description: 'percentage of the keys; give this or shadow' },
        { min: 0, max: 100 },
      ),
      shadow: truth({ in: 'body', description: 'render and compare everything, send nothing' }),
    },
    async answer(request) {
      const { percent, shadow = false } = request.values as {
        percent?: number;
        shadow?: boolean;
      };
      // an empty request must not return all traffic to the other system
      if (percent === undefined && !shadow)
        throw new HttpProblem(400, 'give percent, or shadow: true');
      const rollout = await found(request);
      const target = { percent: percent ?? 0, shadow };
      await setRollout(request.database, rollout.name, target, actorOf(request), { maxWaitMs });
      return { ...rollout, ...target };
    },
  },
  {
    method: 'POST',
    path: '/api/shadow',
    scope: 'operate',
    summary: 'Records what the other system has sent.',
    returns: '`reported`, the reference',
    errors: { 404: 'no such rollout' },
    parameters: {
      rollout: text({ in: 'body', required: true, description: 'the rollout' }, 50),
      reference: text({
        in: 'body',
        required: true,
        description: 'the dedupe key of the message, or its id if it has none',
      }),
      body: jsonText({ in: 'body', required: true, description: 'what was sent, as JSON' }),
    },
    async answer({ database, values }) {
      const { rollout, reference, body } = values as Record<string, string>;
      await reportSent(database, rollout ?? '', reference ?? '', body ?? '');
      return { reported: reference };
    },
  },
];

async function found({ database, values }: RouteRequest) {
  const rollouts = await listRollouts(database);
  const rollout = rollouts.find((other) => other.name === values['name']);
  if (rollout === undefined)
    throw new HttpProblem(404, `there is no rollout "${values['name'] as string}"`);
  return rollout;
}
