// HTTP routes of dead letters: groups by cause, plans of changes, and the undo of a discard; a job carries a plan out
// (job-routes.ts). Also requeues all deliveries that wait for a retry. The letters themselves are listed by
// GET /api/messages?status=dead (server/api/messages.ts).

import { retryMatchingNow } from '../../listing/deliveries.js';
import { findDestination } from '../../database/definitions.js';
import type { MessageFilter } from '../../listing/message-ranges.js';
import { codeFilter } from './code-filter.js';
import { countDeadLetters, groupDeadLetters, listDeadLetters, restoreLetter } from './database.js';
import type { DeadLetterAction, DeadLetterFilter, GroupFilter } from './database.js';
import { HttpProblem, text, texts, time, uuid, uuids, word } from '../../server/route.js';
import type { Route, RouteRequest } from '../../server/route.js';
import { actorOf } from '../../server/access.js';
import { messageOf } from '../../server/api/messages.js';
import { payloadParameters, withPayloadFilter } from '../../server/api/payload-parameters.js';
import type { Configured } from '../../server/api/payload-parameters.js';

const countedAtMost = 100_000;
const sampled = 5;

export const action = word(
  { in: 'body', required: true, description: 'the action on the letters' },
  ['retry', 'skip', 'discard'] as const,
);

export const filter = {
  destination: text({ in: 'body', description: 'at this destination' }),
  errorCode: text({
    in: 'body',
    description:
      'with this code, or with this HTTP status; beside `causes`, those of them that have this code',
  }),
  topic: text({ in: 'body', description: 'of this topic' }),
  tenantId: text({ in: 'body', description: 'of this tenant' }),
  ids: uuids({ in: 'body', description: 'these messages' }, 1000),
  destinations: texts(
    {
      in: 'body',
      description:
        'the destination of each of `ids`; without it, their letters at all destinations',
    },
    1000,
    63,
  ),
  causes: texts(
    {
      in: 'body',
      description:
        'with one of these causes: the error code and the code of the other side, such as `http_status 500`',
    },
    500,
  ),
} as const;

export const deadLetterRoutes: readonly Route[] = [
  {
    method: 'GET',
    path: '/api/dead-letters/groups',
    scope: 'read',
    forTenants: true,
    summary:
      'Dead letters by cause, over all destinations: the error code and the code of the other side, with the count, the oldest and newest time, and the newest error. Large counts are estimates (`isExact`); with a destination, topic or tenant, the newest 10,000 letters are counted.',
    returns: '`groups`, largest first',
    parameters: {
      destination: text({ description: 'at this destination' }),
      errorCode: text({ description: 'with this code, or with this HTTP status' }),
      topic: text({ description: 'of this topic' }),
      tenantId: text({ description: 'of this tenant' }),
    },
    async answer({ database, access, values }) {
      const wanted = values as GroupFilter;
      const tenantId = access.tenantId ?? wanted.tenantId;
      const asked = { ...wanted, ...(tenantId !== undefined && { tenantId }) };
      return { groups: await groupDeadLetters(database, asked) };
    },
  },
  {
    method: 'POST',
    path: '/api/messages/{id}/restore',
    scope: 'operate',
    forTenants: true,
    summary:
      'Undoes a discard: the dead letters of the message that were discarded are dead letters again. Possible until retention removes the message.',
    returns: '`restored`, the number of dead letters',
    errors: {
      404: 'no such message or destination',
      409: 'nothing to restore: the error says what the message is',
    },
    parameters: {
      id: uuid({ in: 'path', description: 'the message' }),
      destination: text({
        in: 'body',
        description: 'at this destination; without it, at all destinations',
      }),
    },
    async answer(request) {
      const { database, values } = request;
      const message = await messageOf(request);
      const destination = values['destination'] as string | undefined;
      const letter = { messageId: message.id, destination };
      const restored = await restoreLetter(database, letter, actorOf(request));
      // read again: another request may have restored it meanwhile
      if (restored === 0) throw new HttpProblem(409, whyNot(await messageOf(request), destination));
      return { restored };
    },
  },
  {
    method: 'POST',
    path: '/api/dead-letters/plan',
    scope: 'read',
    forTenants: true,
    summary: 'Plans a job: how many letters it would change, and some of them. Changes nothing.',
    returns: '`count`, `deadBefore` and a `sample`',
    errors: { 404: 'no such destination' },
    parameters: { action, ...filter },
    async answer(request) {
      const { database, values } = request;
      const { action: planned } = values as { action: DeadLetterAction };
      const wanted = filterOf(request);
      const { count, deadBefore } = await countDeadLetters(database, wanted, countedAtMost);
      const sample = await listDeadLetters(database, wanted, sampled);
      return { action: planned, count, atLeast: count === countedAtMost, deadBefore, sample };
    },
  },
];

/** The changes of deliveries that wait for a retry. */
export function retryingRoutes(config: Configured): readonly Route[] {
  const { parameters, remedyFor } = payloadParameters(config, { in: 'body' });
  return [
    {
      method: 'POST',
      path: '/api/retrying/retry',
      scope: 'operate',
      summary: 'Makes all matching deliveries that wait for a retry due now.',
      returns: '`madeDue`, the number of deliveries',
      errors: { 404: 'no such destination' },
      parameters: {
        destination: text({
          in: 'body',
          description: 'at this destination; without it, at all destinations',
        }),
        errorCode: text({ in: 'body', description: 'whose last try failed with this code' }),
        topic: text({ in: 'body', description: 'of this topic' }),
        namespace: text({ in: 'body', description: 'of this namespace' }),
        tenantId: text({ in: 'body', description: 'of this tenant' }),
        key: text({ in: 'body', description: 'of this key' }),
        aggregateType: text({ in: 'body', description: 'of this kind of aggregate' }),
        aggregateId: text({ in: 'body', description: 'of this aggregate' }),
        id: uuid({ in: 'body', description: 'this message' }),
        dedupeKey: text({ in: 'body', description: 'with this dedupe key' }),
        failedFrom: time({ in: 'body', description: 'with a try that failed at or after' }),
        failedTo: time({ in: 'body', description: 'with a try that failed before' }),
        from: time({ in: 'body', description: 'created at or after' }),
        to: time({ in: 'body', description: 'created before' }),
        ...parameters,
      },
      remedyFor,
      async answer(request) {
        const { destination } = request.values as MessageFilter;
        // an unknown destination is an error even if the other filters find nothing
        if (destination !== undefined) await findDestination(request.database, destination);
        const matching = withPayloadFilter(request.values) as MessageFilter;
        return { madeDue: await retryMatchingNow(request.database, matching, actorOf(request)) };
      },
    },
  ];
}

/** Why no letter of a message could be restored. */
function whyNot(
  {
    id,
    deliveries,
  }: { id: string; deliveries: readonly { destination: string | null; status: string }[] },
  destination: string | undefined,
): string {
  const places = deliveries
    .filter((place) => destination === undefined || place.destination === destination)
    .map((place) => `${place.status} at ${place.destination ?? 'no destination'}`);
  const was =
    places.length === 0
      ? `was never at ${destination ?? 'a destination'}`
      : `is ${places.join(', ')}`;
  const rule = places.some((place) => place.startsWith('discarded'))
    ? 'no dead letter of it is kept: it was cancelled, moved or too old before it died, or retention discarded it'
    : 'only a discarded dead letter can be restored';
  return `the message ${id} ${was}: ${rule}; to send it again, replay it`;
}

/** The filter of a request; a token that is limited to a tenant gets only letters of that tenant. */
export function filterOf({ access, values }: RouteRequest): DeadLetterFilter {
  const { destination, ids, destinations, topic, tenantId, ...given } = values as DeadLetterFilter;
  const { errorCode, causes } = codeFilter(given);
  if (destinations !== undefined && destinations.length !== ids?.length)
    throw new HttpProblem(
      400,
      `destinations has ${destinations.length} entries and ids has ${ids?.length ?? 0}: give a destination for each id`,
    );
  const tenant = access.tenantId ?? tenantId;
  return {
    ...(destination !== undefined && { destination }),
    ...(ids !== undefined && { ids }),
    ...(destinations !== undefined && { destinations }),
    ...(causes !== undefined && { causes }),
    ...(errorCode !== undefined && { errorCode }),
    ...(topic !== undefined && { topic }),
    ...(tenant !== undefined && { tenantId: tenant }),
  };
}
