// Shared set-up for tests that speak to the SQL functions: a queue is a destination of its own with one
// route of its own, so that the tests of a file stay apart in one database without clearing any table.

import { randomUUID } from 'node:crypto';

import type pg from 'pg';

import type { TestDatabase } from './postgres.js';
import { waitFor } from './wait.js';

export type Connection = Pick<pg.Client, 'query'> | Pick<pg.Pool, 'query'>;

export type QueueOptions = {
  maxAttempts?: number;
  retryBaseMs?: number;
  retryMaxMs?: number;
  retryDelaysMs?: number[];
};

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
  alone: boolean;
  available_at: Date;
  namespace: string | null;
  topic: string | null;
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
};

export type Ending = {
  id: string;
  claimNo?: number | null;
  outcome?: 'delivered' | 'retry' | 'reject' | 'release';
  retryAfterMs?: number;
  latencyMs?: number;
  errorCode?: string;
  remoteCode?: string;
  errorMessage?: string;
  reference?: string;
};

export type Settled = { settled: number; lost: string[] };

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

  /** The only topic that is routed here: the queue's own name. */
  get topic(): string {
    return this.name;
  }

  /** Enqueues a number of messages in one statement and gives their ids in order. */
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
      relayId = randomUUID(),
      leaseId = randomUUID(),
      on = this.db.pool,
    } = options;
    const { rows } = await on.query<ClaimedRow>(
      `SELECT * FROM ${this.db.quoted}.claim_batch($1::smallint, $2, $3, $4, $5, $6, $7, $8)`,
      [this.id, leaseId, relayId, limit, maxBytes, leaseMs, tenantIds, namespace],
    );
    return {
      destinationId: this.id,
      leaseId,
      relayId,
      rows,
      ids: rows.map((row) => row.message_id),
    };
  }

  /** Claims exactly one message, which must be there. */
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

  /** What waits here, in claim order. */
  async waiting(): Promise<
    { message_id: string; claim_no: number; tries: number; alone: boolean; available_at: Date }[]
  > {
    const { rows } = await this.db.query<{
      message_id: string;
      claim_no: number;
      tries: number;
      alone: boolean;
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

  /** Everything that waits becomes due, as if its time had come. */
  async makeDue(): Promise<void> {
    await this.db.query(
      `UPDATE ${this.db.quoted}.deliveries SET available_at = clock_timestamp()
        WHERE destination_id = $1 AND available_at > clock_timestamp()`,
      [this.id],
    );
  }

  /** Brings the one waiting message to the dead letters by a rejection. */
  async kill(messageId: string, errorCode = 'broken'): Promise<void> {
    const claim = await this.claim();
    const settled = await settle(this.db, claim, [{ id: messageId, outcome: 'reject', errorCode }]);
    if (settled.settled !== 1) throw new Error(`${messageId} was not there to be rejected`);
    await releaseLease(this.db, claim);
  }
}

let queues = 0;

/** A destination of its own, to which the topic of the same name is routed. */
export async function makeQueue(db: TestDatabase, options: QueueOptions = {}): Promise<Queue> {
  queues += 1;
  const name = `queue-${queues}`;
  const id = await defineDestination(db, name, options);
  await addRoute(db, id, name);
  return new Queue(db, name, id);
}

export async function defineDestination(
  db: TestDatabase,
  name: string,
  options: QueueOptions = {},
): Promise<number> {
  const {
    maxAttempts = 10,
    retryBaseMs = 1000,
    retryMaxMs = 300_000,
    retryDelaysMs = null,
  } = options;
  const { rows } = await db.query<{ id: number }>(
    `SELECT ${db.quoted}.define_destination($1, 'test', $2, $3, $4, $5) AS id`,
    [name, maxAttempts, retryBaseMs, retryMaxMs, retryDelaysMs],
  );
  return only(rows).id;
}

export async function addRoute(
  db: TestDatabase,
  destinationId: number,
  topic: string,
  filter: { namespace?: string; tenantId?: string } = {},
): Promise<void> {
  await db.query(
    `INSERT INTO ${db.quoted}.routes (destination_id, topic, namespace, tenant_id) VALUES ($1, $2, $3, $4)`,
    [destinationId, topic, filter.namespace ?? null, filter.tenantId ?? null],
  );
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

/** Endings without an outcome mean that all were delivered, which the function takes as a short form. */
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
    `SELECT * FROM ${db.quoted}.settle($1, $2, $3::uuid[], $4::int[], $5::${db.quoted}.outcome[], $6::bigint[],
       $7::int[], $8::text[], $9::text[], $10::text[], $11::text[], $12::smallint)`,
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
    ],
  );
  return only(rows);
}

/** Settles everything of a claim as delivered, naming the claim numbers as a relay does. */
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

/** Lets a lease run out, as if its time had passed. */
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

/** Every (message, destination) that is not in exactly one place, counted straight from the tables. */
export async function misplaced(db: TestDatabase): Promise<pg.QueryResultRow[]> {
  const { rows } = await db.query(
    `WITH place AS (
       SELECT message_id, destination_id, 'deliveries' AS place FROM ${db.quoted}.deliveries
       UNION ALL SELECT message_id, destination_id, 'dead_letters' FROM ${db.quoted}.dead_letters
       UNION ALL SELECT u.message_id, l.destination_id, 'leases'
         FROM ${db.quoted}.leases l, unnest(l.message_ids, l.claim_nos) u(message_id, claim_no)
        WHERE NOT EXISTS (SELECT FROM ${db.quoted}.attempts a WHERE a.message_id = u.message_id
                             AND a.destination_id = l.destination_id AND a.claim_no = u.claim_no)
       UNION ALL SELECT message_id, destination_id, 'attempts' FROM ${db.quoted}.attempts
        WHERE state IN ('dispatched', 'discarded')
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
      GROUP BY k.message_id, k.destination_id HAVING count(p.place) <> 1`,
  );
  return rows;
}

export async function backendId(client: Connection): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  return only(rows).pid;
}

/** Waits until the backend stands before a lock that somebody else holds. */
export async function waitUntilBlocked(db: TestDatabase, backend: number): Promise<void> {
  await waitFor(
    async () => {
      const { rows } = await db.query<{ blocked: boolean }>(
        'SELECT cardinality(pg_blocking_pids($1)) > 0 AS blocked',
        [backend],
      );
      return rows[0]?.blocked;
    },
    { what: `backend ${backend} to wait for a lock` },
  );
}

/** The only element, and an error if there is none or more than one. */
export function only<T>(items: readonly T[]): T {
  const [first] = items;
  if (items.length !== 1 || first === undefined)
    throw new Error(`expected exactly one, got ${items.length}`);
  return first;
}
