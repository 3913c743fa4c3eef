// The platform's outbox interface over Waybill: enqueue, and a store that is bound to a worker and a namespace. A store
// can end only what it holds now, by lease and by attempt. A call that comes too late throws a LeaseLostError and
// changes nothing.

import { createOutbox } from 'waybill/producer';

const destination = 'modkit';
const outbox = createOutbox();

export class LeaseLostError extends Error {
  name = 'LeaseLostError';
}

/** Inside the caller's transaction. The id, also of the first message with this dedupe key: then `duplicate` is true. */
export async function enqueue(runner, { namespace, topic, tenant_id, dedupe_key, payload }) {
  const { id, duplicate } = await outbox.enqueue(runner, {
    topic,
    payload,
    ...(namespace !== undefined && { namespace }),
    ...(tenant_id !== undefined && { tenantId: tenant_id }),
    ...(dedupe_key !== undefined && { dedupeKey: dedupe_key }),
  });
  return { id, duplicate };
}

/**
 * @param {Pick<import('pg').ClientBase, 'query'>} client a client or a pool
 * @param {{ worker_id: string, namespace: string }} bound the worker's id is a UUID
 */
export function createStore(client, { worker_id, namespace }) {
  /** The number of the attempt that this store holds, by message. */
  const attempts = new Map();

  async function end(id, verb, sql, values) {
    const attempt = attempts.get(id);
    attempts.delete(id);
    const held =
      attempt !== undefined &&
      (await client.query(sql, [worker_id, id, attempt, destination, ...values])).rows[0].held;
    if (!held) throw new LeaseLostError(`${verb} of ${id}: worker ${worker_id} does not hold it`);
  }

  return {
    /** lease_duration in milliseconds. max_attempts belongs to the destination: give the same in every dispatcher. */
    async claim_batch({ batch_size, lease_duration, max_attempts }) {
      await client.query(
        `SELECT outbox.define_destination($1, p_max_attempts => $2)
          WHERE NOT EXISTS (SELECT FROM outbox.destinations WHERE name = $1 AND max_attempts = $2::int)`,
        [destination, max_attempts],
      );
      const { rows } = await client.query(
        `SELECT message_id AS id, claim_no, namespace, topic, tenant_id, dedupe_key, payload, tries AS attempts, created_at
           FROM outbox.claim($1, $2, $3, lease => $4 * interval '1 millisecond', only_namespace => $5)`,
        [destination, worker_id, batch_size, lease_duration, namespace],
      );
      return rows.map(({ claim_no, ...message }) => {
        attempts.set(message.id, claim_no);
        return message;
      });
    },
    ack: (id) =>
      end(id, 'ack', 'SELECT outbox.ack($1, $2, attempt => $3, destination => $4) AS held', []),
    nack: (id, error) =>
      end(id, 'nack', 'SELECT outbox.nack($1, $2, $5, attempt => $3, destination => $4) AS held', [
        String(error),
      ]),
    /** Gives back what was claimed and never sent: no attempt is spent. */
    async release(ids) {
      for (const id of ids) attempts.delete(id);
      await client.query(
        `SELECT outbox.settle(c.lease_id, $1, array_agg(c.message_id), array_agg(c.claim_no), array_agg('release'::outbox.outcome))
           FROM outbox.active_claims c WHERE c.relay_id = $1 AND c.message_id = ANY ($2::uuid[]) GROUP BY c.lease_id`,
        [worker_id, ids],
      );
    },
  };
}
