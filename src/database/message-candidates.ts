// Which entries of an index range may be what a filter wants: one query looks at a bounded number of them and leaves
// out what a look-up or two can tell. What is left is looked at closely by whoever asked.

import type { Database } from './connection.js';
import type { MessageFilter, Range } from './message-ranges.js';

export type Candidate = {
  messageId: string;
  /** Null: at all of its destinations. */
  destinationId: number | null;
  /** The columns of its place in the index. */
  after: string[];
  /** From 1. */
  position: number;
};

export type Candidates = {
  found: Candidate[];
  /** How many entries were looked at. */
  searched: number;
  /** The place of the last of them. */
  last: string[] | null;
};

export async function findCandidates(
  database: Database,
  filter: MessageFilter,
  range: Range,
  after: readonly string[] | null,
  count: number,
): Promise<Candidates> {
  const values: unknown[] = [...(after ?? range.start), count, ...range.values];
  const { joins, conditions } = conditionsOf(database.schema, filter, (value) => {
    values.push(value);
    return `$${values.length}`;
  });
  const rows = await database.query<Candidate & { fits: boolean }>(
    'list messages',
    `WITH entries AS MATERIALIZED (
       SELECT r.message_id, r.destination_id, r.after, row_number() OVER ()::int AS position
         FROM (${range.sql(database.schema)}) r)
     SELECT e.message_id AS "messageId", e.destination_id AS "destinationId", e.after, e.position, c.fits
       FROM entries e ${joins}
       CROSS JOIN LATERAL (SELECT coalesce(${conditions.join(' AND ') || 'true'}, false) AS fits OFFSET 0) c
      WHERE c.fits OR e.position = (SELECT max(x.position) FROM entries x)
      ORDER BY e.position`,
    values,
  );
  const last = rows.at(-1);
  return {
    found: rows.filter(({ fits }) => fits),
    searched: last?.position ?? 0,
    last: last?.after ?? null,
  };
}

const endings = new Map<MessageFilter['status'], string>([
  ['delivered', 'dispatched'],
  ['discarded', 'discarded'],
]);

/** What must hold of each entry. A necessary condition only: it need not look at the order of things. */
function conditionsOf(
  outbox: string,
  filter: MessageFilter,
  value: (value: unknown) => string,
): { joins: string; conditions: string[] } {
  const conditions: string[] = [];
  if (filter.from !== undefined)
    conditions.push(`e.message_id >= ${outbox}.id_at(${value(filter.from)})`);
  if (filter.to !== undefined)
    conditions.push(`e.message_id < ${outbox}.id_at(${value(filter.to)})`);
  const columns = Object.entries({
    topic: filter.topic,
    namespace: filter.namespace,
    tenant_id: filter.tenantId,
    key: filter.key,
    aggregate_type: filter.aggregateType,
    aggregate_id: filter.aggregateId,
  }).filter(([, wanted]) => wanted !== undefined);
  for (const [name, wanted] of columns) conditions.push(`m.${name} = ${value(wanted)}`);
  const ended = endings.get(filter.status);
  // a value that no condition names would be refused
  let named: string | undefined;
  const at = (alias: string): string => {
    if (filter.destination === undefined) return '';
    named ??= value(filter.destination);
    return ` AND ${alias}.destination_id = (SELECT t.id FROM ${outbox}.destinations t WHERE t.name = ${named})`;
  };
  const attempt = (condition: string): string =>
    `EXISTS (SELECT FROM ${outbox}.attempts a WHERE a.message_id = e.message_id${at('a')}${condition})`;
  // what no route wanted is at no destination
  if (filter.status === 'unrouted' && filter.destination !== undefined) conditions.push('false');
  if (ended !== undefined) conditions.push(attempt(` AND a.state = '${ended}'`));
  else if (filter.status === undefined && filter.destination !== undefined)
    conditions.push(
      `(${attempt('')} OR EXISTS (SELECT FROM ${outbox}.deliveries d WHERE d.message_id = e.message_id${at('d')})
        OR EXISTS (SELECT FROM ${outbox}.dead_letters d WHERE d.message_id = e.message_id${at('d')})
        OR e.message_id IN (SELECT unnest(l.message_ids) FROM ${outbox}.leases l WHERE true${at('l')}))`,
    );
  if (filter.errorCode !== undefined && filter.status !== 'dead')
    conditions.push(attempt(` AND a.error_code = ${value(filter.errorCode)}`));
  const source =
    filter.status === 'dead'
      ? `${outbox}.dead_letters x WHERE x.message_id = e.message_id AND x.destination_id = coalesce(e.destination_id, x.destination_id)`
      : `${outbox}.messages x WHERE x.id = e.message_id`;
  const names = columns.map(([name]) => `x.${name}`).join(', ');
  return {
    joins:
      columns.length === 0
        ? ''
        : `LEFT JOIN LATERAL (SELECT ${names} FROM ${source} LIMIT 1) m ON true`,
    conditions,
  };
}
