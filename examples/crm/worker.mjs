// The CRM's worker: one token per run, batches of a hundred: claim, publish, mark. `publish` gets the whole batch,
// because Kafka's producer takes it in one call. Messages that it does not return as done stay claimed, and the next
// run can claim them when the lease has expired.

import { randomUUID } from 'node:crypto';

const batchSize = 100;

/**
 * @param {import('pg').ClientBase} client
 * @param {(messages: { id: string, topic: string, payload: unknown }[]) => Promise<string[]> | string[]} publish ids that were taken
 * @param {{ tenant?: string }} [only]
 */
export async function drain(client, publish, { tenant } = {}) {
  const token = randomUUID();
  const report = { processed: 0, delivered: 0 };
  for (;;) {
    const { rows } = await client.query('SELECT * FROM app.outbox_claim($1, $2, $3)', [
      batchSize,
      token,
      tenant ?? null,
    ]);
    if (rows.length === 0) return report;
    const ids = await publish(rows);
    const marked = await client.query('SELECT app.outbox_mark_delivered($1, $2) AS count', [
      token,
      ids,
    ]);
    report.processed += rows.length;
    report.delivered += marked.rows[0].count;
  }
}
