// The CRM's worker: one token per run, batches of a hundred: claim, publish, mark. It runs under Node and Deno, and calls
// the functions of schema.sql over SQL or by rpc. Each row's own success or failure is kept.

const batchSize = 100;

/**
 * @typedef {{ id: string, tenant_id: string | null, topic: string, payload: unknown, created_at: unknown }} Row
 * @typedef {{ accepted: string[], failed: Record<string, string> }} Published ids, and errors by id
 * @typedef {(name: string, args: Record<string, unknown>) => Promise<unknown>} Call
 */

/**
 * Drains until nothing is due or the time is over. `publish` gets the whole batch, because Kafka takes it in one call.
 *
 * @param {Call} call
 * @param {(rows: Row[]) => Promise<Published> | Published} publish
 * @param {{ tenant?: string | undefined, maxMs?: number }} [options]
 */
export async function drain(call, publish, { tenant, maxMs = 50_000 } = {}) {
  const p_token = crypto.randomUUID();
  const end = Date.now() + maxMs;
  const report = { processed: 0, delivered: 0, failed: 0 };
  while (Date.now() < end) {
    const claim = { p_limit: batchSize, p_token, p_tenant: tenant ?? null };
    const rows = /** @type {Row[]} */ (await call('outbox_claim', claim));
    if (rows.length === 0) break;
    const { accepted, failed } = await publish(rows);
    const failures = Object.keys(failed).length;
    report.processed += rows.length;
    if (accepted.length > 0)
      report.delivered += Number(await call('outbox_mark_delivered', { p_token, p_ids: accepted }));
    if (failures > 0)
      report.failed += Number(await call('outbox_mark_failed', { p_token, p_errors: failed }));
  }
  return report;
}

/**
 * Calls over a connection to the database.
 *
 * @param {import('pg').ClientBase} client
 * @returns {Call}
 */
export function overSql(client) {
  return async (name, args) => {
    const given = Object.keys(args).map((each, index) => `${each} => $${index + 1}`);
    const { rows } = await client.query(
      `SELECT * FROM app.${name}(${given.join(', ')})`,
      Object.values(args),
    );
    return name === 'outbox_claim' ? rows : rows[0][name];
  };
}

/**
 * Calls by rpc, over Supabase's API.
 *
 * @param {string} url of the project
 * @param {string} key of the service role
 * @returns {Call}
 */
export function overRpc(url, key) {
  return async (name, args) => {
    const response = await fetch(`${url}/rest/v1/rpc/${name}`, {
      method: 'POST',
      headers: {
        apikey: key,
        authorization: `Bearer ${key}`,
        'content-type': 'application/json',
        'content-profile': 'app',
      },
      body: JSON.stringify(args),
    });
    if (!response.ok) throw new Error(`${name}: ${response.status} ${await response.text()}`);
    return response.json();
  };
}
