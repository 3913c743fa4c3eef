// Ends claims: by settling, by releasing, or by an expired lease.

import { only } from './only.js';
import type { Claim, Connection } from './outbox.js';
import type { TestDatabase } from './postgres.js';

export type Ending = {
  id: string;
  claimNo?: number | null;
  outcome?: 'delivered' | 'retry' | 'reject' | 'release' | 'pause' | 'discard';
  retryAfterMs?: number;
  latencyMs?: number;
  errorCode?: string;
  remoteCode?: string;
  errorMessage?: string;
  reference?: string;
  response?: string;
};

export type Settled = { settled: number; lost: string[] };

/** Endings without an outcome mean delivered; the function accepts this short form. */
export async function settle(
  db: TestDatabase,
  lease: { leaseId: string; relayId: string; destinationId?: number },
  endings: Ending[],
  on: Connection = db.pool,
): Promise<Settled> {
  const column = <T>(pick: (ending: Ending) => T | null | undefined): (T | null)[] =>
    endings.map((ending) => pick(ending) ?? null);
  const plain = endings.every((ending) => ending.outcome === undefined);
  const { rows } = await on.query<Settled>(
    `SELECT settled, lost FROM ${db.quoted}.settle($1, $2, $3::uuid[], $4::int[], $5::${db.quoted}.outcome[], $6::bigint[],
       $7::int[], $8::text[], $9::text[], $10::text[], $11::text[], $12::int, $13::text[])`,
    [
      lease.leaseId,
      lease.relayId,
      endings.map((ending) => ending.id),
      endings.every((ending) => ending.claimNo === undefined)
        ? null
        : column((ending) => ending.claimNo),
      plain ? null : column((ending) => ending.outcome),
      column((ending) => ending.retryAfterMs),
      column((ending) => ending.latencyMs),
      column((ending) => ending.errorCode),
      column((ending) => ending.remoteCode),
      column((ending) => ending.errorMessage),
      column((ending) => ending.reference),
      lease.destinationId ?? null,
      column((ending) => ending.response),
    ],
  );
  return only(rows);
}

/** Settles several leases of one relay with one call. Returns the results in their order. */
export async function settleMany(
  db: TestDatabase,
  relayId: string,
  leases: readonly { leaseId: string; destinationId: number; endings: readonly Ending[] }[],
  on: Connection = db.pool,
): Promise<Settled[]> {
  const given = leases.map(({ leaseId, destinationId, endings }, place) => ({
    place,
    leaseId,
    destinationId,
    ids: endings.map(({ id }) => id),
    outcomes: endings.every(({ outcome }) => outcome === undefined)
      ? null
      : endings.map(({ outcome }) => outcome),
    latencyMs: endings.map(({ latencyMs }) => latencyMs),
    codes: endings.map(({ errorCode }) => errorCode),
  }));
  const { rows } = await on.query<Settled & { place: number }>(
    `SELECT place, settled, lost FROM ${db.quoted}.settle_many($1, $2)`,
    [relayId, JSON.stringify(given)],
  );
  return rows.toSorted((a, b) => a.place - b.place).map(({ settled, lost }) => ({ settled, lost }));
}

/** Ends whole leases as delivered, with one latency for each message. Returns the leases that have ended. */
export async function deliverLeases(
  db: TestDatabase,
  relayId: string,
  leases: readonly { leaseId: string; latencies: readonly (number | null)[] }[],
  on: Connection = db.pool,
): Promise<string[]> {
  const { rows } = await on.query<{ ended: string[] }>(
    `SELECT ${db.quoted}.deliver_leases($1, $2, $3, $4) AS ended`,
    [
      relayId,
      leases.map(({ leaseId }) => leaseId),
      leases.map(({ latencies }) => latencies.length),
      leases.flatMap(({ latencies }) => latencies),
    ],
  );
  return only(rows).ended;
}

/** Ends the whole lease of a claim as delivered; returns whether it has ended. */
export async function deliverLease(
  db: TestDatabase,
  { leaseId, relayId, ids }: Pick<Claim, 'leaseId' | 'relayId' | 'ids'>,
  {
    latencies = ids.map(() => 1),
    on = db.pool,
  }: { latencies?: (number | null)[]; on?: Connection } = {},
): Promise<boolean> {
  const ended = await deliverLeases(db, relayId, [{ leaseId, latencies }], on);
  return ended.includes(leaseId);
}

/** Settles everything of a claim as delivered, with the claim numbers, as a relay does. */
export async function settleDelivered(
  db: TestDatabase,
  claim: Claim,
  on: Connection = db.pool,
): Promise<Settled> {
  const endings = claim.rows.map((row) => ({ id: row.message_id, claimNo: row.claim_no }));
  return settle(db, claim, endings, on);
}

export async function releaseLease(
  db: TestDatabase,
  lease: { leaseId: string; relayId: string },
): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT ${db.quoted}.release_lease($1, $2) AS count`,
    [lease.leaseId, lease.relayId],
  );
  return only(rows).count;
}

/** Makes a lease expire now. */
export async function expire(db: TestDatabase, lease: { leaseId: string }): Promise<void> {
  const { rowCount } = await db.query(
    `UPDATE ${db.quoted}.leases SET expires_at = clock_timestamp() WHERE id = $1`,
    [lease.leaseId],
  );
  if (rowCount !== 1) throw new Error('there is no such lease to expire');
}

export async function reap(db: TestDatabase, on: Connection = db.pool): Promise<number> {
  const { rows } = await on.query<{ count: number }>(`SELECT ${db.quoted}.reap() AS count`);
  return only(rows).count;
}
