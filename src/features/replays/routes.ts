// HTTP routes of replays: a plan says how many messages match and shows some, a start takes the values of the plan, and
// this process runs the replay step by step. The database holds the whole state of a replay, so any server shows,
// resumes and cancels it.

import { databaseTime } from '../../database/time.js';
import { cancelReplay, listReplays, planReplay, resumeReplay, startReplay } from './database.js';
import type { ReplayFilter, ReplayReport } from './database.js';
import { ConfigurationError } from '../../core/errors.js';
import type { Runs } from '../../server/background.js';
import { HttpProblem, text, time, truth, uuids, wholeNumber } from '../../server/route.js';
import type { Place, Route, RouteRequest } from '../../server/route.js';
import { actorOf } from '../../server/access.js';

const usualPerSecond = 100;
/** PostgreSQL's code for a statement that was cancelled because it took too long. */
const queryCancelled = '57014';

const filter = {
  destination: text({ in: 'body', required: true, description: 'the destination of the replay' }),
  ids: uuids({ in: 'body', description: 'these messages' }, 1000),
  topic: text({
    in: 'body',
    description: 'of this topic; `order.*` for every topic that begins with `order.`',
  }),
  namespace: text({ in: 'body', description: 'of this namespace' }),
  tenantId: text({ in: 'body', description: 'of this tenant' }),
  key: text({ in: 'body', description: 'of this key' }),
  since: time({ in: 'body', description: 'created at or after' }),
  all: truth({
    in: 'body',
    description:
      'all messages that the destination has had, or that its routes match, instead of a filter',
  }),
} as const;

const rate = (): ReturnType<typeof wholeNumber> =>
  wholeNumber(
    { in: 'body', description: `the most messages per second; ${usualPerSecond} if not given` },
    { min: 1, max: 1_000_000 },
  );
const replay = wholeNumber(
  { in: 'path', description: 'the number of the replay' },
  { min: 1, max: Number.MAX_SAFE_INTEGER },
);
const until = (place: Pick<Place, 'description' | 'required'>) => time({ in: 'body', ...place });

export function replayRoutes(runs: Runs<string>): readonly Route[] {
  return [
    {
      method: 'POST',
      path: '/api/replays/plan',
      scope: 'read',
      summary:
        'Plans a replay: how many messages it would send again, the first of them, and how many retention has removed. Changes nothing.',
      returns: 'the number of `messages`, a `sample`, `keptSince` and `until`',
      errors: { 404: 'no such destination', 503: 'counting took too long: narrow the filter' },
      parameters: { ...filter, until: until({ description: 'created before; now if not given' }) },
      async answer({ database, values }) {
        const wanted = wantedOf(values);
        const before = wanted.until ?? (await databaseTime(database));
        try {
          return { ...(await planReplay(database, { ...wanted, until: before })), until: before };
        } catch (error) {
          if ((error as { code?: unknown }).code !== queryCancelled) throw error;
          throw new HttpProblem(
            503,
            'counting took too long: give a narrower filter, or plan it on the command line with waybill replay --plan',
          );
        }
      },
    },
    {
      method: 'POST',
      path: '/api/replays',
      scope: 'operate',
      takesKey: true,
      summary:
        'Starts a planned replay in the background, or continues the unfinished replay with the same filter. Messages enqueued from `until` on are not part of it.',
      returns: 'the replay, with its `id` and `state`',
      errors: { 404: 'no such destination' },
      parameters: {
        ...filter,
        until: until({ required: true, description: 'use the value from the plan' }),
        perSecond: rate(),
      },
      async answer(request) {
        const { database, values } = request;
        const perSecond = (values['perSecond'] as number | undefined) ?? usualPerSecond;
        const { id } = await startReplay(database, wantedOf(values), perSecond, actorOf(request));
        request.afterwards(() => runs.run(id));
        return report(request, id);
      },
    },
    {
      method: 'GET',
      path: '/api/replays',
      on: 'primary',
      scope: 'read',
      summary: 'The last hundred replays of all users, newest first.',
      returns: '`replays`',
      parameters: {},
      answer: async ({ database }) => ({
        replays: (await listReplays(database)).map(withFailure),
      }),
    },
    {
      method: 'GET',
      path: '/api/replays/{replay}',
      on: 'primary',
      scope: 'read',
      summary: 'The progress of a replay.',
      returns: 'the replay, with its `state` and `replayed`',
      errors: { 404: 'no such replay' },
      parameters: { replay },
      answer: (request) => report(request, idOf(request)),
    },
    {
      method: 'POST',
      path: '/api/replays/{replay}/resume',
      scope: 'operate',
      summary: 'Resumes an unfinished replay that is not running.',
      returns: 'the replay',
      errors: { 404: 'no such replay' },
      parameters: { replay, perSecond: rate() },
      async answer(request) {
        const id = idOf(request);
        const perSecond = request.values['perSecond'] as number | undefined;
        await resumeReplay(request.database, id, perSecond ?? null, actorOf(request));
        runs.run(id);
        return report(request, id);
      },
    },
    {
      method: 'DELETE',
      path: '/api/replays/{replay}',
      scope: 'operate',
      summary: 'Cancels a replay, whichever server runs it. Messages that it has replayed stay.',
      returns: 'the replay',
      errors: { 404: 'no such replay' },
      parameters: { replay },
      async answer(request) {
        const id = idOf(request);
        await cancelReplay(request.database, id, actorOf(request));
        return report(request, id);
      },
    },
  ];

  function withFailure(found: ReplayReport): ReplayReport & { error: string | null } {
    return { ...found, error: found.state === 'unfinished' ? runs.failureOf(found.id) : null };
  }

  async function report({ database }: RouteRequest, id: string): Promise<ReplayReport> {
    const [found] = await listReplays(database, id);
    if (found === undefined) throw new HttpProblem(404, `there is no replay ${id}`);
    return withFailure(found);
  }
}

function idOf({ values }: RouteRequest): string {
  return String(values['replay']);
}

/** Rejects a request without any filter: a forgotten filter must not replay everything. */
function wantedOf(values: RouteRequest['values']): ReplayFilter {
  const {
    all,
    perSecond: _,
    ...wanted
  } = values as ReplayFilter & {
    all?: boolean;
    perSecond?: number;
  };
  const { destination: _where, until: _until, ...narrowing } = wanted;
  if (Object.keys(narrowing).length === 0 && all !== true)
    throw new ConfigurationError(
      'which ones? Give ids, topic, namespace, tenantId, key or since, or all: true',
    );
  return wanted;
}
