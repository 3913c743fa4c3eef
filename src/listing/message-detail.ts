// Message detail: one message with its deliveries, every attempt and how it ended, and why it is not delivered yet.

import { readableBytes } from '../core/message.js';
import type { Database } from '../database/connection.js';
import { explain } from './explanations.js';
import type { Explanation } from './explanations.js';

export type MessageDetail = {
  id: string;
  createdAt: Date;
  transactionId: string;
  namespace: string;
  topic: string;
  tenantId: string | null;
  key: string | null;
  sequence: string | null;
  dedupeKey: string | null;
  aggregateType: string | null;
  aggregateId: string | null;
  headers: Record<string, string> | null;
  payloadBytes: number;
  /** The payload as text, or its beginning if it is long; empty if it is too large to read. */
  payloadText: string;
  deliveries: Delivery[];
  attempts: Attempt[];
  explanations: Explanation[];
};

/** The status at one destination; an unrouted message has one entry without a destination. */
export type Delivery = {
  destination: string | null;
  status: string;
  retrying: boolean;
  tries: number;
  nextTryAt: Date | null;
  changedAt: Date;
};

export type Attempt = {
  destination: string;
  claimNo: number;
  tries: number;
  /** `dispatching` while a relay holds it. */
  state: string;
  relay: string | null;
  claimedAt: Date | null;
  endedAt: Date | null;
  latencyMs: number | null;
  errorCode: string | null;
  remoteCode: string | null;
  errorMessage: string | null;
  reference: string | null;
  /** The beginning of the destination's answer. */
  response: string | null;
};

const shownPayload = 100_000;
/** A larger payload is never converted to text. */
const isReadable = `bytes <= ${readableBytes}`;
const shownAttempts = 1000;

/** Null if there is no such message, or retention has removed it and it is not a dead letter. */
export async function readMessage(
  database: Database,
  id: string,
  payloadLimit = shownPayload,
): Promise<MessageDetail | null> {
  const { schema } = database;
  // a dead letter keeps a copy that outlives the message
  const columns = `created_at AS "createdAt", namespace, topic, tenant_id AS "tenantId", key, sequence::text AS sequence,
     dedupe_key AS "dedupeKey", aggregate_type AS "aggregateType", aggregate_id AS "aggregateId",
     CASE WHEN ${isReadable} THEN headers END AS headers,
     CASE WHEN ${isReadable} THEN octet_length(payload::text) ELSE bytes END AS "payloadBytes",
     CASE WHEN ${isReadable} THEN left(payload::text, $2) ELSE '' END AS "payloadText"`;
  const [message] = await database.query<
    Omit<MessageDetail, 'deliveries' | 'attempts' | 'explanations'>
  >(
    'read message',
    `(SELECT id, transaction_id::text AS "transactionId", ${columns} FROM ${schema}.messages WHERE id = $1)
     UNION ALL
     (SELECT message_id, NULL, ${columns} FROM ${schema}.dead_letters WHERE message_id = $1 AND payload IS NOT NULL)
     LIMIT 1`,
    [id, payloadLimit],
  );
  if (message === undefined) return null;
  const deliveries = await database.query<Delivery>(
    'read deliveries',
    `SELECT s.destination, s.status, s.retrying, s.tries, s.next_try_at AS "nextTryAt", s.changed_at AS "changedAt"
       FROM ${schema}.describe_messages(ARRAY[$1::uuid]) s ORDER BY s.destination`,
    [id],
  );
  const attempts = await database.query<Attempt>(
    'read attempts',
    // like the view attempt_log, whose plan would include every day
    `SELECT t.name AS destination, a.claim_no AS "claimNo", a.tries, a.state, coalesce(r.name, a.relay_id::text) AS relay,
            a.claimed_at AS "claimedAt", a.ended_at AS "endedAt", a.latency_ms AS "latencyMs", a.error_code AS "errorCode",
            a.remote_code AS "remoteCode", a.error_message AS "errorMessage", a.reference, a.response
       FROM (SELECT x.destination_id, x.claim_no, x.tries, x.state::text AS state, x.relay_id, x.claimed_at, x.ended_at, x.latency_ms,
                    x.error_code, x.remote_code, x.error_message, x.reference, x.response
               FROM ${schema}.attempts x WHERE x.message_id = $1
             UNION ALL
             SELECT l.destination_id, u.claim_no, u.tries, 'dispatching', l.relay_id, l.claimed_at, NULL, NULL, NULL, NULL, NULL, NULL, NULL
               FROM ${schema}.leases l, unnest(l.message_ids, l.claim_nos, l.tries) u(message_id, claim_no, tries)
              WHERE u.message_id = $1 AND NOT EXISTS (
                SELECT FROM ${schema}.attempts e WHERE e.message_id = $1 AND e.destination_id = l.destination_id AND e.claim_no = u.claim_no)) a
       LEFT JOIN ${schema}.destinations t ON t.id = a.destination_id
       LEFT JOIN ${schema}.relays r ON r.id = a.relay_id
      ORDER BY a.claimed_at NULLS LAST, t.name, a.claim_no LIMIT ${shownAttempts}`,
    [id],
  );
  return { ...message, deliveries, attempts, explanations: await explain(database, id) };
}

/** The whole payload as text; null if it is too large to read. */
export async function readPayload(database: Database, id: string): Promise<string | null> {
  const { schema } = database;
  const [row] = await database.query<{ payload: string | null }>(
    'read payload',
    `(SELECT CASE WHEN ${isReadable} THEN payload::text END AS payload FROM ${schema}.messages WHERE id = $1)
     UNION ALL
     (SELECT CASE WHEN ${isReadable} THEN payload::text END FROM ${schema}.dead_letters WHERE message_id = $1 AND payload IS NOT NULL)
     LIMIT 1`,
    [id],
  );
  return row?.payload ?? null;
}
