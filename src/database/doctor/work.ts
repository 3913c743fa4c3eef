// The work itself, where it stands still without an error: destinations that are paused or gone, topics without a
// route, watches that miss changes, retention that is not done.

import { readDestinations } from '../reports.js';
import {
  counted,
  duration,
  failure,
  listed,
  literal,
  ok,
  shellWord,
  warning,
  waybill,
} from './check.js';
import type { Check } from './check.js';

const paused: Check = {
  code: 'destinations_paused',
  title: 'nothing waits at a paused destination',
  finds: 'Warning for paused destinations, and disabled endpoints, at which deliveries wait.',
  needs: 'schema',
  run: async (patient) => {
    const { database } = patient;
    const rows = (await readDestinations(database)).filter(
      (each) => each.paused && each.configured && each.waiting > 0,
    );
    if (rows.length === 0) return ok('none does');
    const shown = rows.map(
      ({ name, waiting, pausedBy, pausedCode, pausedReason }) =>
        `${name} (${waiting} waiting; ${['paused', pausedBy && `by ${pausedBy}`, pausedCode ?? pausedReason].filter(Boolean).join(' ')})`,
    );
    return warning(
      `paused with work: ${listed(shown)}`,
      'Mend why it was paused, then let it go on.',
      rows
        .slice(0, 5)
        .map(({ name, origin }) =>
          origin === 'database'
            ? waybill(patient, `endpoints enable ${name}`)
            : waybill(patient, `destinations resume ${name}`),
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
  run: async (patient) => {
    const { database, schema } = patient;
    const rows = (await readDestinations(database)).filter(
      (each) => !each.configured && each.waiting > 0,
    );
    if (rows.length === 0) return ok('nothing does');
    return warning(
      `no configuration has ${listed(rows.map(({ name, waiting }) => `${name} (${waiting} waiting)`))}`,
      `Put it back into the file; or move what waits with ${schema}.move_deliveries(from, to), or give it up with ${schema}.discard_deliveries(name), each until it answers 0. What it is:`,
      rows.slice(0, 5).map(({ name }) => waybill(patient, `messages list --destination ${name}`)),
    );
  },
};

const unrouted: Check = {
  code: 'topics_unrouted',
  title: 'every topic has a route',
  finds:
    'Warning for messages that no route wanted when they were enqueued, by topic (of at most the last 10,000).',
  needs: 'schema',
  run: async (patient) => {
    const { database, schema } = patient;
    const rows = await database.query<{
      topic: string;
      count: number;
      example: string;
      routed: boolean;
    }>(
      'look for unrouted messages',
      `SELECT m.topic, count(*)::int AS count, (array_agg(m.id ORDER BY m.id DESC))[1] AS example,
              bool_or(EXISTS (SELECT FROM ${schema}.routes r
                 WHERE ${schema}.route_matches(r.topic, r.namespace, r.tenant_id, m.topic, m.namespace, m.tenant_id))) AS routed
         FROM (SELECT message_id FROM ${schema}.unrouted_messages ORDER BY message_id DESC LIMIT 10000) u
         CROSS JOIN LATERAL (SELECT * FROM ${schema}.messages m WHERE m.id = u.message_id LIMIT 1) m
        GROUP BY m.topic ORDER BY count(*) DESC, m.topic`,
    );
    if (rows.length === 0) return ok('no message was left without one');
    const shown = rows.map(
      ({ topic, count, example, routed }) =>
        `${topic} (${counted(count, 'message')}, such as ${example}${routed ? '; it has a route now' : ''})`,
    );
    return warning(
      `no route wanted ${listed(shown)}`,
      'Add a route for the topic to the configuration and restart the relays; then hand over what there is:',
      [waybill(patient, 'route-unrouted')],
    );
  },
};

const watches: Check = {
  code: 'watches_broken',
  title: 'watched tables are really watched',
  finds:
    'Error for a watch that may miss changes: its table was dropped, or triggers are missing, disabled or not ours.',
  needs: 'schema',
  run: async (patient) => {
    const { database, schema } = patient;
    const rows = await database.query<{
      watched: string;
      topic: string;
      problem: string | null;
      there: boolean;
    }>(
      'look at watches',
      `SELECT w.table_name AS watched, w.topic, ${schema}.watch_problem(w) AS problem,
              EXISTS (SELECT FROM pg_class c WHERE c.oid = w.table_id) AS there
         FROM ${schema}.watches w ORDER BY 1, 2`,
    );
    const broken = rows.filter(({ problem }) => problem !== null);
    if (broken.length === 0)
      return ok(rows.length === 0 ? 'no table is watched' : `all ${rows.length} see every change`);
    return failure(
      listed(broken.map(({ watched, topic, problem }) => `${topic} of ${watched}: ${problem}`)),
      'Watch what is there again; end the watch of what was dropped. What happened meanwhile made no messages.',
      broken.map(({ watched, topic, there }) =>
        there
          ? `SELECT ${schema}.define_watch(table_id, given, configured, false) FROM ${schema}.watches WHERE table_name = ${literal(watched)} AND topic = ${literal(topic)};`
          : waybill(patient, `unwatch ${shellWord(watched)} --topic ${shellWord(topic)}`),
      ),
    );
  },
};

const retention: Check = {
  code: 'retention_late',
  title: 'retention is done every day',
  finds: 'Warning when the daily retention was last done more than 2 days ago.',
  needs: 'schema',
  run: async (patient) => {
    const { database, schema } = patient;
    const [last] = await database.query<{ seconds: number | null }>(
      'look for retention',
      `SELECT CASE WHEN isfinite(r.at) THEN extract(epoch FROM clock_timestamp() - r.at)::float8 END AS seconds
         FROM (SELECT greatest(done_at, held_until) AS at FROM ${schema}.maintenance_runs WHERE task = 'retention') r`,
    );
    if (last === undefined || last.seconds === null) return ok('it has not been due yet');
    const found = `it was last done ${duration(last.seconds)} ago`;
    return last.seconds <= 2 * 86_400
      ? ok(last.seconds < 0 ? 'it is being done' : found)
      : warning(
          `${found}: what has outlived its retention stays`,
          'Run a relay, or do it now; its log says what was in the way.',
          [waybill(patient, 'maintain')],
        );
  },
};

const alerts: Check = {
  code: 'alerts',
  title: 'no alert fires',
  finds: 'Warning for each alert that fires with its default threshold (`outbox.alerts()`).',
  needs: 'schema',
  run: async (patient) => {
    const { database, schema } = patient;
    const rows = await database.query<{ alert: string; sentence: string; remedy: string }>(
      'read alerts',
      `SELECT alert, sentence, remedy FROM ${schema}.alerts() WHERE firing`,
    );
    if (rows.length === 0) return ok('none does');
    return warning(
      listed(rows.map(({ sentence }) => sentence)),
      listed(
        rows.map(({ alert, remedy }) => `${alert}: ${remedy}`),
        8,
      ),
      [waybill(patient, 'status')],
    );
  },
};

export const workChecks = [paused, gone, unrouted, watches, retention, alerts];
