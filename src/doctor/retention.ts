// Doctor checks of retention: the floors that the owner has set, and whether a login may do the maintenance.

import { quoteIdentifier } from '../core/identifier.js';
import { listed, ok, warning, waybill } from './check.js';
import type { Check } from './check.js';

const kinds = ['messages', 'attempts', 'dead letters', 'dedupe keys', 'keys'] as const;
type Floor = { topic: string; namespace: string | null; days: (number | null)[] };

const floors: Check = {
  code: 'retention_floors',
  title: 'the shortest retention is set',
  finds:
    'Shows the retention floors that the owner has set. Warning when the floor for all topics is missing.',
  needs: 'schema',
  run: async ({ database, schema }) => {
    const rows = await database.query<Floor>(
      'read retention floors',
      `SELECT f.topic, f.namespace, ARRAY[f.messages_days, f.attempts_days, f.dead_letters_days, f.dedupe_keys_days,
                f.keys_days] AS days
         FROM ${schema}.retention_floors f ORDER BY f.topic, f.namespace NULLS FIRST`,
    );
    const shown = listed(rows.map(shownFloor), 20);
    if (rows.some(({ topic, namespace }) => topic === '*' && namespace === null)) return ok(shown);
    return warning(
      `there is no floor for all topics${rows.length > 0 ? `, only ${shown}` : ''}: a configuration can remove the rest after a day`,
      'Set it again; these are the defaults.',
      [
        `INSERT INTO ${schema}.retention_floors (messages_days, attempts_days, dead_letters_days, dedupe_keys_days) VALUES (1, 1, 7, 30);`,
      ],
    );
  },
};

/** payment.* in billing: attempts for 2555 days, dedupe keys for ever */
function shownFloor({ topic, namespace, days }: Floor): string {
  const parts = kinds.flatMap((kind, place) => {
    const kept = days[place] ?? 0;
    return kept === 0 ? [] : [`${kind} ${kept === Infinity ? 'for ever' : `for ${kept} days`}`];
  });
  return `${topic}${namespace === null ? '' : ` in ${namespace}`}: ${parts.join(', ') || 'nothing'}`;
}

const maintenance: Check = {
  code: 'maintenance_unassigned',
  title: 'a login may do the maintenance',
  finds:
    'Warning when roles are installed and no login has the role `maintenance` or `owner`: nothing removes what has outlived its retention.',
  needs: 'schema',
  run: async (context) => {
    const { database, schema } = context;
    const rows = await database.query<{ role: string | null; login: string; may: boolean }>(
      'look for maintenance',
      `SELECT (SELECT r.name FROM ${schema}.roles r WHERE r.role = 'maintenance') AS role, l.rolname AS login,
              has_function_privilege(l.oid, p.oid, 'EXECUTE') AS may
         FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace, pg_proc c, pg_roles l
        WHERE n.nspname = $1 AND p.proname = 'remove_partition' AND c.pronamespace = n.oid AND c.proname = 'claim_batch'
          AND l.rolcanlogin AND NOT l.rolsuper AND EXISTS (SELECT FROM ${schema}.roles)
          AND (has_function_privilege(l.oid, p.oid, 'EXECUTE') OR has_function_privilege(l.oid, c.oid, 'EXECUTE'))
        ORDER BY 2`,
      [database.options.schema],
    );
    const able = rows.filter(({ may }) => may);
    if (able.length > 0) return ok(listed(able.map(({ login }) => login)));
    const [relay] = rows;
    if (relay === undefined) return ok('the owner of the schema');
    const { role, login } = relay;
    return warning(
      `no login has the role maintenance: relays (${listed(rows.map((row) => row.login))}) leave what has outlived its retention`,
      'Grant the role to the relays, or to a login that runs waybill maintain every day.',
      role === null
        ? [waybill(context, 'roles install')]
        : [`GRANT ${quoteIdentifier(role)} TO ${quoteIdentifier(login)};`],
    );
  },
};

export const retentionChecks = [floors, maintenance];
