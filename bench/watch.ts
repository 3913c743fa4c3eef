// watch: the cost of a watched table for its writers. Updates of one row and of a thousand rows each, on a table without
// a watch, on the same table with a watch, and with the obvious hand-written trigger, which calls enqueue for each row.
// Measures the processor time of the writer's server process where the kernel reports it, so that a busy machine does
// not matter much, otherwise the elapsed time. Fails unless all messages were written.

import type pg from 'pg';

import { migrateUp } from '../src/database/migrate.js';
import { ratio } from './harness/bench.js';
import type { Bench } from './harness/bench.js';
import { processorMs } from './harness/processor-time.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { interleave, median } from './harness/rounds.js';
import { ask } from './harness/server.js';
import type { BenchDatabase } from './harness/server.js';

const entrants = ['no watch', 'watch', 'row trigger'] as const;
type Entrant = (typeof entrants)[number];
type Figures = { bulkMs: number; singleMs: number };

const bulks = 20;

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
  const rows = options.messages ?? (options.tiny ? 100 : 1000);
  const singles = options.tiny ? 10 : 2000;
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
  const trigger = of('row trigger');
  const single = of('watch').singleMs / trigger.singleMs;
  const bulk = of('watch').bulkMs / trigger.bulkMs;
  printSettings('Watch', { rows, bulks, singles, rounds: options.rounds });
  printTable(
    [
      'table with',
      'UPDATE of one row, ms',
      'to row trigger',
      `UPDATE of ${shown(rows)} rows, ms`,
      'to row trigger',
    ],
    entrants.map((name) => [
      name,
      of(name).singleMs,
      of(name).singleMs / trigger.singleMs,
      of(name).bulkMs,
      of(name).bulkMs / trigger.bulkMs,
    ]),
  );
  return {
    waybill: of('watch'),
    peers: {},
    rowTrigger: trigger,
    limit: of('no watch'),
    ratioToBestPeer: null,
    ratioToLimit: ratio(of('no watch').bulkMs, of('watch').bulkMs),
    singleToRowTrigger: single,
    bulkToRowTrigger: bulk,
    rows,
    aims: [
      { what: 'one row, to a row trigger', atMost: 1.3, actual: single },
      { what: `${shown(rows)} rows, to a row trigger`, atMost: 0.33, actual: bulk },
    ],
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
  const updates = Array.from(
    { length: singles },
    (_, index) => `UPDATE jobs SET status = 'single ${index}' WHERE job_id = ${(index % rows) + 1}`,
  );
  const singleMs = (await spent(client, ['BEGIN', ...updates, 'COMMIT'])) / singles;
  const bulk = Array.from(
    { length: bulks },
    (_, index) => `UPDATE jobs SET status = 'bulk ${index}'`,
  );
  const bulkMs = (await spent(client, bulk)) / bulks;
  const expected = name === 'no watch' ? 0 : 1 + singles + bulks * rows;
  const found = await ask<number>(
    client,
    `SELECT count(*)::int AS answer FROM outbox.messages m JOIN outbox.deliveries d ON d.message_id = m.id`,
  );
  if (found !== expected) throw new Error(`${name}: ${found} messages instead of ${expected}`);
  return { bulkMs, singleMs };
}

/** The processor time of the session for these statements; the elapsed time where it is not known. */
async function spent(client: pg.Client, statements: readonly string[]): Promise<number> {
  const pid = await ask<number>(client, 'SELECT pg_backend_pid() AS answer');
  const [startedMs, before] = [performance.now(), processorMs(pid)];
  for (const statement of statements) await client.query(statement);
  const after = processorMs(pid);
  return before === null || after === null ? performance.now() - startedMs : after - before;
}
