// What operators did, newest first.

import type { Database } from './connection.js';

export type OperatorAction = {
  id: string;
  at: Date;
  actor: string;
  action: string;
  subject: Record<string, unknown>;
  count: string;
};

export type ActionPage = { actions: OperatorAction[]; next: string | null };

export async function listActions(
  database: Database,
  page: { limit: number; next?: string },
): Promise<ActionPage> {
  const actions = await database.query<OperatorAction>(
    'list operator actions',
    `SELECT a.id::text AS id, a.at, a.actor, a.action, a.subject, a.count::text AS count
       FROM ${database.schema}.operator_actions a WHERE a.id < coalesce($1::bigint, 9223372036854775807)
      ORDER BY a.id DESC LIMIT $2`,
    [page.next ?? null, page.limit],
  );
  return { actions, next: actions.length < page.limit ? null : (actions.at(-1)?.id ?? null) };
}
