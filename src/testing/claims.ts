// Claims and outcomes of a test: the functions that relays use, on the client of the test. Arguments and results are
// texts, because drivers and ORMs treat other types differently.

import { randomUUID } from 'node:crypto';

import { ClaimedMessage, column } from '../core/claimed-message.js';
import { cleanText } from '../core/outcome.js';
import type { Conclusion } from '../core/outcome.js';
import { TestKitError } from './errors.js';
import type { TestSession } from './session.js';

/** Messages of one claim. */
const claimSize = 100;
const claimBytes = 64 * 1024 * 1024;
const leaseMs = 600_000;

export type Lease = {
  id: string;
  messages: ClaimedMessage[];
  /** How many of them are not messages of this test. */
  foreign: number;
};

/** The columns of a claim as texts, as ClaimedMessage takes them, whatever the driver makes of their types. */
const claimed: Record<keyof typeof column, string> = {
  id: 'c.message_id::text',
  claimNo: 'c.claim_no::text',
  tries: 'c.tries::text',
  quarantined: `CASE WHEN c.quarantined THEN 't' ELSE 'f' END`,
  availableAt: 'c.available_at::text',
  createdAt: 'c.created_at::text',
  keyId: 'c.key_id::text',
  sequence: 'c.sequence::text',
  previousSequence: 'c.previous_sequence::text',
  namespace: 'c.namespace',
  topic: 'c.topic',
  tenantId: 'c.tenant_id',
  key: 'c.key',
  dedupeKey: 'c.dedupe_key',
  aggregateType: 'c.aggregate_type',
  aggregateId: 'c.aggregate_id',
  headers: 'c.headers::text',
  payload: 'c.payload::text',
  expired: 'NULL::text',
};

/** Claims what is due, as a relay does; of each key at most one message. */
export async function claim(session: TestSession, destinationId: number): Promise<Lease> {
  const id = randomUUID();
  const texts = Object.keys(column).map(
    (name, index) => `${claimed[name as keyof typeof column]} AS c${index}`,
  );
  const rows = await session.query(
    // a message that was committed after the statement began is not found, and is not of this test
    `SELECT ${texts.join(', ')},
            CASE WHEN (SELECT ${session.own} FROM ${session.schema}.messages m WHERE m.id = c.message_id)
                 THEN 't' ELSE 'f' END AS own
       FROM ${session.schema}.claim_batch($1::text::int, $2::text::uuid, $3::text::uuid, ${claimSize}, ${claimBytes},
              ${leaseMs}, p_one_per_key => true) c`,
    [String(destinationId), id, session.relayId],
  );
  const messages = rows.map(
    (row) =>
      new ClaimedMessage(texts.map((_text, index) => (row[`c${index}`] as string | null) ?? null)),
  );
  return { id, messages, foreign: rows.filter((row) => row['own'] !== 't').length };
}

/** Records the outcome of one message, as a relay does. */
export async function settle(
  session: TestSession,
  leaseId: string,
  { id, claimNo }: ClaimedMessage,
  outcome: Conclusion,
): Promise<void> {
  const failure = 'code' in outcome ? outcome : undefined;
  const answer = outcome.kind === 'release' ? undefined : outcome;
  const text = (given: string | undefined, maxLength?: number): string | null =>
    given === undefined ? null : cleanText(given, maxLength);
  const [row] = await session.query(
    `SELECT s.settled::text AS settled
       FROM ${session.schema}.settle(
              $1::text::uuid, $2::text::uuid, ARRAY[$3::text::uuid], ARRAY[$4::text::int],
              CASE WHEN $5::text <> 'delivered' THEN ARRAY[$5::text::${session.schema}.outcome] END,
              ARRAY[$6::text::bigint], NULL, ARRAY[$7::text], ARRAY[$8::text], ARRAY[$9::text], ARRAY[$10::text],
              NULL, ARRAY[$11::text]) s`,
    [
      leaseId,
      session.relayId,
      id,
      String(claimNo),
      outcome.kind,
      'afterMs' in outcome && outcome.afterMs !== undefined ? String(outcome.afterMs) : null,
      text(failure?.code),
      text(answer?.remoteCode),
      text(failure?.message),
      outcome.kind === 'delivered' ? text(outcome.reference) : null,
      text(answer?.response, 4096),
    ],
  );
  if (Number(row?.['settled']) !== 1)
    throw new TestKitError(
      `the outcome of message ${id} could not be recorded: something else has ended its claim meanwhile; let nothing but the test kit deliver in a test`,
    );
}

export async function release(session: TestSession, leaseId: string): Promise<void> {
  await session.query(
    `SELECT ${session.schema}.release_leases($1::text::uuid, ARRAY[$2::text::uuid])::text AS released`,
    [session.relayId, leaseId],
  );
}
