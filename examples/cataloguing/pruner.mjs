// Pruner: a function that lives for seconds. Each call of prune_outbox_events removes one day in a transaction of its
// own; the pauses leave room for producers. The next pruner removes what this one has left.

import { setTimeout as pause } from 'node:timers/promises';

import pg from 'pg';

/** @param {{ url: string, retentionHours?: number, maxMs?: number }} options */
export async function pruneEvents({ url, retentionHours = 72, maxMs = 25_000 }) {
  const began = performance.now();
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const report = { deleted_count: 0, execution_time_ms: 0, calls: 0, finished: false };
    do {
      if (report.calls > 0) await pause(100);
      const { rows } = await client.query(
        'SELECT * FROM prune_outbox_events(retention_hours => $1, batch_size => 1000)',
        [retentionHours],
      );
      report.calls += 1;
      report.deleted_count += rows[0].deleted_count;
      report.execution_time_ms += rows[0].execution_time_ms;
      report.finished = rows[0].deleted_count === 0;
    } while (!report.finished && performance.now() - began < maxMs);
    return report;
  } finally {
    await client.end();
  }
}
