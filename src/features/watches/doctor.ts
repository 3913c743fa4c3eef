// Doctor check of watches that may miss changes.

import { failure, listed, literal, ok, shellWord, waybill } from '../../doctor/check.js';
import type { Check } from '../../doctor/check.js';

const watches: Check = {
  code: 'watches_broken',
  title: 'watched tables are really watched',
  finds:
    'Error for a watch that may miss changes: its table was dropped, or its triggers are missing, disabled or not those of Waybill.',
  needs: 'schema',
  run: async (context) => {
    const { database, schema } = context;
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
      'Define the watch of an existing table again; end the watch of a dropped one. Changes in the meantime made no messages.',
      broken.map(({ watched, topic, there }) =>
        there
          ? `SELECT ${schema}.define_watch(table_id, given, owners[1], false) FROM ${schema}.watches WHERE table_name = ${literal(watched)} AND topic = ${literal(topic)};`
          : waybill(context, `unwatch ${shellWord(watched)} --topic ${shellWord(topic)}`),
      ),
    );
  },
};

export const watchChecks = [watches];
