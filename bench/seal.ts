// seal: the cost of the audit. Seconds to seal and to verify a million attempts, with the processor time of the
// server process. Fails unless everything was sealed and is intact.

import { Database, resolveDatabaseOptions } from '../src/database/connection.js';
import { migrateUp } from '../src/database/migrate.js';
import { sealStep } from '../src/features/audit/database.js';
import { verifySeals } from '../src/features/audit/verify.js';
import type { Bench } from './harness/bench.js';
import { processorMs } from './harness/processor-time.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { ask } from './harness/server.js';
import type { BenchDatabase } from './harness/server.js';

const rangeRows = 10_000;
const responseBytes = 100;

type Cost = { seconds: number; processorSeconds: number | null };

export const seal: Bench = async (server, options) => {
  const count = options.messages ?? (options.tiny ? 2000 : 1_000_000);
  const database = await server.createDatabase('seal');
  const relay = new Database(resolveDatabaseOptions({ url: database.url }), {
    connections: 1,
    applicationName: 'waybill bench',
  });
  try {
    progress(`preparing ${shown(count)} attempts …`);
    await prepare(database, count);
    const [backend] = await relay.query<{ pid: number }>('pid', 'SELECT pg_backend_pid() AS pid');
    const measure = (work: () => Promise<unknown>) => costOf(backend?.pid ?? 0, work);
    const steps = { rangeRows, delayMs: 0, everyMs: 3_600_000 };
    const sealing = await measure(async () => {
      while ((await sealStep(relay, steps)) !== null);
    });
    let rows = 0;
    const verifying = await measure(async () => {
      const found = await verifySeals(relay);
      rows = found.rows;
      if (!found.intact) throw new Error('the seals do not verify');
    });
    if (rows < count) throw new Error(`${rows} of ${count} rows were sealed`);
    return report(count, sealing, verifying);
  } finally {
    await relay.close();
    await database.drop();
  }
};

/** Inserts attempts as if a relay had delivered them yesterday, but faster. */
async function prepare({ client, url }: BenchDatabase, count: number): Promise<void> {
  await migrateUp({ url });
  await client.query(`SELECT outbox.define_destination('sealed')`);
  const id = await ask<number>(client, 'SELECT id AS answer FROM outbox.destinations');
  await client.query(
    `INSERT INTO outbox.attempts (message_id, destination_id, claim_no, tries, state, claimed_at, ended_at, relay_id,
            latency_ms, remote_code, reference, response)
     SELECT overlay(outbox.id_at(yesterday + g * interval '1 ms')::text PLACING '7000-8000-' || lpad(to_hex(g), 12, '0') FROM 15)::uuid,
            $1, 1, 1, 'dispatched', yesterday, yesterday + interval '1 s', gen_random_uuid(), 12, '200', 'ref-' || g, repeat('x', $2)
       FROM generate_series(1, $3::int) g, (SELECT date_trunc('day', now(), 'UTC') - interval '1 day') d(yesterday)`,
    [id, responseBytes, count],
  );
  await client.query('VACUUM ANALYZE outbox.attempts');
  await client.query('CHECKPOINT');
}

async function costOf(pid: number, work: () => Promise<unknown>): Promise<Cost> {
  const [before, startedMs] = [processorMs(pid), performance.now()];
  await work();
  const after = processorMs(pid);
  return {
    seconds: (performance.now() - startedMs) / 1000,
    processorSeconds: before === null || after === null ? null : (after - before) / 1000,
  };
}

function report(count: number, sealing: Cost, verifying: Cost) {
  const perMillion = (value: number | null): number | null =>
    value === null ? null : (value * 1_000_000) / count;
  const figures = ({ seconds, processorSeconds }: Cost) => ({
    seconds: perMillion(seconds),
    processorSeconds: perMillion(processorSeconds),
  });
  const waybill = { sealing: figures(sealing), verifying: figures(verifying) };
  printSettings('Seal', { attempts: count, rangeRows, responseBytes });
  printTable(
    ['for a million attempts', 'seconds', 'of them the server’s processor'],
    Object.entries(waybill).map(([what, { seconds, processorSeconds }]) => [
      what,
      seconds ?? '–',
      processorSeconds ?? '–',
    ]),
  );
  return {
    waybill,
    peers: {},
    limit: null,
    ratioToBestPeer: null,
    ratioToLimit: null,
    aims: [],
  };
}
