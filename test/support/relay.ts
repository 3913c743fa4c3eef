// Relays for tests: started on the test's database, and stopped when the test ends, however it ends. Every event is
// kept, so that a test waits for an event instead of for a length of time.

import type pg from 'pg';
import { onTestFinished } from 'vitest';

import { createRelay } from '../../src/config.js';
import type { Config } from '../../src/config.js';
import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import type { DatabaseOptions } from '../../src/database/connection.js';
import type { Destination } from '../../src/destinations/destination.js';
import type { AuditOptions } from '../../src/features/audit/options.js';
import type { Message } from '../../src/core/message.js';
import type { Route } from '../../src/config.js';
import type { Watch } from '../../src/features/watches/watch.js';
import { createOutbox } from '../../src/producer/outbox.js';
import type { AlertOptions } from '../../src/features/alerts/options.js';
import type { EndpointOptions } from '../../src/features/endpoints/options.js';
import type { RelayOptions } from '../../src/relay/options.js';
import type { Relay } from '../../src/relay/relay.js';
import type { RelayEvent } from '../../src/telemetry/events.js';
import { rolePrefix, urlAs } from './logins.js';
import type { Login, PaymentsLogin } from './logins.js';
import type { TestDatabase } from './postgres.js';
import { waitFor } from './wait.js';

/** Several test files share two cores, so the timeout is long. A wait ends as soon as its condition holds. */
export const waitLimitMs = 20_000;

export type EventOf<Name extends RelayEvent['name']> = Extract<RelayEvent, { name: Name }>;

export type TestRelay = {
  readonly relay: Relay;
  readonly events: RelayEvent[];
  /** The events of this name so far. */
  of<Name extends RelayEvent['name']>(name: Name): EventOf<Name>[];
  /** Waits for a matching event of this name. */
  event<Name extends RelayEvent['name']>(
    name: Name,
    fits?: (event: EventOf<Name>) => boolean,
  ): Promise<EventOf<Name>>;
  stop(): Promise<void>;
};

export type RelaySettings = {
  application?: string;
  version?: string;
  destinations: Record<string, Destination>;
  /** By default each destination gets the topic of the same name. */
  routes?: Route[];
  watches?: Watch[];
  endpoints?: EndpointOptions;
  alerts?: AlertOptions;
  relay?: RelayOptions;
  audit?: AuditOptions;
  database?: DatabaseOptions;
};

export function configOf(db: TestDatabase, settings: RelaySettings): Config {
  const { destinations } = settings;
  return {
    database: { url: urlAs(db.url, 'test_relay'), schema: db.schema, ...settings.database },
    ...(settings.application !== undefined && { application: settings.application }),
    ...(settings.version !== undefined && { version: settings.version }),
    destinations,
    routes: settings.routes ?? Object.keys(destinations).map((name) => ({ topic: name, to: name })),
    ...(settings.watches && { watches: settings.watches }),
    ...(settings.endpoints && { endpoints: settings.endpoints }),
    ...(settings.alerts && { alerts: settings.alerts }),
    ...(settings.audit && { audit: settings.audit }),
    relay: { stopDeadlineMs: 3000, ...settings.relay },
  };
}

/** A relay that is not started yet: for drains, and for starts that must fail. */
export function makeRelay(db: TestDatabase, settings: RelaySettings): TestRelay {
  const events: RelayEvent[] = [];
  const relay = createRelay({
    ...configOf(db, settings),
    onEvent: (event) => void events.push(event),
  });
  onTestFinished(() => relay.stop());
  const of = <Name extends RelayEvent['name']>(name: Name): EventOf<Name>[] =>
    events.filter((event): event is EventOf<Name> => event.name === name);
  return {
    relay,
    events,
    of,
    event: (name, fits = () => true) =>
      waitFor(() => of(name).find(fits), { what: `the event ${name}`, timeoutMs: waitLimitMs }),
    stop: () => relay.stop(),
  };
}

export async function startRelay(db: TestDatabase, settings: RelaySettings): Promise<TestRelay> {
  const made = makeRelay(db, settings);
  await made.relay.start();
  return made;
}

/** Enqueues in its own transaction, as an application does, and returns the ids. */
export async function send(
  db: TestDatabase,
  messages: Message[],
  options: { schema?: string } = {},
): Promise<string[]> {
  const outbox = createOutbox({ schema: options.schema ?? db.schema });
  const sent = await db.inTransaction(async (client) => {
    // a separate schema has no roles
    if (options.schema === undefined) await client.query(`SET LOCAL ROLE ${rolePrefix}producer`);
    return outbox.enqueueMany(client, messages);
  });
  return sent.map((message) => message.id);
}

export async function sendOne(db: TestDatabase, message: Message): Promise<string> {
  const [id = ''] = await send(db, [message]);
  return id;
}

/** This many messages of one topic, numbered from 1 in their payload. */
export function numbered(topic: string, count: number, fields: Partial<Message> = {}): Message[] {
  return Array.from({ length: count }, (_, index) => ({
    topic,
    payload: { n: index + 1 },
    ...fields,
  }));
}

export type Places = { waiting: number; leased: number; dead: number; delivered: number };

/** Where the deliveries of a destination are, counted in the tables. */
export async function places(db: TestDatabase, destination: string): Promise<Places> {
  const { rows } = await db.query<Places>(
    `SELECT (SELECT count(*)::int FROM ${db.quoted}.deliveries WHERE destination_id = t.id) AS waiting,
            (SELECT coalesce(sum(remaining), 0)::int FROM ${db.quoted}.leases WHERE destination_id = t.id) AS leased,
            (SELECT count(*)::int FROM ${db.quoted}.dead_letters WHERE destination_id = t.id) AS dead,
            (SELECT count(*)::int FROM ${db.quoted}.attempts WHERE destination_id = t.id AND state = 'dispatched') AS delivered
       FROM ${db.quoted}.destinations t WHERE t.name = $1`,
    [destination],
  );
  return rows[0] ?? { waiting: 0, leased: 0, dead: 0, delivered: 0 };
}

/** Waits until the deliveries of a destination are distributed like this. */
export async function untilPlaces(
  db: TestDatabase,
  destination: string,
  wanted: Partial<Places>,
  timeoutMs = waitLimitMs,
): Promise<Places> {
  let seen: Places | undefined;
  const fits = async () => {
    seen = await places(db, destination);
    return Object.entries(wanted).every(([place, count]) => seen?.[place as keyof Places] === count)
      ? seen
      : undefined;
  };
  try {
    return await waitFor(fits, { what: JSON.stringify(wanted), timeoutMs });
  } catch (error) {
    throw new Error(`${(error as Error).message} at ${destination}: ${JSON.stringify(seen)}`, {
      cause: error,
    });
  }
}

/** Waits until the destination has no pending and no leased delivery. */
export async function untilEnded(db: TestDatabase, destination: string): Promise<Places> {
  return untilPlaces(db, destination, { waiting: 0, leased: 0 });
}

export type AttemptOf = {
  state: string;
  claim_no: number;
  tries: number;
  error_code: string | null;
  remote_code: string | null;
  error_message: string | null;
  reference: string | null;
  response: string | null;
  latency_ms: number | null;
  claimed_at: Date;
  ended_at: Date;
};

/** How the claims of a message at a destination ended, in order. */
export async function attemptsOf(
  db: TestDatabase,
  messageId: string,
  destination: string,
): Promise<AttemptOf[]> {
  const { rows } = await db.query<AttemptOf>(
    `SELECT a.* FROM ${db.quoted}.attempts a JOIN ${db.quoted}.destinations t ON t.id = a.destination_id
      WHERE a.message_id = $1 AND t.name = $2 ORDER BY a.claim_no`,
    [messageId, destination],
  );
  return rows;
}

export async function deadLettersOf(
  db: TestDatabase,
  destination: string,
): Promise<pg.QueryResultRow[]> {
  const { rows } = await db.query(
    `SELECT d.* FROM ${db.quoted}.dead_letters d JOIN ${db.quoted}.destinations t ON t.id = d.destination_id
      WHERE t.name = $1 ORDER BY d.message_id`,
    [destination],
  );
  return rows;
}

/** Waits until a list has this many entries, and returns it. */
export async function untilCount<T>(items: readonly T[], count: number, what: string) {
  await waitFor(() => items.length >= count, {
    what: `${count} ${what} (there are ${items.length})`,
    timeoutMs: waitLimitMs,
  });
  return items;
}

/** Deliveries that wait at a gate until the test opens it. */
export class Gate {
  #open = false;
  readonly #waiting = new Set<() => void>();

  get waiting(): number {
    return this.#waiting.size;
  }

  async pass(): Promise<void> {
    if (this.#open) return;
    await new Promise<void>((resolve) => {
      const go = () => {
        this.#waiting.delete(go);
        resolve();
      };
      this.#waiting.add(go);
    });
  }

  /** Lets the longest waiting delivery through. */
  letOne(): void {
    const [first] = this.#waiting;
    first?.();
  }

  open(): void {
    this.#open = true;
    for (const go of this.#waiting) go();
  }
}

/** Counts how many calls are in flight at once. */
export class Meter {
  now = 0;
  most = 0;
  total = 0;

  async during<T>(work: () => Promise<T>): Promise<T> {
    this.now += 1;
    this.total += 1;
    this.most = Math.max(this.most, this.now);
    try {
      return await work();
    } finally {
      this.now -= 1;
    }
  }
}

/** The connections that Waybill itself has open to the test's database. */
export async function terminateWaybill(db: TestDatabase, name = 'waybill%'): Promise<number> {
  const { rows } = await db.query<{ ended: boolean }>(
    `SELECT pg_terminate_backend(pid) AS ended FROM pg_stat_activity
      WHERE datname = current_database() AND application_name LIKE $1`,
    [name],
  );
  return rows.filter((row) => row.ended).length;
}

/** A database handle as Waybill itself uses it, for the functions under src/database. */
export function openDatabase(
  db: TestDatabase,
  login?: Login | PaymentsLogin,
  limits: Pick<DatabaseOptions, 'statementTimeoutMs'> = {},
): Database {
  const url = login === undefined ? db.url : urlAs(db.url, login);
  const database = new Database(resolveDatabaseOptions({ url, schema: db.schema, ...limits }), {
    connections: 4,
    applicationName: 'waybill test',
  });
  onTestFinished(() => database.close());
  return database;
}
