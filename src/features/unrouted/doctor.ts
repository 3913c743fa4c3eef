// Doctor check of topics without a route.

import { counted, listed, ok, readRow, warning, waybill } from '../../doctor/check.js';
import type { Check } from '../../doctor/check.js';
import { listUnrouted } from './database.js';
import type { UnroutedGroup } from './database.js';

const unrouted: Check = {
  code: 'topics_unrouted',
  title: 'every topic has a route',
  finds:
    'Warning for messages without a route, by topic (of at most the oldest 10,000), with the number of days that they are of: retention keeps them.',
  needs: 'schema',
  run: async (context) => {
    const { database, schema } = context;
    const { groups } = await listUnrouted(database, {}, 10_000);
    if (groups.length === 0) return ok('no message is without a route');
    const shown = [...byTopic(groups)].map(
      ([topic, { count, example, hasRoute }]) =>
        `${topic} (${counted(count, 'message')}, such as ${example}${hasRoute ? '; it has a route now' : ''})`,
    );
    const { days, since } = await readRow<{ days: number; since: string }>(
      database,
      'look for days that are kept',
      // one index lookup for each day
      `SELECT count(*)::int AS days, to_char(min(d.day), 'YYYY-MM-DD') AS since
         FROM ${schema}.partition_bounds($1::text::regclass) d
        WHERE EXISTS (
          SELECT FROM ${schema}.unrouted_messages u
           WHERE u.message_id >= ${schema}.id_at(d.day::timestamp AT TIME ZONE 'UTC')
             AND u.message_id < ${schema}.id_at((d.day + 1)::timestamp AT TIME ZONE 'UTC'))`,
      [`${schema}.messages`],
    );
    return warning(
      `without a route: ${listed(shown)}. They are of ${counted(days, 'day')}, from ${since} on; retention does not remove them`,
      'Add a route for the topic to the configuration and restart the relays, then route the messages. Discard those that are not needed: waybill unrouted discard.',
      [waybill(context, 'unrouted route')],
    );
  },
};

type OfTopic = Pick<UnroutedGroup, 'count' | 'example' | 'hasRoute'>;

/** A topic may have a group for each of its tenants. */
function byTopic(groups: readonly UnroutedGroup[]): Map<string, OfTopic> {
  const topics = new Map<string, OfTopic>();
  for (const { topic, count, example, hasRoute } of groups) {
    const before = topics.get(topic);
    topics.set(topic, {
      count: count + (before?.count ?? 0),
      example: before?.example ?? example,
      hasRoute: hasRoute || (before?.hasRoute ?? false),
    });
  }
  return topics;
}

export const unroutedChecks = [unrouted];
