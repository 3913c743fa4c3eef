// watch: the cost of a watched table for its writers. One UPDATE of ten thousand rows, and updates of one row each,
// on a table without a watch, on the same table with a watch, and with the obvious hand-written trigger, which calls
// enqueue for each row. Fails unless all messages were written.

import type pg from 'pg';

import { migrateUp } from '../src/database/migrate.js';
import { ratio } from './harness/bench.js';
import type { Bench } from './harness/bench.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { interleave, median } from './harness/rounds.js';
import { ask } from './harness/server.js';
import type { BenchDatabase } from './harness/server.js';

const entrants = ['no watch', 'watch', 'row trigger'] as const;
type Entrant = (typeof entrants)[number];
type Figures = { bulkMs: number; singleMs: number };

const preparations: Record<Entrant, string> = {
  'no watch': '',
  watch: `SELECT outbox.watch('jobs', topic => 'job', tenant => 'organization_id', columns => '{job_id,status}',
    when_changed => '{status}')`,
  'row trigger': `
    CREATE FUNCTION job_changed() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      PERFORM outbox.enqueue('job.changed', tenant_id => NEW.organization_id, aggregate_type => 'jobs',
        aggregate_id => NEW.job_id::text, payload => jsonb_build_object('table', 'public.jobs', 'event', 'changed',
          'recordId', NEW.job_id::text, 'record', jsonb_build_object('job_id', NEW.job_id, 'status', NEW.status)));
      RETURN NULL;
    END $$;
    CREATE TRIGGER job_changed AFTER UPDATE ON jobs FOR EACH ROW
      WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION job_changed()`,
};

export const watch: Bench = async (server, options) => {
  const rows = options.messages ?? (options.tiny ? 100 : 10_000);
  const singles = options.tiny ? 10 : 1000;
  const figures = await interleave(options.rounds, entrants, async (name, round) => {
    const database = await server.createDatabase(`watch ${name}`);
    try {
      const measured = await measure(database, name, rows, singles);
      progress(
        `round ${round + 1}: ${name}: ${shown(measured.bulkMs)} ms for ${shown(rows)} rows, ${shown(measured.singleMs)} ms for one`,
      );
      return measured;
    } finally {
      await database.drop();
    }
  });

  const of = (name: Entrant): Figures => ({
    bulkMs: median(figures[name].map(({ bulkMs }) => bulkMs)),
    singleMs: median(figures[name].map(({ singleMs }) => singleMs)),
  });
  printSettings('Watch', { rows, singles, rounds: options.rounds });
  printTable(
    ['table with', `UPDATE of ${shown(rows)} rows, ms`, 'µs a row', 'UPDATE of one row, ms'],
    entrants.map((name) => [
      name,
      of(name).bulkMs,
      (of(name).bulkMs / rows) * 1000,
      of(name).singleMs,
    ]),
  );
  const faster = of('row trigger').bulkMs / of('watch').bulkMs;
  return {
    waybill: of('watch'),
    peers: {},
    rowTrigger: of('row trigger'),
    limit: of('no watch'),
    ratioToBestPeer: null,
    ratioToLimit: ratio(of('no watch').bulkMs, of('watch').bulkMs),
    ratioToRowTrigger: faster,
    rows,
    aims: [{ what: 'times faster than a row trigger, in bulk', atLeast: 3, actual: faster }],
  };
};

async function measure(
  { client, url }: BenchDatabase,
  name: Entrant,
  rows: number,
  singles: number,
): Promise<Figures> {
  await migrateUp({ url });
  await client.query(`
    SELECT outbox.define_destination('sink');
    INSERT INTO outbox.routes (destination_id, topic) SELECT id, '*' FROM outbox.destinations;
    CREATE TABLE jobs (job_id bigint PRIMARY KEY, organization_id text, status text);
    INSERT INTO jobs SELECT n, 'acme', 'new' FROM generate_series(1, ${rows}) n`);
  await client.query(preparations[name]);
  await client.query('VACUUM ANALYZE jobs');
  await client.query('CHECKPOINT');
  // warm up: plans are made once per session, and are not part of the measurement
  await client.query(`UPDATE jobs SET status = 'warm' WHERE job_id = 1`);
  const bulkMs = await timed(client, [`UPDATE jobs SET status = 'bulk'`]);
  const updates = Array.from(
    { length: singles },
    (_, index) => `UPDATE jobs SET status = 'single ${index}' WHERE job_id = ${(index % rows) + 1}`,
  );
  const singleMs = (await timed(client, ['BEGIN', ...updates, 'COMMIT'])) / singles;
  const expected = name === 'no watch' ? 0 : 1 + rows + singles;
  const found = await ask<number>(
    client,
    `SELECT count(*)::int AS answer FROM outbox.messages m JOIN outbox.deliveries d ON d.message_id = m.id`,
  );
  if (found !== expected) throw new Error(`${name}: ${found} messages instead of ${expected}`);
  return { bulkMs, singleMs };
}

async function timed(client: pg.Client, statements: readonly string[]): Promise<number> {
  const startedMs = performance.now();
  for (const statement of statements) await client.query(statement);
  return performance.now() - startedMs;
}
