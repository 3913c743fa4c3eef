// Checks of work that stops without an error: paused or removed destinations, misdated deliveries, overdue retention.
// Features have their own checks.

import { readDestinations } from '../listing/reports.js';
import { counted, duration, failure, listed, ok, warning, waybill } from './check.js';
import type { Check } from './check.js';

const paused: Check = {
  code: 'destinations_paused',
  title: 'nothing waits at a paused destination',
  finds: 'Warning for paused destinations, and disabled endpoints, at which deliveries wait.',
  needs: 'schema',
  run: async (context) => {
    const { database } = context;
    const rows = (await readDestinations(database)).filter(
      (each) => each.paused && each.configured && each.waiting > 0,
    );
    if (rows.length === 0) return ok('there is none');
    const shown = rows.map(
      ({ name, waiting, pausedBy, pausedCode, pausedReason }) =>
        `${name} (${waiting} waiting; ${['paused', pausedBy && `by ${pausedBy}`, pausedCode ?? pausedReason].filter(Boolean).join(' ')})`,
    );
    return warning(
      `paused with work: ${listed(shown)}`,
      'Fix the reason for the pause, then resume it.',
      rows
        .slice(0, 5)
        .map(({ name, origin }) =>
          origin === 'database'
            ? waybill(context, `endpoints enable ${name}`)
            : waybill(context, `destinations resume ${name}`),
        ),
    );
  },
};

const gone: Check = {
  code: 'destinations_gone',
  title: 'nothing waits for a destination that is gone',
  finds:
    'Warning for deliveries that wait for a destination that left the configuration file, or an endpoint that was removed.',
  needs: 'schema',
  run: async (context) => {
    const { database, schema } = context;
    const rows = (await readDestinations(database)).filter(
      (each) => !each.configured && each.waiting > 0,
    );
    if (rows.length === 0) return ok('no such delivery');
    return warning(
      `no configuration has ${listed(rows.map(({ name, waiting }) => `${name} (${waiting} waiting)`))}`,
      `Put it back into the file. Or move its deliveries with ${schema}.move_deliveries(from, to), or discard them with ${schema}.discard_deliveries(name); repeat until the call returns 0. Its deliveries:`,
      rows.slice(0, 5).map(({ name }) => waybill(context, `messages list --destination ${name}`)),
    );
  },
};

const misdated: Check = {
  code: 'deliveries_misdated',
  title: 'no delivery is misdated',
  finds:
    'Error for deliveries whose due time was computed while the clock of the database ran ahead: they wait until that time, and later messages of their keys wait with them.',
  needs: 'schema',
  run: async ({ database, schema }) => {
    const rows = await database.query<{ name: string; count: number }>(
      'look for misdated deliveries',
      `SELECT t.name, m.count::float8 AS count
         FROM ${schema}.waiting_destinations() w(id) JOIN ${schema}.destinations t ON t.id = w.id
        CROSS JOIN LATERAL ${schema}.count_misdated(t.id) m(count)
        WHERE m.count > 0 ORDER BY m.count DESC, t.name`,
    );
    if (rows.length === 0) return ok('none found');
    return failure(
      `dated into the future: ${listed(rows.map(({ name, count }) => `${name} (${count})`))}`,
      'Find out why the clock was wrong. A relay corrects their times within seconds; if no relay runs:',
      [`SELECT ${schema}.release_misdated();`],
    );
  },
};

const retention: Check = {
  code: 'retention_late',
  title: 'retention is done every day',
  finds:
    'Warning when the daily retention was last done more than 2 days ago. Shows how many partitions are thinned.',
  needs: 'schema',
  run: async (context) => {
    const { database, schema } = context;
    const [last] = await database.query<{ seconds: number | null; thinned: number; kept: number }>(
      'look for retention',
      `SELECT CASE WHEN isfinite(r.at) THEN extract(epoch FROM clock_timestamp() - r.at)::float8 END AS seconds,
              t.thinned, t.kept
         FROM (SELECT greatest(m.done_at, h.expires_at) AS at
                 FROM ${schema}.maintenance_runs m
                 LEFT JOIN ${schema}.holds h ON h.name = m.task
                WHERE m.task = 'retention') r,
              (SELECT count(*)::int AS thinned, coalesce(sum(x.kept), 0)::float8 AS kept
                 FROM ${schema}.thinned_partitions x JOIN pg_class c ON c.relname = x.partition
                  AND c.relnamespace = $1::text::regnamespace AND x.thinned_at IS NOT NULL) t`,
      [schema],
    );
    if (last === undefined || last.seconds === null) return ok('it has not been due yet');
    const thinned =
      last.thinned === 0
        ? ''
        : `; ${counted(last.thinned, 'thinned partition')} with ${counted(last.kept, 'row')} that are still needed`;
    const found = `it was last done ${duration(last.seconds)} ago${thinned}`;
    return last.seconds <= 2 * 86_400
      ? ok(last.seconds < 0 ? 'it is being done' : found)
      : warning(
          `${found}: rows that have outlived their retention stay`,
          'Run a relay, or run retention now; its log says what prevented it.',
          [waybill(context, 'maintain')],
        );
  },
};

export const workChecks = [paused, gone, misdated, retention];
