// Claims and outcomes: the calls that a relay makes for every batch, one round trip each.

import { ClaimedMessage } from '../core/claimed-message.js';
import { cleanText } from '../core/outcome.js';
import type { Conclusion, Receipt } from '../core/outcome.js';
import type { Database } from './connection.js';

export type ClaimRequest = {
  destinationId: number;
  leaseId: string;
  relayId: string;
  limit: number;
  maxBytes: number;
  leaseMs: number;
  tenantIds: readonly string[] | null;
  namespace: string | null;
  /** Start the scan after the last claimed message, or `overlapMs` before it, instead of at the beginning of the queue. */
  scanStart: { availableAt: string; id: string; overlapMs: number } | null;
  /** Claim messages with a key before messages without one. */
  lanesFirst: boolean;
  /** With fairness: the tenants that were served last, for messages without a key and with a key. */
  afterTenant: string | null;
  afterLaneTenant: string | null;
  /** Older messages come back as expired. Default: none. */
  expireAfterMs?: number | null;
};

export async function claimBatch(
  database: Database,
  request: ClaimRequest,
): Promise<ClaimedMessage[]> {
  const { scanStart, expireAfterMs = null } = request;
  const rows = await database.queryTexts(
    'claim',
    `SELECT * FROM ${database.schema}.claim_batch($1, $2, $3, $4, $5, $6, $7, $8, p_lanes_first => $9, p_after_tenant => $10, p_after_lane_tenant => $11${scanStart ? ", p_scan_from_at => $12::timestamptz - $14::int * interval '1 ms', p_scan_from_id => $13" : ''}${expireAfterMs === null ? '' : `, p_expire_after_ms => $${scanStart ? 15 : 12}`})`,
    [
      request.destinationId,
      request.leaseId,
      request.relayId,
      request.limit,
      request.maxBytes,
      request.leaseMs,
      request.tenantIds,
      request.namespace,
      request.lanesFirst,
      request.afterTenant,
      request.afterLaneTenant,
      ...(scanStart ? [scanStart.availableAt, scanStart.id, scanStart.overlapMs] : []),
      ...(expireAfterMs === null ? [] : [expireAfterMs]),
    ],
    { prepared: true },
  );
  return rows.map((row) => new ClaimedMessage(row));
}

/** What all requests of a shared claim have in common comes from the first one. */
export async function claimBatches(
  database: Database,
  requests: readonly ClaimRequest[],
): Promise<ClaimedMessage[][]> {
  const [first] = requests;
  if (first === undefined) return [];
  const rows = await database.queryTexts(
    'claim',
    `SELECT * FROM ${database.schema}.claim_batches($1, $2, $3, $4, $5, $6, $7, $8, $9,
       ARRAY (SELECT f.time - f.overlap * interval '1 ms'
                FROM unnest($10::timestamptz[], $14::int[]) WITH ORDINALITY f(time, overlap, place) ORDER BY f.place),
       $11, $12, $13, $15)`,
    [
      first.relayId,
      first.maxBytes,
      first.leaseMs,
      first.tenantIds,
      first.namespace,
      requests.map(({ destinationId }) => destinationId),
      requests.map(({ leaseId }) => leaseId),
      requests.map(({ limit }) => limit),
      requests.map(({ lanesFirst }) => lanesFirst),
      column(requests, ({ scanStart }) => scanStart?.availableAt),
      column(requests, ({ scanStart }) => scanStart?.id),
      column(requests, ({ afterTenant }) => afterTenant),
      column(requests, ({ afterLaneTenant }) => afterLaneTenant),
      column(requests, ({ scanStart }) => scanStart?.overlapMs),
      column(requests, ({ expireAfterMs }) => expireAfterMs),
    ],
    { prepared: true },
  );
  const claimed = requests.map((): ClaimedMessage[] => []);
  for (const row of rows) claimed[Number(row.at(-1)) - 1]?.push(new ClaimedMessage(row));
  return claimed;
}

/** The outcome of one claimed message. */
export type Ending = { message: ClaimedMessage; outcome: Conclusion; latencyMs: number | null };

export type SettleResult = {
  /** Claims that this call ended. */
  settled: number;
  /** Messages that another holder has by now. */
  lost: string[];
  /** One of the outcomes has paused the destination. */
  paused: boolean;
};

/** Outcomes of one lease. */
export type SettleRequest = {
  leaseId: string;
  destinationId: number;
  endings: readonly Ending[];
};

/**
 * Settles many leases with one statement. Returns a result for each, in their order. None of the outcomes may pause its
 * destination.
 */
export async function settleMany(
  database: Database,
  relayId: string,
  requests: readonly SettleRequest[],
): Promise<SettleResult[]> {
  const leases = requests.map(({ leaseId, destinationId, endings }, place) => {
    const [ids, claimNos, outcomes, retryAfterMs, latencyMs, codes, remoteCodes, ...others] =
      endingColumns(endings, destinationId);
    const [messages, references, , responses] = others;
    const answers = { codes, remoteCodes, messages, references, responses };
    return {
      place,
      leaseId,
      destinationId,
      ids,
      claimNos,
      outcomes,
      retryAfterMs,
      latencyMs,
      ...answers,
    };
  });
  const rows = await database.query<SettleResult & { place: number }>(
    'settle',
    `SELECT place, settled, lost, paused FROM ${database.schema}.settle_many($1, $2)`,
    [relayId, JSON.stringify(leases)],
    { prepared: true },
  );
  const results = requests.map((): SettleResult => ({ settled: 0, lost: [], paused: false }));
  for (const { place, ...result } of rows) results[place] = result;
  return results;
}

export async function settle(
  database: Database,
  relayId: string,
  { leaseId, destinationId, endings }: SettleRequest,
): Promise<SettleResult> {
  const [row] = await database.query<SettleResult>(
    'settle',
    `SELECT settled, lost, paused FROM ${database.schema}.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
    [leaseId, relayId, ...endingColumns(endings, destinationId)],
    { prepared: true },
  );
  return row ?? { settled: 0, lost: [], paused: false };
}

/** What is recorded of each message of a completely delivered lease, in the order of the claim. */
export type Delivery = { latencyMs: number | null; receipt: Receipt | undefined };

/** A lease that was delivered completely, with its deliveries in the order of the claim. */
export type DeliveredLease = { leaseId: string; deliveries: readonly Delivery[] };

/** Ends whole leases as delivered. Returns those that it has ended; the others are lost or partly settled. */
export async function deliverLeases(
  database: Database,
  relayId: string,
  leases: readonly DeliveredLease[],
): Promise<string[]> {
  const deliveries = leases.flatMap((lease) => lease.deliveries);
  const receipts = [
    column(deliveries, ({ receipt }) => clean(receipt?.remoteCode)),
    column(deliveries, ({ receipt }) => clean(receipt?.reference)),
    column(deliveries, ({ receipt }) => clean(receipt?.response, keptResponseLength)),
  ];
  const plain = receipts.every((values) => values === null);
  const [row] = await database.query<{ ended: string[] }>(
    'settle',
    `SELECT ${database.schema}.deliver_leases($1, $2, $3, $4${plain ? '' : ', $5, $6, $7'}) AS ended`,
    [
      relayId,
      leases.map(({ leaseId }) => leaseId),
      leases.map((lease) => lease.deliveries.length),
      deliveries.map(({ latencyMs }) => whole(latencyMs)),
      ...(plain ? [] : receipts),
    ],
    { prepared: true },
  );
  return row?.ended ?? [];
}

/** One array per column. A column without values is null: the usual batch, all delivered, has three arrays. */
function endingColumns(endings: readonly Ending[], destinationId: number): unknown[] {
  const failure = (outcome: Conclusion) => ('code' in outcome ? outcome : undefined);
  const answer = (outcome: Conclusion) => (outcome.kind === 'release' ? undefined : outcome);
  return [
    endings.map(({ message }) => message.id),
    endings.map(({ message }) => message.claimNo),
    endings.every(({ outcome }) => outcome.kind === 'delivered')
      ? null
      : column(endings, ({ outcome }) => outcome.kind),
    column(endings, ({ outcome }) => ('afterMs' in outcome ? outcome.afterMs : null)),
    column(endings, ({ latencyMs }) => whole(latencyMs)),
    column(endings, ({ outcome }) => clean(failure(outcome)?.code)),
    column(endings, ({ outcome }) => clean(answer(outcome)?.remoteCode)),
    column(endings, ({ outcome }) => clean(failure(outcome)?.message)),
    column(endings, ({ outcome }) =>
      outcome.kind === 'delivered' ? clean(outcome.reference) : null,
    ),
    destinationId,
    column(endings, ({ outcome }) => clean(answer(outcome)?.response, keptResponseLength)),
  ];
}

function column<I, T>(
  items: readonly I[],
  value: (item: I) => T | null | undefined,
): (T | null)[] | null {
  let used = false;
  const values = items.map((item) => {
    const given = value(item) ?? null;
    used ||= given !== null;
    return given;
  });
  return used ? values : null;
}

function whole(ms: number | null): number | null {
  return ms === null ? null : Math.round(ms);
}

/** The most that is stored of a destination's answer, in characters. */
const keptResponseLength = 4096;

function clean(text: unknown, maxLength?: number): string | null {
  return text === undefined || text === null ? null : cleanText(text, maxLength);
}

/** Returns the leases that are still held. */
export async function extendLeases(
  database: Database,
  relayId: string,
  leaseIds: readonly string[],
): Promise<string[]> {
  const [row] = await database.query<{ held: string[] }>(
    'extend leases',
    `SELECT ${database.schema}.extend_leases($1, $2) AS held`,
    [relayId, leaseIds],
  );
  return row?.held ?? [];
}

/** Releases the messages that these leases still hold, without spending a try; returns their number. */
export async function releaseLeases(
  database: Database,
  relayId: string,
  leaseIds: readonly string[],
): Promise<number> {
  const [row] = await database.query<{ released: number }>(
    'release leases',
    `SELECT ${database.schema}.release_leases($1, $2) AS released`,
    [relayId, leaseIds],
  );
  return row?.released ?? 0;
}

/** Ends expired leases of any relay; returns how many messages were requeued or became dead letters. */
export async function reap(database: Database): Promise<number> {
  const [row] = await database.query<{ reaped: number }>(
    'reap',
    `SELECT ${database.schema}.reap() AS reaped`,
  );
  return row?.reaped ?? 0;
}
