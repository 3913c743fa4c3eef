// Flow: which topics go to which destinations, with their rates and the problems of the destinations. The largest ones
// are listed, and the rest is only counted, so that a diagram of them can be read. The database chooses them, so that
// very many destinations cost the server little.

import {
  decidingProblems,
  destinationProblems,
  problemState,
} from '../../core/destination-state.js';
import type { DestinationProblem } from '../../core/destination-state.js';
import type { Database } from '../../database/connection.js';
import { destinationsOf, readTopics } from './catalogue.js';
import { countNamedTopics, readReceivers } from './receivers.js';

/** At most so many topics are listed, and so many destinations. */
const most = 20;
/**
 * The rates of topics are those of this time, extended to whole slices of 10 minutes and up to what is counted, or of
 * the time since the first message.
 */
const rateMs = 600_000;

export type FlowTopic = { topic: string; perSecond: number; destinations: string[] };
export type FlowDestination = {
  name: string;
  /** Tries a second, over the last minute. */
  perSecond: number;
  state: 'good' | 'warn' | 'bad';
  /** What is wrong; null if nothing is. */
  problem: string | null;
};
export type Flow = {
  /** The period of the rates of topics; if it is empty, nothing is counted yet. */
  from: Date;
  to: Date;
  topics: FlowTopic[];
  destinations: FlowDestination[];
  /** How many more there are. */
  otherTopics: number;
  otherDestinations: number;
  completeTo: Date | null;
};

export async function readFlow(database: Database, now: Date): Promise<Flow> {
  const report = await readTopics(database, { from: new Date(now.getTime() - rateMs), to: now });
  const { completeTo } = report;
  const countedMs = Math.min(report.to.getTime(), completeTo?.getTime() ?? -Infinity);
  const [{ begunAt } = { begunAt: null }] = await database.query<{ begunAt: Date | null }>(
    'read first message',
    `SELECT ${database.schema}.id_time(id) AS "begunAt" FROM ${database.schema}.messages ORDER BY id LIMIT 1`,
  );
  const from = new Date(Math.max(report.from.getTime(), begunAt?.getTime() ?? 0));
  const to = new Date(Math.max(countedMs, from.getTime()));
  const seconds = (to.getTime() - from.getTime()) / 1000;
  const { destinations, otherDestinations } = await readDestinations(database);
  const receivers = await readReceivers(
    database,
    destinations.map(({ name }) => name),
  );
  const counted = report.rows.flatMap(({ name, messages }) =>
    name === null ? [] : [{ topic: name, perSecond: seconds > 0 ? messages / seconds : 0 }],
  );
  const seen = new Set(counted.map(({ topic }) => topic));
  // topics that a route names are shown too, although nothing was sent lately
  const routed = [...new Set(receivers.map(({ topic }) => topic))]
    .filter((topic) => !topic.endsWith('*') && !seen.has(topic))
    .map((topic) => ({ topic, perSecond: 0 }));
  const topics = [...counted, ...routed].slice(0, most);
  const named = await countNamedTopics(database, [...seen]);
  return {
    from,
    to,
    topics: topics.map((each) => ({
      ...each,
      destinations: destinationsOf(each.topic, receivers),
    })),
    destinations,
    otherTopics: counted.length + named - topics.length,
    otherDestinations,
    completeTo,
  };
}

type Found = Pick<FlowDestination, 'name' | 'perSecond'> & {
  problem: DestinationProblem | null;
  /** Successful tries of the last five minutes; null if there were no tries. */
  delivered: number | null;
  inAll: number;
};

/**
 * The destinations of configurations and SQL, the most urgent problems first, then the busiest. Problems are those of
 * now, and of the results of the last five minutes.
 */
async function readDestinations(
  database: Database,
): Promise<{ destinations: FlowDestination[]; otherDestinations: number }> {
  const { schema } = database;
  // destinations that are in no configuration are left out
  const conditions: Record<DestinationProblem, string> = {
    breaker: 'b.name IS NOT NULL',
    unconfigured: 'false',
    failing: 'c.failed > c.delivered',
    dead: 'y.id IS NOT NULL',
    paused: 'n.paused',
  };
  const cases = decidingProblems.map((problem) => `WHEN ${conditions[problem]} THEN '${problem}'`);
  const rows = await database.query<Found>(
    'read flow of destinations',
    // joins instead of a look-up for each destination: the planner chooses by their number
    `WITH slices AS MATERIALIZED (SELECT date_bin('10 seconds', statement_timestamp(), 'epoch') AS now),
     named AS MATERIALIZED (
       SELECT d.id, d.name, d.paused_at IS NOT NULL AS paused FROM ${schema}.destinations d WHERE d.origin = 'file' AND d.configured),
     counts AS (
       SELECT n.id, coalesce(sum(s.delivered + s.retried + s.died) FILTER (WHERE s.slice >= x.now - interval '1 minute'), 0) AS tries,
              sum(s.delivered) AS delivered, sum(s.retried + s.died) AS failed
         FROM slices x CROSS JOIN named n
         JOIN ${schema}.statistics s ON s.destination_id = n.id AND s.slice < x.now AND s.slice >= x.now - interval '5 minutes'
        GROUP BY n.id),
     dying AS (
       SELECT n.id FROM named n WHERE EXISTS (SELECT FROM ${schema}.dead_letters l WHERE l.destination_id = n.id)),
     broken AS (
       SELECT DISTINCT b.name FROM ${schema}.relays r CROSS JOIN LATERAL jsonb_object_keys(r.breakers) b(name)
        WHERE r.heartbeat_at > clock_timestamp() - interval '1 minute'),
     found AS (
       SELECT n.name, coalesce(c.tries, 0)::float8 / 60 AS "perSecond",
              c.delivered::float8 AS delivered, CASE ${cases.join(' ')} END AS problem
         FROM named n LEFT JOIN counts c ON c.id = n.id LEFT JOIN dying y ON y.id = n.id LEFT JOIN broken b ON b.name = n.name)
     SELECT f.*, count(*) OVER ()::int AS "inAll" FROM found f
      ORDER BY array_position($1::text[], f.problem), f."perSecond" DESC, f.name LIMIT ${most}`,
    [destinationProblems],
  );
  return {
    destinations: rows.map(({ name, perSecond, problem, delivered }) => {
      const state = problem === null ? null : problemState(problem, delivered === 0);
      return { name, perSecond, state: state?.kind ?? 'good', problem: state?.words ?? null };
    }),
    otherDestinations: (rows[0]?.inAll ?? 0) - rows.length,
  };
}
