// Creates deliveries that failed: waiting for another try, or dead.

import type pg from 'pg';

import type { Queue } from './outbox.js';
import type { TestDatabase } from './postgres.js';
import { settle } from './settling.js';

/** Creates this many dead letters with this code; returns their ids. */
export async function makeDead(
  queue: Queue,
  count: number,
  errorCode: string,
  fields: Parameters<Queue['enqueue']>[1] = {},
): Promise<string[]> {
  const ids = await queue.enqueue(count, fields);
  const claim = await queue.claim({ limit: count });
  await settle(
    queue.db,
    claim,
    claim.ids.map((id) => ({ id, outcome: 'reject' as const, errorCode, errorMessage: 'refused' })),
  );
  return ids;
}

/** Creates this many deliveries that wait an hour for their next try; returns their ids. */
export async function makeRetrying(queue: Queue, count: number): Promise<string[]> {
  const ids = await queue.enqueue(count);
  const claim = await queue.claim({ limit: count });
  await settle(
    queue.db,
    claim,
    claim.ids.map((id) => ({
      id,
      outcome: 'retry' as const,
      retryAfterMs: 3_600_000,
      errorCode: 'busy',
      errorMessage: 'try later',
    })),
  );
  return ids;
}

/** Creates a key whose first message is dead and blocks the others; returns the ids in order. */
export async function makeBlocked(queue: Queue, key: string, behind = 2): Promise<string[]> {
  const ids = await queue.enqueue(behind + 1, { key, tenantId: 'acme' });
  const claim = await queue.claimOne();
  await settle(queue.db, claim, [{ id: claim.id, outcome: 'reject', errorCode: 'no' }]);
  await queue.db.query(
    `SELECT ${queue.db.quoted}.wake_lanes(d, 100) FROM ${queue.db.quoted}.destinations d WHERE id = $1`,
    [queue.id],
  );
  return ids;
}

/** Parks a waiting delivery of the default schema, as a dead letter of its key does: without an attempt. */
export async function park(db: TestDatabase, id: string): Promise<void> {
  await db.query(
    `WITH parked AS (DELETE FROM outbox.deliveries WHERE message_id = $1 RETURNING *)
     INSERT INTO outbox.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, created_at, namespace,
                                      topic, tenant_id, payload)
     SELECT m.id, p.destination_id, now(), p.claim_no, p.tries, 'parked', m.created_at, m.namespace, m.topic,
            m.tenant_id, m.payload
       FROM parked p JOIN outbox.messages m ON m.id = p.message_id`,
    [id],
  );
}

/** Locks a dead letter, so that a batch with it waits until the transaction of this client ends. */
export async function holdLetter(queue: Queue, place: number): Promise<pg.Client> {
  const { db } = queue;
  const client = await db.connect();
  await client.query('BEGIN');
  await client.query(
    `SELECT FROM ${db.quoted}.dead_letters WHERE message_id = (
       SELECT d.message_id FROM ${db.quoted}.dead_letters d WHERE d.destination_id = $1 ORDER BY d.dead_at, d.message_id OFFSET $2 LIMIT 1) FOR UPDATE`,
    [queue.id, place],
  );
  return client;
}
