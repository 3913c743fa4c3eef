// Lists the recorded actions of operators, newest first.

import type { Database } from '../../database/connection.js';

export type OperatorAction = {
  id: string;
  at: Date;
  /** The actor as the client reported it: `cli:ann`, `api:grafana`, `relay 7`, or the login. */
  actor: string;
  /** The database login that the server authenticated. */
  databaseUser: string;
  action: string;
  subject: Record<string, unknown>;
  count: string;
};

export type ActionFilter = {
  actor?: string;
  action?: string;
  /** Only actions that name this destination, alone or with others. */
  destination?: string;
  since?: Date;
  until?: Date;
};

export type ActionPage = { actions: OperatorAction[]; next: string | null };

export async function listActions(
  database: Database,
  page: { limit: number; next?: string },
  filter: ActionFilter = {},
): Promise<ActionPage> {
  const { actor, action, destination, since, until } = filter;
  const actions = await database.query<OperatorAction>(
    'list operator actions',
    `SELECT a.id::text AS id, a.at, a.actor, a.database_user AS "databaseUser", a.action, a.subject, a.count::text AS count
       FROM ${database.schema}.operator_actions a
      WHERE a.id < coalesce($1::bigint, 9223372036854775807)
        AND ($3::text IS NULL OR a.actor = $3) AND ($4::text IS NULL OR a.action = $4)
        AND ($5::text IS NULL OR a.subject ->> 'destination' = $5 OR a.subject ->> 'endpoint' = $5
          OR a.subject -> 'destinations' ? $5)
        AND ($6::timestamptz IS NULL OR a.at >= $6) AND ($7::timestamptz IS NULL OR a.at < $7)
      ORDER BY a.id DESC LIMIT $2`,
    [
      page.next ?? null,
      page.limit,
      actor ?? null,
      action ?? null,
      destination ?? null,
      since ?? null,
      until ?? null,
    ],
  );
  return { actions, next: actions.length < page.limit ? null : (actions.at(-1)?.id ?? null) };
}
