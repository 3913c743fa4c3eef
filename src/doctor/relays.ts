// Doctor checks of relays: their versions, definitions, problems and circuit breakers, destinations without a relay,
// leases that nothing ends, and the database's clock. A relay sends a heartbeat every five seconds. Here, as in health
// and the lists, it counts as living for a minute after the last one; where safety depends on it, for 15 seconds
// (is_living in sql/functions/applications/definitions.sql).

import { isNewer } from '../core/version.js';
import { readRelays } from '../listing/reports.js';
import type { RelayReport } from '../listing/reports.js';
import { readApplied } from './applied.js';
import { counted, duration, failure, listed, ok, readRow, warning, waybill } from './check.js';
import type { Check, CheckContext } from './check.js';

const livingSeconds = 60;
/** A rolling deploy should be over after this time. */
const deployMs = 600_000;

async function livingRelays({ database }: CheckContext): Promise<RelayReport[]> {
  return (await readRelays(database)).filter(
    ({ heartbeatSecondsAgo }) => heartbeatSecondsAgo < livingSeconds,
  );
}

const versions: Check = {
  code: 'relay_versions',
  title: 'relays and schema are of one version',
  finds: 'Warning for living relays of another version than the schema.',
  needs: 'schema',
  run: async (context) => {
    const { newest } = await readApplied(context);
    const relays = await livingRelays(context);
    const others = relays.filter(({ version }) => version !== newest);
    if (others.length === 0)
      return ok(
        relays.length === 0
          ? 'no relay is running'
          : `${counted(relays.length, 'relay runs', 'relays run')} Waybill ${newest}, as the schema does`,
      );
    const schemaIsBehind = others.some(({ version }) => isNewer(version, newest));
    return warning(
      `the schema is of Waybill ${newest}; ${listed(others.map(({ name, version }) => `relay ${name} runs ${version}`))}`,
      schemaIsBehind
        ? 'Migrate with the newest version, then restart the relays that are older.'
        : 'Upgrade these relays and restart them, one after the other.',
      schemaIsBehind ? [waybill(context, 'migrate up')] : [`npm install waybill@${newest}`],
    );
  },
};

/** Whether another relay of the same application runs with another configuration. */
function hasDifferences(relay: RelayReport, relays: readonly RelayReport[]): boolean {
  return relays.some(
    ({ application, configuration }) =>
      application === relay.application && configuration !== relay.configuration,
  );
}

/** Applications whose relays have run side by side with different destinations for longer than a deploy takes. */
function lastingDifferences(relays: readonly RelayReport[]): string[] {
  const settled = relays.filter(({ startedAt }) => Date.now() - startedAt.getTime() > deployMs);
  const sets = new Map<string, Set<string>>();
  for (const { application, destinations } of settled)
    sets.set(
      application,
      (sets.get(application) ?? new Set()).add(JSON.stringify(destinations.toSorted())),
    );
  return [...sets].filter(([, different]) => different.size > 1).map(([name]) => name);
}

const sharedName =
  'Where they differ on a destination, the newest relay counts. If they are different applications, set application to a name of its own in each configuration; without it, the name is default.';

const definitions: Check = {
  code: 'relay_definitions',
  title: 'relays of an application run with the same definitions',
  finds:
    'Warning when living relays of one application have different destinations or routes. Normal during a deploy. If it lasts longer than ten minutes, two applications probably use the same name.',
  needs: 'schema',
  run: async (context) => {
    const relays = await livingRelays(context);
    const groups = new Map<string, RelayReport[]>();
    for (const relay of relays.filter((each) => hasDifferences(each, relays)))
      groups.set(relay.configuration, [...(groups.get(relay.configuration) ?? []), relay]);
    if (groups.size === 0)
      return ok(
        relays.length === 0
          ? 'no relay is running'
          : `${counted(relays.length, 'relay runs', 'relays run')} with the same`,
      );
    const shown = [...groups].map(
      ([configuration, members]) =>
        `${configuration} of ${members[0]?.application} (${listed(members.map(({ name }) => name))}: ${members[0]?.destinations.join(', ')})`,
    );
    const lasting = lastingDifferences([...groups.values()].flat());
    return warning(
      `relays run with ${groups.size} different configurations: ${listed(shown)}` +
        (lasting.length === 0
          ? ''
          : `; for more than ten minutes, relays of ${listed(lasting)} have had different destinations`),
      `${sharedName} If they are one application, give all of them the same configuration file, and restart those that have another one.`,
      [waybill(context, 'start')],
    );
  },
};

const problems: Check = {
  code: 'relay_problems',
  title: 'relays report no problems',
  finds:
    'Warning for problems that living relays report, such as sealed secrets that they cannot open.',
  needs: 'schema',
  run: async ({ database, schema }) => {
    const rows = await database.query<{ name: string; problem: string }>(
      'read problems of relays',
      `SELECT r.name, p.problem FROM ${schema}.relays r CROSS JOIN unnest(r.problems) p(problem)
        WHERE r.heartbeat_at > clock_timestamp() - $1 * interval '1 second' ORDER BY 1, 2`,
      [livingSeconds],
    );
    if (rows.length === 0) return ok('none reports one');
    return warning(
      listed(rows.map(({ name, problem }) => `relay ${name}: ${problem}`)),
      'Fix the reported problem; the relay then continues by itself. Present reports:',
      [`SELECT name, problems FROM ${schema}.relays WHERE problems <> '{}';`],
    );
  },
};

const breakers: Check = {
  code: 'breakers_open',
  title: 'circuit breakers are closed',
  finds: 'Warning for circuit breakers of living relays that are not closed.',
  needs: 'schema',
  run: async (context) => {
    const { database, schema } = context;
    const rows = await database.query<{ destination: string; relay: string }>(
      'read breakers',
      `SELECT b.name AS destination, r.name AS relay FROM ${schema}.relays r CROSS JOIN LATERAL jsonb_object_keys(r.breakers) b(name)
        WHERE r.heartbeat_at > clock_timestamp() - $1 * interval '1 second' ORDER BY 1, 2`,
      [livingSeconds],
    );
    if (rows.length === 0) return ok('none is open');
    const names = [...new Set(rows.map(({ destination }) => destination))];
    return warning(
      `open: ${listed(rows.map(({ destination, relay }) => `${destination} at relay ${relay}`))}; their deliveries wait`,
      'Relays try again by themselves. Find out why these destinations fail:',
      names
        .slice(0, 5)
        .map((name) => waybill(context, `messages list --status retrying --destination ${name}`)),
    );
  },
};

const unserved: Check = {
  code: 'destinations_unserved',
  title: 'every routed destination has a relay',
  finds:
    'Warning when no living relay serves a destination that has routes and is not paused; error when a delivery has been due there for a minute. Not checked: destinations of SQL workers (kind `worker`), and destinations with drains in the last 10 minutes where nothing has been due for a minute.',
  needs: 'schema',
  run: async (context) => {
    const { database, schema } = context;
    const rows = await database.query<{ name: string; waiting: number; seconds: number }>(
      'look for unserved destinations',
      `SELECT t.name, w.count::int AS waiting, coalesce(extract(epoch FROM clock_timestamp() - f.due_at), 0)::float8 AS seconds
         FROM ${schema}.destinations t
         CROSS JOIN LATERAL (SELECT count(*) FROM (SELECT FROM ${schema}.deliveries d WHERE d.destination_id = t.id LIMIT 100000) x) w
         CROSS JOIN LATERAL (SELECT ${schema}.oldest_due_at(t.id) AS due_at) f
        WHERE t.paused_at IS NULL AND t.kind <> 'worker'
          AND EXISTS (SELECT FROM ${schema}.routes r WHERE r.destination_id = t.id)
          AND NOT EXISTS (SELECT FROM ${schema}.relays r WHERE (t.name = ANY (r.destinations) OR (r.endpoints AND t.kind = 'endpoint'))
                             AND r.heartbeat_at > clock_timestamp() - $1 * interval '1 second')
          -- not if drains serve it: statistics of the last 10 minutes, and nothing has been due for a minute
          AND NOT (coalesce(f.due_at > clock_timestamp() - interval '1 minute', true) AND EXISTS (
            SELECT FROM ${schema}.statistics s WHERE s.destination_id = t.id AND s.slice > clock_timestamp() - interval '10 minutes'))
        ORDER BY w.count DESC, t.name`,
      [livingSeconds],
    );
    if (rows.length === 0) return ok('all of them have one');
    const shown = rows.map(({ name, waiting, seconds }) =>
      waiting === 0
        ? name
        : `${name} (${waiting} waiting${seconds > 0 ? `, due for ${duration(seconds)}` : ''})`,
    );
    const overdue = rows.some(({ seconds }) => seconds >= 60);
    return (overdue ? failure : warning)(
      `no living relay serves ${listed(shown)}`,
      'Start a relay whose configuration has it, or deliver by cron with waybill drain.',
      [waybill(context, 'start')],
    );
  },
};

const expiredLeases: Check = {
  code: 'leases_expired',
  title: 'expired leases are ended',
  finds: 'Error for leases that expired more than a minute ago and no reaper has ended.',
  needs: 'schema',
  run: async ({ database, schema }) => {
    const { leases, held, seconds } = await readRow<{
      leases: number;
      held: number;
      seconds: number;
    }>(
      database,
      'look for expired leases',
      `SELECT count(*)::int AS leases, coalesce(sum(remaining), 0)::int AS held,
              coalesce(extract(epoch FROM clock_timestamp() - min(expires_at)), 0)::float8 AS seconds
         FROM ${schema}.leases WHERE expires_at < clock_timestamp() - interval '1 minute'`,
    );
    if (leases === 0) return ok('none has been expired for more than a minute');
    return failure(
      `${counted(leases, 'lease has', 'leases have')} expired, the first ${duration(seconds)} ago, and no reaper requeues the ${counted(held, 'delivery', 'deliveries')} in ${leases === 1 ? 'it' : 'them'}`,
      'Start a relay, whose reaper ends them within a second; or end them now, until it answers 0:',
      [`SELECT ${schema}.reap();`],
    );
  },
};

const clockSetBack: Check = {
  code: 'clock_set_back',
  title: "the database's clock runs forward",
  finds:
    'Warning when the newest message or heartbeat is more than 2 seconds in the future: the clock was set back, or a failover went to a server whose clock is behind.',
  needs: 'schema',
  run: async ({ database, schema, limits }) => {
    const { seconds } = await readRow<{ seconds: number }>(
      database,
      'look into the future',
      `SELECT coalesce(extract(epoch FROM greatest(
                (SELECT ${schema}.id_time(m.id) FROM ${schema}.messages m ORDER BY m.id DESC LIMIT 1),
                (SELECT max(r.heartbeat_at) FROM ${schema}.relays r)) - clock_timestamp()), 0)::float8 AS seconds`,
    );
    if (seconds * 1000 <= limits.clockSkewMs) return ok('no message or heartbeat is in the future');
    return warning(
      `the database's clock was set back by ${duration(seconds)} or more: older messages seem to come from the future, and new ones sort before them`,
      'Let a time service correct it, slowly. Relays correct deliveries that it has misdated (deliveries_misdated). Its time is now:',
      ['SELECT clock_timestamp();'],
    );
  },
};

export const relayChecks = [
  versions,
  definitions,
  problems,
  breakers,
  unserved,
  expiredLeases,
  clockSetBack,
];
