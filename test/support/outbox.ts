// Set-up for tests that call the SQL functions. A queue is a destination with one route, so the tests of a file are
// independent in one database without clearing any table.

import { randomUUID } from 'node:crypto';

import type pg from 'pg';

import { addRoute, defineDestination } from './destinations.js';
import type { QueueOptions } from './destinations.js';
import { only } from './only.js';
import { waitFor } from './wait.js';
import type { TestDatabase } from './postgres.js';
import { releaseLease, settle } from './settling.js';

export type Connection = Pick<pg.Client, 'query'> | Pick<pg.Pool, 'query'>;

export type MessageFields = {
  topic?: string;
  payload?: unknown;
  namespace?: string;
  tenantId?: string;
  key?: string;
  dedupeKey?: string;
  aggregateType?: string;
  aggregateId?: string;
  headers?: Record<string, string>;
  delayMs?: number;
  availableAt?: string;
};

export type ClaimedRow = {
  message_id: string;
  claim_no: number;
  tries: number;
  quarantined: boolean;
  available_at: Date;
  key_id: string | null;
  sequence: string | null;
  previous_sequence: string | null;
  namespace: string | null;
  topic: string | null;
  key: string | null;
  tenant_id: string | null;
  payload: string | null;
};

export type Claim = {
  destinationId: number;
  leaseId: string;
  relayId: string;
  rows: ClaimedRow[];
  ids: string[];
};

export type ClaimOptions = {
  limit?: number;
  maxBytes?: number;
  leaseMs?: number;
  tenantIds?: string[] | null;
  namespace?: string | null;
  relayId?: string;
  leaseId?: string;
  on?: Connection;
  /** For messages without a key, and with a key. */
  afterTenant?: string;
  afterLaneTenant?: string;
  lanesFirst?: boolean;
};

export type AttemptRow = {
  message_id: string;
  destination_id: number;
  claim_no: number;
  tries: number;
  state: string;
  relay_id: string | null;
  claimed_at: Date | null;
  ended_at: Date;
  latency_ms: number | null;
  error_code: string | null;
  remote_code: string | null;
  error_message: string | null;
  reference: string | null;
};

export class Queue {
  readonly db: TestDatabase;
  readonly name: string;
  readonly id: number;

  constructor(db: TestDatabase, name: string, id: number) {
    this.db = db;
    this.name = name;
    this.id = id;
  }

  /** The only topic that is routed here: the name of the queue. */
  get topic(): string {
    return this.name;
  }

  /** Enqueues this many messages in one statement and returns their ids in order. */
  async enqueue(count = 1, fields: MessageFields = {}): Promise<string[]> {
    return this.enqueueAll(
      Array.from({ length: count }, (_, n) => ({ payload: { n: n + 1 }, ...fields })),
    );
  }

  async enqueueOne(fields: MessageFields = {}): Promise<string> {
    return only(await this.enqueue(1, fields));
  }

  async enqueueAll(messages: MessageFields[]): Promise<string[]> {
    const rows = await enqueueMany(
      this.db,
      this.db.pool,
      messages.map((message) => ({ topic: this.topic, ...message })),
    );
    return rows.map((row) => row.id);
  }

  async claim(options: ClaimOptions = {}): Promise<Claim> {
    const {
      limit = 100,
      maxBytes = 64 * 1024 * 1024,
      leaseMs = 30_000,
      tenantIds = null,
      namespace = null,
      afterTenant = null,
      afterLaneTenant = afterTenant,
      lanesFirst = false,
      relayId = randomUUID(),
      leaseId = randomUUID(),
      on = this.db.pool,
    } = options;
    const { rows } = await on.query<ClaimedRow>(
      `SELECT * FROM ${this.db.quoted}.claim_batch($1::int, $2, $3, $4, $5, $6, $7, $8,
         p_after_tenant => $9, p_lanes_first => $10, p_after_lane_tenant => $11)`,
      [
        this.id,
        leaseId,
        relayId,
        limit,
        maxBytes,
        leaseMs,
        tenantIds,
        namespace,
        afterTenant,
        lanesFirst,
        afterLaneTenant,
      ],
    );
    return {
      destinationId: this.id,
      leaseId,
      relayId,
      rows,
      ids: rows.map((row) => row.message_id),
    };
  }

  /** Claims exactly one message, which must exist. */
  async claimOne(options: ClaimOptions = {}): Promise<Claim & { row: ClaimedRow; id: string }> {
    const claim = await this.claim({ ...options, limit: 1 });
    const row = only(claim.rows);
    return { ...claim, row, id: row.message_id };
  }

  async status(messageId: string): Promise<pg.QueryResultRow> {
    const { rows } = await this.db.query(
      `SELECT * FROM ${this.db.quoted}.message_status WHERE message_id = $1 AND destination = $2`,
      [messageId, this.name],
    );
    return only(rows);
  }

  async attempts(messageId: string): Promise<AttemptRow[]> {
    const { rows } = await this.db.query<AttemptRow>(
      `SELECT * FROM ${this.db.quoted}.attempts WHERE message_id = $1 AND destination_id = $2 ORDER BY claim_no`,
      [messageId, this.id],
    );
    return rows;
  }

  /** The pending messages of this queue, in claim order. */
  async waiting(): Promise<
    {
      message_id: string;
      claim_no: number;
      tries: number;
      quarantined: boolean;
      available_at: Date;
    }[]
  > {
    const { rows } = await this.db.query<{
      message_id: string;
      claim_no: number;
      tries: number;
      quarantined: boolean;
      available_at: Date;
    }>(
      `SELECT * FROM ${this.db.quoted}.deliveries WHERE destination_id = $1 ORDER BY available_at, message_id`,
      [this.id],
    );
    return rows;
  }

  async deadLetters(): Promise<pg.QueryResultRow[]> {
    const { rows } = await this.db.query(
      `SELECT * FROM ${this.db.quoted}.dead_letters WHERE destination_id = $1 ORDER BY message_id`,
      [this.id],
    );
    return rows;
  }

  /** Makes every pending delivery due now. */
  async makeDue(): Promise<void> {
    await this.db.query(
      `WITH due AS (
         UPDATE ${this.db.quoted}.deliveries SET available_at = clock_timestamp()
          WHERE destination_id = $1 AND available_at > clock_timestamp() RETURNING destination_id, key_id)
       SELECT ${this.db.quoted}.recheck_lanes(array_agg(destination_id), array_agg(key_id)) FROM due`,
      [this.id],
    );
  }

  /** Rejects the one pending message, so that it becomes a dead letter. */
  async kill(messageId: string, errorCode = 'broken'): Promise<void> {
    const claim = await this.claim();
    const settled = await settle(this.db, claim, [{ id: messageId, outcome: 'reject', errorCode }]);
    if (settled.settled !== 1) throw new Error(`${messageId} was not there to be rejected`);
    await releaseLease(this.db, claim);
  }
}

/** Keyed by database, because files that share a process must not share numbers. */
const queues = new Map<string, number>();

/** Creates a destination and a route for the topic of the same name. */
export async function makeQueue(db: TestDatabase, options: QueueOptions = {}): Promise<Queue> {
  const number = (queues.get(db.url) ?? 0) + 1;
  queues.set(db.url, number);
  const name = `queue-${number}`;
  const id = await defineDestination(db, name, options);
  await addRoute(db, id, name);
  return new Queue(db, name, id);
}

export type EnqueuedRow = { id: string; sequence: string | null; duplicate: boolean };

export async function enqueueMany(
  db: TestDatabase,
  on: Connection,
  messages: MessageFields[],
): Promise<EnqueuedRow[]> {
  const { rows } = await on.query<EnqueuedRow>(
    `SELECT * FROM ${db.quoted}.enqueue_many($1::text::jsonb)`,
    [JSON.stringify(messages)],
  );
  return rows;
}

/** Every (message, destination) that is not in exactly one place, counted in the tables. */
export async function misplaced(db: TestDatabase): Promise<pg.QueryResultRow[]> {
  const question = `WITH place AS (
       SELECT message_id, destination_id, 'deliveries' AS place FROM ${db.quoted}.deliveries
       UNION ALL SELECT message_id, destination_id, 'dead_letters' FROM ${db.quoted}.dead_letters
       UNION ALL SELECT u.message_id, l.destination_id, 'leases'
         FROM ${db.quoted}.leases l, unnest(l.message_ids, l.claim_nos) u(message_id, claim_no)
        WHERE NOT EXISTS (SELECT FROM ${db.quoted}.attempts a WHERE a.message_id = u.message_id
                             AND a.destination_id = l.destination_id AND a.claim_no = u.claim_no)
       UNION ALL SELECT message_id, destination_id, 'attempts' FROM ${db.quoted}.attempts a
        WHERE state IN ('dispatched', 'discarded')
          -- a delivery that was moved away may have been moved back
          AND NOT (error_code IS NOT DISTINCT FROM 'moved' AND EXISTS (
            SELECT FROM ${db.quoted}.attempts l WHERE l.message_id = a.message_id
               AND l.destination_id = a.destination_id AND l.claim_no > a.claim_no))
          -- a recorded replay may have sent it again: then an ending counts only if no later claim or place follows it
          AND NOT (EXISTS (SELECT FROM ${db.quoted}.replays r WHERE r.destination_id = a.destination_id AND r.position >= a.message_id)
            AND (EXISTS (SELECT FROM ${db.quoted}.attempts l WHERE l.message_id = a.message_id
                            AND l.destination_id = a.destination_id AND l.claim_no > a.claim_no)
              OR EXISTS (SELECT FROM ${db.quoted}.deliveries d WHERE d.message_id = a.message_id AND d.destination_id = a.destination_id)
              OR EXISTS (SELECT FROM ${db.quoted}.dead_letters d WHERE d.message_id = a.message_id AND d.destination_id = a.destination_id)
              OR EXISTS (SELECT FROM ${db.quoted}.leases l, unnest(l.message_ids, l.claim_nos) u(message_id, claim_no)
                          WHERE l.destination_id = a.destination_id AND u.message_id = a.message_id AND u.claim_no > a.claim_no)))
       UNION ALL SELECT message_id, NULL, 'unrouted' FROM ${db.quoted}.unrouted_messages),
     known AS (
       SELECT message_id, destination_id FROM place
       UNION SELECT message_id, destination_id FROM ${db.quoted}.attempts
       UNION SELECT u.message_id, l.destination_id FROM ${db.quoted}.leases l, unnest(l.message_ids) u(message_id)
       UNION SELECT m.id, NULL FROM ${db.quoted}.messages m
        WHERE NOT EXISTS (SELECT FROM place p WHERE p.message_id = m.id))
     SELECT k.message_id, k.destination_id, array_agg(p.place) FILTER (WHERE p.place IS NOT NULL) AS places
       FROM known k LEFT JOIN place p ON p.message_id = k.message_id
            AND p.destination_id IS NOT DISTINCT FROM k.destination_id
      GROUP BY k.message_id, k.destination_id HAVING count(p.place) <> 1`;
  return db.inTransaction(async (client) => {
    // the query names the partitions of sixty days six times: JIT compilation would take seconds
    await client.query('SET LOCAL jit = off');
    return (await client.query<pg.QueryResultRow>(question)).rows;
  });
}

/** Whether the claims of a queue are shared between tenants: see has_fairness. */
export async function isFair({ db, id }: Queue): Promise<boolean> {
  const { rows } = await db.query<{ is_fair: boolean }>(
    `SELECT ${db.quoted}.has_fairness(d) AS is_fair FROM ${db.quoted}.destinations d WHERE d.id = $1`,
    [id],
  );
  return only(rows).is_fair;
}

/** Waits until fairness that was switched on has begun. Transactions of other tests delay it. */
export async function untilFair(queue: Queue): Promise<void> {
  await waitFor(() => isFair(queue), { what: `fairness at ${queue.name}`, timeoutMs: 60_000 });
}
