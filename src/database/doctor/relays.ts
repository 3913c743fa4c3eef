// The relays against the schema and against each other: versions, definitions, what they cannot do, what they
// have left behind. A relay shows itself every few seconds; one that has not for a minute counts as gone.

import { isNewer } from '../../version.js';
import { readRelays } from '../reports.js';
import type { RelayReport } from '../reports.js';
import { readApplied } from './applied.js';
import { counted, duration, failure, listed, ok, readRow, warning, waybill } from './check.js';
import type { Check, Patient } from './check.js';

const livingSeconds = 60;

async function livingRelays({ database }: Patient): Promise<RelayReport[]> {
  return (await readRelays(database)).filter(
    ({ heartbeatSecondsAgo }) => heartbeatSecondsAgo < livingSeconds,
  );
}

const versions: Check = {
  code: 'relay_versions',
  title: 'relays and schema are of one version',
  finds: 'Warning for living relays of another version than the schema.',
  needs: 'schema',
  run: async (patient) => {
    const { newest } = await readApplied(patient);
    const relays = await livingRelays(patient);
    const others = relays.filter(({ version }) => version !== newest);
    if (others.length === 0)
      return ok(
        relays.length === 0
          ? 'no relay is running'
          : `${counted(relays.length, 'relay runs', 'relays run')} Waybill ${newest}, as the schema does`,
      );
    const isBehind = others.some(({ version }) => isNewer(version, newest));
    return warning(
      `the schema is of Waybill ${newest}; ${listed(others.map(({ name, version }) => `relay ${name} runs ${version}`))}`,
      isBehind
        ? 'Migrate with the newest version, then restart the relays that are older.'
        : 'Upgrade these relays and restart them, one after the other.',
      isBehind ? [waybill(patient, 'migrate up')] : [`npm install waybill@${newest}`],
    );
  },
};

const definitions: Check = {
  code: 'relay_definitions',
  title: 'relays run with the same definitions',
  finds:
    'Warning when living relays have different destinations or routes: the last one that was started has overwritten the others. Normal for the length of a roll-out.',
  needs: 'schema',
  run: async (patient) => {
    const relays = await livingRelays(patient);
    const groups = new Map<string, RelayReport[]>();
    for (const relay of relays)
      groups.set(relay.configuration, [...(groups.get(relay.configuration) ?? []), relay]);
    if (groups.size < 2)
      return ok(
        relays.length === 0
          ? 'no relay is running'
          : `${counted(relays.length, 'relay runs', 'relays run')} with the same`,
      );
    const shown = [...groups].map(
      ([configuration, members]) =>
        `${configuration} (${listed(members.map(({ name }) => name))}: ${members[0]?.destinations.join(', ')})`,
    );
    return warning(
      `relays run with ${groups.size} different configurations: ${listed(shown)}`,
      'Give all of them the same configuration file, and restart those that have another one.',
      [waybill(patient, 'start')],
    );
  },
};

const problems: Check = {
  code: 'relay_problems',
  title: 'relays can do what they should',
  finds: 'Warning for what living relays say that they cannot do, such as opening sealed secrets.',
  needs: 'schema',
  run: async ({ database, schema }) => {
    const rows = await database.query<{ name: string; problem: string }>(
      'read problems of relays',
      `SELECT r.name, p.problem FROM ${schema}.relays r CROSS JOIN unnest(r.problems) p(problem)
        WHERE r.heartbeat_at > clock_timestamp() - $1 * interval '1 second' ORDER BY 1, 2`,
      [livingSeconds],
    );
    if (rows.length === 0) return ok('none has said otherwise');
    return warning(
      listed(rows.map(({ name, problem }) => `relay ${name}: ${problem}`)),
      'Do what it says; the relay goes on by itself. What it says at present:',
      [`SELECT name, problems FROM ${schema}.relays WHERE problems <> '{}';`],
    );
  },
};

const breakers: Check = {
  code: 'breakers_open',
  title: 'circuit breakers are closed',
  finds: 'Warning for circuit breakers of living relays that are not closed.',
  needs: 'schema',
  run: async (patient) => {
    const { database, schema } = patient;
    const rows = await database.query<{ destination: string; relay: string }>(
      'read breakers',
      `SELECT b.name AS destination, r.name AS relay FROM ${schema}.relays r CROSS JOIN LATERAL jsonb_object_keys(r.breakers) b(name)
        WHERE r.heartbeat_at > clock_timestamp() - $1 * interval '1 second' ORDER BY 1, 2`,
      [livingSeconds],
    );
    if (rows.length === 0) return ok('no destination is left alone because it fails');
    const names = [...new Set(rows.map(({ destination }) => destination))];
    return warning(
      `open: ${listed(rows.map(({ destination, relay }) => `${destination} at relay ${relay}`))}; their deliveries wait`,
      'Relays try again by themselves. Look at why these destinations fail:',
      names
        .slice(0, 5)
        .map((name) => waybill(patient, `messages list --status retrying --destination ${name}`)),
    );
  },
};

const unserved: Check = {
  code: 'destinations_unserved',
  title: 'every routed destination has a relay',
  finds:
    'Warning when no living relay serves a destination that has routes and is not paused; error when something has been due there for a minute. Destinations of workers in SQL (kind `worker`) are left out; so are those at which drains were at work in the last 10 minutes.',
  needs: 'schema',
  run: async (patient) => {
    const { database, schema } = patient;
    const rows = await database.query<{ name: string; waiting: number; seconds: number }>(
      'look for unserved destinations',
      `SELECT t.name, w.count::int AS waiting, coalesce(extract(epoch FROM clock_timestamp() - f.due_at), 0)::float8 AS seconds
         FROM ${schema}.destinations t
         CROSS JOIN LATERAL (SELECT count(*) FROM (SELECT FROM ${schema}.deliveries d WHERE d.destination_id = t.id LIMIT 100000) x) w
         CROSS JOIN LATERAL (SELECT min(x.available_at) AS due_at FROM (
           (SELECT d.available_at FROM ${schema}.deliveries d WHERE d.destination_id = t.id AND d.stream_id IS NULL
             ORDER BY d.available_at, d.message_id LIMIT 1)
           UNION ALL
           (SELECT l.available_at FROM ${schema}.lanes l WHERE l.destination_id = t.id AND l.available_at IS NOT NULL AND l.blocked_by IS NULL
             ORDER BY l.available_at, l.stream_id LIMIT 1)) x) f
        WHERE t.paused_at IS NULL AND t.kind <> 'worker'
          AND EXISTS (SELECT FROM ${schema}.routes r WHERE r.destination_id = t.id)
          AND NOT EXISTS (SELECT FROM ${schema}.relays r WHERE t.name = ANY (r.destinations)
                             AND r.heartbeat_at > clock_timestamp() - $1 * interval '1 second')
          AND NOT (coalesce(f.due_at > clock_timestamp() - interval '1 minute', true) AND EXISTS (
            SELECT FROM ${schema}.statistics s WHERE s.destination_id = t.id AND s.slice > clock_timestamp() - interval '10 minutes'))
        ORDER BY w.count DESC, t.name`,
      [livingSeconds],
    );
    if (rows.length === 0) return ok('none is left without');
    const shown = rows.map(({ name, waiting, seconds }) =>
      waiting === 0
        ? name
        : `${name} (${waiting} waiting${seconds > 0 ? `, due for ${duration(seconds)}` : ''})`,
    );
    const overdue = rows.some(({ seconds }) => seconds >= 60);
    return (overdue ? failure : warning)(
      `no living relay serves ${listed(shown)}`,
      'Start a relay whose configuration has it, or deliver by cron with waybill drain.',
      [waybill(patient, 'start')],
    );
  },
};

const expiredLeases: Check = {
  code: 'leases_expired',
  title: 'expired leases are freed',
  finds: 'Error for leases that ended more than a minute ago and that nobody has freed.',
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
      `${counted(leases, 'lease has', 'leases have')} run out, the first ${duration(seconds)} ago, and nobody frees the ${counted(held, 'delivery', 'deliveries')} in ${leases === 1 ? 'it' : 'them'}`,
      'Start a relay, which frees them every second; or free them now, until it answers 0:',
      [`SELECT ${schema}.reap();`],
    );
  },
};

const clockSetBack: Check = {
  code: 'clock_set_back',
  title: "the database's clock runs forward",
  finds:
    'Warning when the newest message, or the sign of life of a relay, is more than 2 seconds in the future: the clock was set back, or a failover went to a server that is behind.',
  needs: 'schema',
  run: async ({ database, schema, limits }) => {
    const { seconds } = await readRow<{ seconds: number }>(
      database,
      'look into the future',
      `SELECT coalesce(extract(epoch FROM greatest(
                (SELECT ${schema}.id_time(m.id) FROM ${schema}.messages m ORDER BY m.id DESC LIMIT 1),
                (SELECT max(r.heartbeat_at) FROM ${schema}.relays r)) - clock_timestamp()), 0)::float8 AS seconds`,
    );
    if (seconds * 1000 <= limits.clockSkewMs) return ok('nothing comes from the future');
    return warning(
      `the database's clock was set back by ${duration(seconds)} or more: what was written before seems to come from the future, and what is new sorts before it`,
      'Let a time service set it, slowly; time mends the rest. It says now:',
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
