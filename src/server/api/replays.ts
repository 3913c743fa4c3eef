// Replays over HTTP: a plan says how many and which, a start needs what the plan gave, and the work is done step by
// step by this process. All that is known of a replay is its row in the database: any server shows, resumes and
// cancels it.

import { databaseTime } from '../../database/dead-letters.js';
import {
  cancelReplay,
  listReplays,
  planReplay,
  resumeReplay,
  startReplay,
} from '../../database/replays.js';
import type { ReplayFilter, ReplayReport } from '../../database/replays.js';
import { ConfigurationError } from '../../errors.js';
import type { Runs } from '../background.js';
import { HttpProblem, text, time, truth, uuids, wholeNumber } from '../route.js';
import type { Place, Route, RouteRequest } from '../route.js';
import { actorOf } from './messages.js';

const usualPerSecond = 100;
/** What PostgreSQL says when a statement took too long. */
const queryCancelled = '57014';

const filter = {
  destination: text({ in: 'body', required: true, description: 'where to' }),
  ids: uuids({ in: 'body', description: 'these messages' }, 1000),
  topic: text({ in: 'body', description: 'of this topic; user.* for all that begin so' }),
  namespace: text({ in: 'body', description: 'of this namespace' }),
  tenantId: text({ in: 'body', description: 'of this tenant' }),
  key: text({ in: 'body', description: 'of this key' }),
  since: time({ in: 'body', description: 'created at or after' }),
  all: truth({
    in: 'body',
    description: 'everything that the destination has had, or its routes want: instead of a filter',
  }),
} as const;

const rate = (): ReturnType<typeof wholeNumber> =>
  wholeNumber(
    { in: 'body', description: `at most so many a second; ${usualPerSecond} if not given` },
    { min: 1, max: 1_000_000 },
  );
const replay = wholeNumber(
  { in: 'path', description: 'the number of the replay' },
  { min: 1, max: Number.MAX_SAFE_INTEGER },
);
const until = (place: Pick<Place, 'description' | 'required'>) => time({ in: 'body', ...place });

export function replayRoutes(runs: Runs): readonly Route[] {
  return [
    {
      method: 'POST',
      path: '/api/replays/plan',
      scope: 'read',
      summary:
        'How many messages a replay would send again, the first of them, and what retention has removed. Nothing is changed.',
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
      summary:
        'Begins what was planned, in the background, or goes on with the unfinished replay that asks for the same. What was enqueued from `until` on is not part of it.',
      parameters: {
        ...filter,
        until: until({ required: true, description: 'as the plan gave it' }),
        perSecond: rate(),
      },
      async answer(request) {
        const { database, values } = request;
        const perSecond = (values['perSecond'] as number | undefined) ?? usualPerSecond;
        const { id } = await startReplay(database, wantedOf(values), perSecond, actorOf(request));
        runs.run(id);
        return report(request, id);
      },
    },
    {
      method: 'GET',
      path: '/api/replays',
      on: 'primary',
      scope: 'read',
      summary: 'The last hundred replays, newest first, whoever began them.',
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
      summary: 'How far a replay has come.',
      parameters: { replay },
      answer: (request) => report(request, idOf(request)),
    },
    {
      method: 'POST',
      path: '/api/replays/{replay}/resume',
      scope: 'operate',
      summary: 'Goes on with a replay that is unfinished and that nobody runs any more.',
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
      summary: 'Ends a replay where it stands, whoever runs it; what it has brought stays.',
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

/** Everything is never what somebody forgot to narrow. */
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
