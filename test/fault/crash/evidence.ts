// The evidence of a run from three sides: the producers' logs, the sink's log, and the database. The invariants are
// judged from this alone.

import type { DatabaseCrash, Kill, LateSettle, Silence } from './faults.js';
import type { Harness } from './harness.js';
import type { Produced } from './producers.js';
import type { RelayRecord } from './relay-slot.js';
import type { Reception } from './sink.js';

export type Attempt = {
  id: string;
  destination: string;
  claimNo: number;
  tries: number;
  state: 'dispatched' | 'retryable' | 'failed' | 'zombie_requeue' | 'released' | 'discarded';
  relayId: string | null;
  errorCode: string | null;
};

/** A (message, destination) and its place in the database. */
export type Place = {
  id: string;
  destination: string;
  place: 'waiting' | 'leased' | 'dead' | 'dispatched' | 'discarded';
};

export type Faults = {
  kills: Kill[];
  uncountedKills: number;
  lateSettles: LateSettle[];
  databaseCrashes: DatabaseCrash[];
  silences: Silence[];
  connectionsCut: number;
  commitsCut: number;
};

export type Evidence = {
  produced: Produced[];
  received: Reception[];
  messageIds: Set<string>;
  attempts: Attempt[];
  places: Place[];
  deadLetters: { id: string; destination: string; claimNo: number }[];
  /** How many dead letters operators have retried. */
  replayed: number;
  health: Record<string, number>;
  relays: RelayRecord[];
  faults: Faults;
  mostInFlight: number;
  stopDeadlineMs: number;
  /** Null: it did not happen within the bound. */
  quietMs: number | null;
  mostOverdueMs: number;
  connectionsLeft: number;
};

const placesSql = `
  SELECT x.message_id AS id, d.name AS destination, x.place FROM (
    SELECT message_id, destination_id, 'waiting' AS place FROM outbox.deliveries
    UNION ALL SELECT message_id, destination_id, 'dead' FROM outbox.dead_letters
    UNION ALL SELECT u.message_id, l.destination_id, 'leased'
      FROM outbox.leases l, unnest(l.message_ids, l.claim_nos) u(message_id, claim_no)
     WHERE NOT EXISTS (SELECT FROM outbox.attempts a WHERE a.message_id = u.message_id
                          AND a.destination_id = l.destination_id AND a.claim_no = u.claim_no)
    UNION ALL SELECT message_id, destination_id, state::text FROM outbox.attempts
     WHERE state IN ('dispatched', 'discarded')) x
  JOIN outbox.destinations d ON d.id = x.destination_id`;

const attemptsSql = `
  SELECT a.message_id AS id, d.name AS destination, a.claim_no AS "claimNo", a.tries, a.state,
         a.relay_id AS "relayId", a.error_code AS "errorCode"
    FROM outbox.attempts a JOIN outbox.destinations d ON d.id = a.destination_id
   ORDER BY a.message_id, a.destination_id, a.claim_no`;

/** Reads the logs and the tables once all processes are idle. */
export async function gatherEvidence(
  harness: Harness,
  rest: Pick<
    Evidence,
    'faults' | 'quietMs' | 'connectionsLeft' | 'mostInFlight' | 'stopDeadlineMs'
  >,
): Promise<Evidence> {
  const messages = await harness.query<{ id: string }>('SELECT id FROM outbox.messages');
  const [replays] = await harness.query<{ count: number }>(
    `SELECT coalesce(sum(count), 0)::int AS count FROM outbox.operator_actions WHERE action = 'retry_dead_letters'`,
  );
  const health = await harness.query<{ metric: string; value: string | null }>(
    'SELECT metric, value FROM outbox.health',
  );
  return {
    ...rest,
    produced: harness.producers.readLogs(),
    received: harness.sink.readLog(),
    messageIds: new Set(messages.map(({ id }) => id)),
    attempts: await harness.query<Attempt>(attemptsSql),
    places: await harness.query<Place>(placesSql),
    deadLetters: await harness.query(
      `SELECT x.message_id AS id, d.name AS destination, x.claim_no AS "claimNo"
         FROM outbox.dead_letters x JOIN outbox.destinations d ON d.id = x.destination_id`,
    ),
    replayed: replays?.count ?? 0,
    health: Object.fromEntries(health.map(({ metric, value }) => [metric, Number(value)])),
    relays: harness.slots.flatMap((slot) => slot.records),
    mostOverdueMs: harness.mostOverdueMs,
  };
}
