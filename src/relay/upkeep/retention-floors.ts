// Retention floors: the owner of the schema sets the shortest retention in the database, which keeps to it by itself.
// This file only tells operators where a configuration is below a floor, and whether this login may do the retention.

import type { Database } from '../../database/connection.js';
import type { Emit } from '../../telemetry/events.js';

type Configured = {
  messagesDays: number | null;
  attemptsDays: number | null;
  deadLettersDays: number | null;
  dedupeKeysDays: number | null;
  keysDays: number | null;
};

type Floor = {
  setting: string;
  configuredDays: number;
  topic: string;
  namespace: string | null;
  kept: string;
};

/** Emits an event if floors are above the configured retention, with a sentence for each. */
export async function tellFloors(
  database: Database,
  retention: Configured,
  emit: Emit,
): Promise<void> {
  const { messagesDays, attemptsDays, deadLettersDays, dedupeKeysDays, keysDays } = retention;
  const floors = await database.query<Floor>(
    'read retention floors',
    `SELECT setting, configured_days AS "configuredDays", topic, namespace, kept
       FROM ${database.schema}.limited_settings($1, $2, $3, $4, $5)`,
    [messagesDays, attemptsDays, deadLettersDays, dedupeKeysDays, keysDays],
  );
  if (floors.length === 0) return;
  emit({
    name: 'retention_floor',
    floors: floors.map(
      ({ setting, configuredDays, topic, namespace, kept }) =>
        `retention.${setting} is ${configuredDays}; the floor of ${topic}${namespace === null ? '' : ` in ${namespace}`} keeps them ${kept}`,
    ),
  });
}

/** Whether this login may do the retention: the role maintenance, or the owner. */
export async function mayMaintain(database: Database): Promise<boolean> {
  const [row] = await database.query<{ may: boolean }>(
    'look for the right to maintain',
    `SELECT coalesce(bool_and(has_function_privilege(p.oid, 'EXECUTE')), false) AS may
       FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
      WHERE n.nspname = $1 AND p.proname IN ('begin_maintenance', 'remove_partition')`,
    [database.options.schema],
  );
  return row?.may ?? false;
}
