// Watch: names a table whose changes become messages, and what the messages carry. The database checks it against the
// table and creates the triggers.

import { checkOptions, flag, list, nullable, optional, refuse, text } from '../../core/options.js';

export type Watch = {
  /** The table as `schema.table`; unusual names are quoted as in SQL. */
  table: string;
  /** The prefix of the topics: `topic.created`, `topic.changed` and `topic.deleted`. */
  topic: string;
  /** The column with the ordering key. Default: none, so order does not matter. */
  key?: string;
  /** The column with the tenant id. Default: none. */
  tenant?: string;
  /** The columns in the payload. Default: the primary key. */
  columns?: string[];
  /** An update that changes none of these columns makes no message. Default: `columns`, or any column. */
  when?: string[];
  /** Whether the payload has the old values of changed columns. Default: false. */
  oldValues?: boolean;
  /** The last part of the topic for a new row; null for no message. Default: created. */
  created?: string | null;
  /** The last part of the topic for a changed row; null for no message. Default: changed. */
  changed?: string | null;
  /** The last part of the topic for a deleted row; null for no message. Default: deleted. */
  deleted?: string | null;
  /** Whether TRUNCATE is refused or makes one message, `topic.truncated`. Default: refuse. */
  truncate?: 'refuse' | 'report';
  /** The namespace of the messages. Default: default. */
  namespace?: string;
  /** The kind of thing that a row of the table is. Default: the table's name. */
  aggregateType?: string;
  /** The column that identifies the thing. Default: the primary key. */
  aggregateId?: string;
};

declare module '../../telemetry/events.js' {
  interface FeatureEvents {
    watches_mended: { count: number };
  }
}

export type WatchesConfig = {
  /** Tables whose changes become messages. Without it, watches are left unchanged. */
  watches?: Watch[];
};

export type ResolvedWatch = ReturnType<typeof checkWatch>;

const column = text({ meaning: 'the name of a column' });
const columns = optional(list(column, { min: 1, max: 1600 }));
const words = /^[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*$/;
const event = (name: string) =>
  nullable(
    text({ default: name, pattern: words, meaning: `a name such as ${name}, or null for none` }),
  );

/** Undefined for a configuration without `watches`. */
export function watchesKind(_name: string, watches: unknown): ResolvedWatch[] | undefined {
  if (watches === undefined) return undefined;
  if (!Array.isArray(watches))
    refuse('watches', watches, "give a list such as [{ table: 'public.jobs', topic: 'job' }]");
  const checked = watches.map((watch: object, index) => checkWatch(`watches[${index}]`, watch));
  checked.forEach(({ table, topic }, index) => {
    if (checked.findIndex((other) => other.table === table && other.topic === topic) < index)
      refuse(
        `watches[${index}]`,
        { table, topic },
        'the same table and topic stand above: keep one',
      );
  });
  return checked;
}

export function checkWatch(where: string, watch: object) {
  return checkOptions(where, watch, {
    table: text({ meaning: 'a table such as public.jobs' }),
    topic: text({ pattern: words, meaning: 'a topic such as job' }),
    key: optional(column),
    tenant: optional(column),
    columns,
    when: columns,
    oldValues: flag(false),
    created: event('created'),
    changed: event('changed'),
    deleted: event('deleted'),
    truncate: text({
      default: 'refuse',
      pattern: /^(refuse|report)$/,
      meaning: "'refuse' or 'report'",
    }),
    namespace: optional(text({ pattern: words, meaning: 'a namespace' })),
    aggregateType: optional(text({ meaning: 'a word such as job' })),
    aggregateId: optional(column),
  });
}
