// Database: the connection options, and a small connection pool. Every statement runs under the limits of
// session.ts. Every call has a deadline on the client too, so a server that does not answer (a dead network, a
// stopped process) costs a connection but never hangs a relay.

import { createHash } from 'node:crypto';
import { Socket } from 'node:net';

import pg from 'pg';

import { ConfigurationError, DeadlineError } from '../core/errors.js';
import { quoteIdentifier } from '../core/identifier.js';
import { checkOptions, integer, nullable, optional, schemaName, text } from '../core/options.js';
import { checkAddress } from './address.js';
import { ConnectionWatch } from './connection-watch.js';
import { ContainedClient } from './contained-client.js';
import { withDeadline } from './deadline.js';
import {
  clientConfig,
  connectDirectly,
  destroy,
  isDestroyed,
  prepare,
} from './direct-connection.js';
import { inLimitedTransaction, isPooled, limitSession, limitToTenant } from './session.js';

export type DatabaseOptions = {
  /** Default: DATABASE_URL, or the PG* variables. */
  url?: string;
  /** A direct address for LISTEN, retention and migrations, when `url` leads through a pooler. null: none, even if DATABASE_DIRECT_URL is set. Default: `url`. */
  directUrl?: string | null;
  /** A hot standby for requests that only read: the page, the metrics, `waybill tail` and the like. null: none, even if DATABASE_REPLICA_URL is set. Default: DATABASE_REPLICA_URL, or none. */
  replicaUrl?: string | null;
  /** A replica that is further behind is not used. Default 30,000. */
  maxReplicaLagMs?: number;
  /** Default: outbox. */
  schema?: string;
  statementTimeoutMs?: number;
  lockTimeoutMs?: number;
  idleInTransactionTimeoutMs?: number;
  connectTimeoutMs?: number;
};

export type ResolvedDatabaseOptions = ReturnType<typeof resolveDatabaseOptions>;

const hourMs = 3_600_000;

export function resolveDatabaseOptions(options: DatabaseOptions = {}, where = 'database') {
  const checked = checkOptions(where, options, {
    url: optional(text({ meaning: 'a postgresql:// address' })),
    directUrl: nullable(optional(text({ meaning: 'a postgresql:// address' }))),
    replicaUrl: nullable(optional(text({ meaning: 'a postgresql:// address' }))),
    maxReplicaLagMs: integer({ min: 1000, max: hourMs, default: 30_000 }),
    schema: schemaName,
    statementTimeoutMs: integer({ min: 100, max: hourMs, default: 30_000 }),
    lockTimeoutMs: integer({ min: 100, max: hourMs, default: 10_000 }),
    idleInTransactionTimeoutMs: integer({ min: 100, max: hourMs, default: 60_000 }),
    connectTimeoutMs: integer({ min: 100, max: hourMs, default: 10_000 }),
  });
  const {
    url = process.env['DATABASE_URL'],
    directUrl = process.env['DATABASE_DIRECT_URL'],
    replicaUrl = process.env['DATABASE_REPLICA_URL'],
  } = checked;
  return {
    ...checked,
    url: checkAddress(`${where}.url (DATABASE_URL)`, url),
    directUrl: checkAddress(`${where}.directUrl (DATABASE_DIRECT_URL)`, directUrl ?? undefined),
    replicaUrl: checkAddress(`${where}.replicaUrl (DATABASE_REPLICA_URL)`, replicaUrl ?? undefined),
  };
}

export type PoolSettings = {
  connections: number;
  applicationName: string;
  /** Shares its connection watch with this pool of the same process. */
  beside?: Database;
};

/** A small pool in which every query has a deadline. Rows are returned as pg returns them. */
export class Database {
  readonly schema: string;
  readonly options: ResolvedDatabaseOptions;
  readonly #pool: pg.Pool;
  readonly #sockets = new Set<Socket>();
  /** Connections that lead through a pooler. */
  readonly #pooled = new WeakSet<pg.ClientBase>();
  readonly #watch: ConnectionWatch;
  /** Longer than the server's statement timeout, so the server gives up first and the outcome is known. */
  readonly #deadlineMs: number;

  constructor(options: ResolvedDatabaseOptions, settings: PoolSettings) {
    this.options = options;
    const { beside } = settings;
    this.#watch = beside === undefined ? new ConnectionWatch() : beside.#watch;
    this.schema = quoteIdentifier(options.schema);
    this.#deadlineMs = options.statementTimeoutMs + 2_000;
    this.#pool = new pg.Pool({
      Client: ContainedClient,
      ...clientConfig(options, options.url, settings.applicationName),
      max: settings.connections,
      idleTimeoutMillis: 60_000,
      stream: () => this.#newSocket(),
      // the pool awaits the result, although its type does not say so
      onConnect: (client): void => this.#prepare(client as pg.PoolClient) as unknown as void,
    });
    // a broken connection also fails where it is used; without a listener the error would end the process
    this.#pool.on('error', () => {});
    this.#pool.on('connect', (client) => {
      client.on('error', () => {});
      this.#watch.opened(client);
    });
  }

  /**
   * The same pool for a request that is limited to a tenant: row-level security and functions hide what belongs to
   * others (docs/internals/decisions/0043). Each query costs four round trips. Everything else fails.
   */
  asTenant(tenantId: string): Database {
    const limited = Object.create(this) as Database;
    const query: Database['query'] = <Row extends object>(
      what: string,
      sql: string,
      values?: unknown[],
    ) => this.#ask<Row>(what, { text: sql, values: values ?? [] }, tenantId);
    const transaction: Database['transaction'] = (what, work) =>
      this.#transact(what, work, tenantId);
    return Object.assign(limited, { query, transaction });
  }

  /** Runs the work in one transaction. The handle that it gets has `query` only, one at a time. */
  async transaction<T>(what: string, work: (database: Database) => Promise<T>): Promise<T> {
    return this.#transact(what, work);
  }

  async #transact<T>(
    what: string,
    work: (database: Database) => Promise<T>,
    tenantId?: string,
  ): Promise<T> {
    /** The work refused without an error of the database: the connection is still usable. */
    let refusal: { readonly error: unknown } | undefined;
    const result = await this.#withClient(what, async (client) => {
      let isLost = false;
      const query: Database['query'] = async <Row extends object>(
        _what: string,
        sql: string,
        values?: unknown[],
      ) => {
        try {
          return await answerTo<Row>(client, { text: sql, values: values ?? [] });
        } catch (error) {
          isLost ||= !(error instanceof pg.DatabaseError);
          throw error;
        }
      };
      try {
        return await inLimitedTransaction(client, this.options, async () => {
          if (tenantId !== undefined) await limitToTenant(client, tenantId);
          return work(Object.assign(Object.create(this) as Database, { query })).catch(
            (error: unknown) => {
              if (!isLost) refusal = { error };
              throw error;
            },
          );
        });
      } catch (error) {
        if (refusal === undefined) throw error;
        return undefined;
      }
    });
    if (refusal !== undefined) throw refusal.error;
    return result as T;
  }

  async query<Row extends object>(
    what: string,
    sql: string,
    values: unknown[] = [],
    kept: Kept = {},
  ): Promise<Row[]> {
    return this.#run<Row>(what, { text: sql, values, ...named(sql, kept) });
  }

  /** Rows as arrays of unparsed text, for messages that are read in bulk and passed on. */
  async queryTexts(
    what: string,
    sql: string,
    values: unknown[],
    kept: Kept = {},
  ): Promise<(string | null)[][]> {
    const raw = { rowMode: 'array', types: plainTexts };
    return this.#run(what, { text: sql, values, ...raw, ...named(sql, kept) });
  }

  async #run<Row extends object>(
    what: string,
    { name, ...query }: pg.QueryConfig & { rowMode?: string },
  ): Promise<Row[]> {
    try {
      return await this.#ask<Row>(what, name === undefined ? query : { ...query, name });
    } catch (error) {
      // the statement has not run: the connection that kept it is gone by now
      if (name !== undefined && isStale(error)) return this.#ask<Row>(what, query);
      throw error;
    }
  }

  async #ask<Row extends object>(
    what: string,
    query: pg.QueryConfig & { rowMode?: string },
    tenantId?: string,
  ): Promise<Row[]> {
    return this.#withClient(what, (client) => {
      // behind a pooler, the next statement may run in another session
      if (this.#pooled.has(client)) delete query.name;
      const run = async () => {
        if (tenantId !== undefined) await limitToTenant(client, tenantId);
        return answerTo<Row>(client, query);
      };
      return this.#pooled.has(client) || tenantId !== undefined
        ? inLimitedTransaction(client, this.options, run)
        : run();
    });
  }

  /** Runs the work on a connection of the pool, with a deadline for all of it. */
  async #withClient<T>(what: string, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
    const client = await this.#connect();
    const sentMs = this.#watch.asked(client);
    let failure: Error | undefined;
    try {
      return await withDeadline(what, this.#deadlineMs, work(client), () => {
        destroy(client);
        this.#watch.deadlineMissed(sentMs);
      });
    } catch (error) {
      failure = error as Error;
      throw error;
    } finally {
      this.#watch.answered(client);
      // after an error of the server the connection is still usable; after any other error it is not
      client.release(
        failure !== undefined && (!(failure instanceof pg.DatabaseError) || isStale(failure)),
      );
    }
  }

  /** A discarded connection stays in the pool for a moment, so it is skipped here. */
  async #connect(): Promise<pg.PoolClient> {
    for (;;) {
      const client = await this.#pool.connect();
      if (!isDestroyed(client)) return client;
      client.release(true);
    }
  }

  async #prepare(client: pg.PoolClient): Promise<void> {
    await prepare(client, this.options, async () => {
      if (await isPooled(client)) this.#pooled.add(client);
      else await limitSession(client, this.options);
    });
  }

  /** Discards idle connections, so the next query runs in a new session with current settings. */
  discardIdle(): void {
    this.#watch.discardIdle();
  }

  /** Runs the work on one direct connection. Each query has the usual deadline. */
  async directly<T>(applicationName: string, work: (query: DirectQuery) => Promise<T>): Promise<T> {
    const client = await connectDirectly(this.options, applicationName, () => this.#newSocket());
    const query: DirectQuery = async <Row extends object>(
      what: string,
      sql: string,
      values: unknown[] = [],
    ) => {
      const sentMs = performance.now();
      const onDeadline = () => {
        destroy(client);
        this.#watch.deadlineMissed(sentMs);
      };
      const running = client.query(sql, values);
      const { rows } = await withDeadline(what, this.#deadlineMs, running, onDeadline);
      return rows as Row[];
    };
    try {
      return await work(query);
    } finally {
      await withDeadline('end', 1000, client.end(), () => destroy(client)).catch(() => {});
    }
  }

  /**
   * Ends the connections. Those that are still busy after `timeoutMs` are cut, and their queries have failed when
   * it returns.
   */
  async close(timeoutMs = 1000): Promise<void> {
    const cut = setTimeout(() => {
      for (const socket of this.#sockets) socket.destroy();
    }, timeoutMs);
    await this.#pool.end();
    clearTimeout(cut);
    // direct connections do not belong to the pool
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => setImmediate(resolve));
  }

  /** Keeps track of every socket, also while it connects: none may outlive the pool. */
  #newSocket(): Socket {
    const socket = new Socket();
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    return socket;
  }
}

export type DirectQuery = <Row extends object>(
  what: string,
  sql: string,
  values?: unknown[],
) => Promise<Row[]>;

/** `prepared`: the session keeps the parsed statement, which halves the cost of a small claim. */
type Kept = { prepared?: boolean };

const names = new Map<string, string>();

/** The name comes from the text, so a session never runs another statement under it. */
function named(sql: string, { prepared = false }: Kept): { name?: string } {
  if (!prepared) return {};
  let name = names.get(sql);
  if (name === undefined) {
    name = `waybill_${createHash('sha256').update(sql).digest('hex').slice(0, 32)}`;
    names.set(sql, name);
  }
  return { name };
}

/**
 * A kept statement cannot be run any more: a migration changed what it returns, or the session forgot it (DISCARD ALL).
 */
function isStale(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError)) return false;
  const { code, message } = error;
  return code === '26000' || code === '42P05' || (code === '0A000' && /cached plan/.test(message));
}

const plainTexts: pg.CustomTypesConfig = { getTypeParser: () => (value: string) => value };

/**
 * Uses a callback: each promise of pg keeps the rows of the next one reachable until a full garbage collection, so
 * no result would be collected in between (`--trace-gc` shows it).
 */
function answerTo<Row extends object>(
  client: pg.PoolClient,
  query: pg.QueryConfig,
): Promise<Row[]> {
  return new Promise((resolve, reject) => {
    client.query(query, (error: Error | null, result) => {
      if (error === null) resolve(result.rows as Row[]);
      else reject(error);
    });
  });
}

const transientCodes = new Set([
  '40001', // serialization failure
  '40P01', // deadlock
  '55P03', // lock timeout
  '57014', // statement timeout
  '57P01',
  '57P02',
  '57P03', // shutdown, crash, starting up
  '57P05',
  '25P03',
  '25P04', // a host ended an idle session, an idle transaction, a long transaction
  '53300', // too many connections
  '25006', // read-only: a failover in progress
  '53100',
  '53200', // disk full, out of memory
]);

/** True for temporary errors, which cost no try and are repeated. */
export function isTransient(error: unknown): boolean {
  if (error instanceof DeadlineError) return true;
  // its text may contain any word, such as the name of an option
  if (error instanceof ConfigurationError) return false;
  if (error instanceof pg.DatabaseError) {
    return (
      error.code !== undefined && (transientCodes.has(error.code) || error.code.startsWith('08'))
    );
  }
  if (error instanceof AggregateError) return error.errors.every(isTransient);
  if (!(error instanceof Error)) return false;
  const { code } = error as NodeJS.ErrnoException;
  return (
    (code !== undefined &&
      /^(ECONN|EPIPE|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|EAI_AGAIN|ENOTFOUND|ENOENT)/.test(code)) ||
    /terminated|timeout|not queryable|Connection (ended|terminated)|Client has encountered a connection error/i.test(
      error.message,
    )
  );
}
