// Event catalogue: the typed events of the configuration, and topics that were only seen in the log, each with its
// receivers and its volume.

import type { DefinedEvents } from '../../producer/events/event-definitions.js';
import { versionOf } from '../../producer/events/event-definitions.js';
import { exampleOf } from '../../producer/events/example.js';
import { jsonSchemaOf } from '../../producer/events/json-schema.js';
import type { JsonSchema } from '../../producer/events/json-schema.js';
import { errorText } from '../../core/errors.js';
import { isWithin } from '../../core/route.js';
import type { Database } from '../../database/connection.js';
import { periodNames, periodOf, readReport } from '../reports/report.js';
import type { CountRow, Period, PeriodName, Report } from '../reports/report.js';
import { countEndpoints, readReceivers } from './receivers.js';
import type { Receiver } from './receivers.js';

/** The names of the periods for which there are volumes. */
export { periodNames };
export type { PeriodName };

/** The names of a report, without all others together. */
const mostTopics = 1000;

export type CatalogueEntry = {
  topic: string;
  /** The topic without its version: `user.registered.v2` is version 2 of `user.registered`. */
  event: string;
  version: number;
  /** Whether the configuration of this server has a schema for it. */
  declared: boolean;
  description: string | null;
  /** The names of its destinations; endpoints are not among them. */
  destinations: string[];
  /** In the period. */
  messages: number;
  perSecond: number | null;
};

export type Catalogue = Pick<Report, 'from' | 'to' | 'completeTo'> & { events: CatalogueEntry[] };

/** By topic. Of the topics without a declaration, the 1,000 largest of the period. */
export async function readCatalogue(
  database: Database,
  declared: DescribedEvents,
  period: PeriodName,
): Promise<Catalogue> {
  const [{ rows, from, to, completeTo }, receivers] = await Promise.all([
    topicsOf(database, period),
    readReceivers(database),
  ]);
  const seen = new Map(rows.map((row) => [row.name, row]));
  const topics = new Set([...declared.keys(), ...seen.keys()]);
  return {
    from,
    to,
    completeTo,
    events: [...topics]
      .filter((topic) => topic !== null)
      .toSorted()
      .map((topic) => ({
        topic,
        ...versionOf(topic),
        declared: declared.has(topic),
        description: declared.get(topic)?.description ?? null,
        destinations: destinationsOf(topic, receivers),
        messages: seen.get(topic)?.messages ?? 0,
        perSecond: seen.get(topic)?.perSecond ?? null,
      })),
  };
}

export type CatalogueEvent = Pick<CatalogueEntry, 'topic' | 'event' | 'version' | 'declared'> & {
  description: string | null;
  /** The JSON Schema of its payload; null if there is none. */
  schema: JsonSchema | null;
  /** Why its schema cannot be shown; null if it can. */
  problem: string | null;
  /** The first of the examples of its schema, or one made from it; undefined without a schema. */
  example?: unknown;
  /** The topics of the declared versions of the event, this one too if it is declared. */
  versions: string[];
  receivers: Receiver[];
  /** Endpoints with a route for it, counted up to 10,000. */
  endpoints: number;
  /** The messages of each period. */
  volume: Record<PeriodName, number>;
  completeTo: Date | null;
};

/** Null if the topic is neither declared, nor was seen in the last 30 days, nor has a receiver of its own. */
export async function readCatalogueEvent(
  database: Database,
  declared: DescribedEvents,
  topic: string,
): Promise<CatalogueEvent | null> {
  const [reports, receivers, endpoints] = await Promise.all([
    Promise.all(periodNames.map((period) => topicsOf(database, period, topic))),
    readReceivers(database),
    countEndpoints(database, topic),
  ]);
  const volumes = reports.map(({ rows }) => rows[0]?.messages ?? 0);
  const own = receivers.filter((receiver) => isWithin(topic, receiver.topic));
  const isKnown =
    declared.has(topic) ||
    volumes.some((messages) => messages > 0) ||
    own.some((receiver) => receiver.topic === topic);
  if (!isKnown) return null;
  const { event, version } = versionOf(topic);
  const known = declared.get(topic);
  return {
    topic,
    event,
    version,
    declared: declared.has(topic),
    description: known?.description ?? null,
    schema: known?.schema ?? null,
    problem: known?.problem ?? null,
    ...(known?.schema && { example: exampleOf(known.schema) }),
    versions: [...declared.keys()]
      .filter((other) => versionOf(other).event === event)
      .toSorted((one, other) => versionOf(one).version - versionOf(other).version),
    receivers: own,
    endpoints,
    volume: Object.fromEntries(
      periodNames.map((period, place) => [period, volumes[place] ?? 0]),
    ) as Record<PeriodName, number>,
    completeTo: reports[0]?.completeTo ?? null,
  };
}

async function topicsOf(database: Database, period: PeriodName, name?: string) {
  return readTopics(database, periodOf({ period }, new Date()), name);
}

/** The report of a period by topic. */
export async function readTopics(
  database: Database,
  period: Period,
  name: string | null = null,
): Promise<Omit<Report, 'rows'> & { rows: CountRow[] }> {
  const report = await readReport(database, 'topics', { ...period, limit: mostTopics, name });
  return { ...report, rows: report.rows as CountRow[] };
}

export function destinationsOf(topic: string, receivers: readonly Receiver[]): string[] {
  const names = receivers
    .filter((receiver) => isWithin(topic, receiver.topic))
    .map(({ destination }) => destination);
  return [...new Set(names)];
}

type Described = { schema: JsonSchema | null; description: string | null; problem: string | null };

/** The typed events by topic. */
export type DescribedEvents = ReadonlyMap<string, Described>;

export function describeEvents(events: DefinedEvents | undefined): DescribedEvents {
  return new Map(
    Object.entries(events?.definitions ?? {}).map(([topic, definition]): [string, Described] => {
      try {
        const schema = jsonSchemaOf(topic, definition);
        const { description } = schema;
        const words = typeof description === 'string' ? description : null;
        return [topic, { schema, description: words, problem: null }];
      } catch (error) {
        return [topic, { schema: null, description: null, problem: errorText(error) }];
      }
    }),
  );
}
