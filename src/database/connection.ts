// How Waybill reaches PostgreSQL: which address, which schema, which limits. Every connection that it
// opens carries the session limits, and every call a deadline on the client's side too: a server that
// does not answer (a dead network, a stopped process) costs a connection, never a hung relay.

import { Socket } from 'node:net';

import pg from 'pg';

import { ConfigurationError, DeadlineError } from '../errors.js';
import { checkOptions, integer, optional, schemaName, text } from '../model/options.js';

export type DatabaseOptions = {
  /** Default: DATABASE_URL, or the PG* variables. */
  url?: string;
  /** A direct address for LISTEN and migrations, when `url` leads through a pooler. Default: `url`. */
  directUrl?: string;
  /** Default: outbox. */
  schema?: string;
  statementTimeoutMs?: number;
  lockTimeoutMs?: number;
  idleInTransactionTimeoutMs?: number;
  connectTimeoutMs?: number;
};

export type ResolvedDatabaseOptions = ReturnType<typeof resolveDatabaseOptions>;

const hourMs = 3_600_000;

export function resolveDatabaseOptions(options: DatabaseOptions = {}) {
  const checked = checkOptions('database', options, {
    url: optional(text({ meaning: 'a postgresql:// address' })),
    directUrl: optional(text({ meaning: 'a postgresql:// address' })),
    schema: schemaName,
    statementTimeoutMs: integer({ min: 100, max: hourMs, default: 30_000 }),
    lockTimeoutMs: integer({ min: 100, max: hourMs, default: 10_000 }),
    idleInTransactionTimeoutMs: integer({ min: 100, max: hourMs, default: 60_000 }),
    connectTimeoutMs: integer({ min: 100, max: hourMs, default: 10_000 }),
  });
  const url = checked.url ?? process.env['DATABASE_URL'];
  return {
    ...checked,
    url,
    directUrl: checked.directUrl ?? process.env['DATABASE_DIRECT_URL'] ?? url,
  };
}

/** The schema's name as it stands in SQL text. */
export function quoteIdentifier(name: string): string {
  return pg.escapeIdentifier(name);
}

/** Any of PGHOST, PGDATABASE, PGUSER and the like: then the driver finds its way by them. */
export function hasPostgresVariables(): boolean {
  const others = /^PG(HOSTADDR|PORT|DATABASE|USER|SERVICE)$/;
  return (
    process.env['PGHOST'] !== undefined ||
    Object.keys(process.env).some((name) => others.test(name))
  );
}

function clientConfig(
  options: ResolvedDatabaseOptions,
  url: string | undefined,
  applicationName: string,
): pg.ClientConfig {
  if (url === undefined && !hasPostgresVariables()) {
    throw new ConfigurationError(
      'no database is configured: set DATABASE_URL (postgresql://user@host:5432/name) or the PG* variables, or database.url in waybill.config.ts',
    );
  }
  return {
    ...(url !== undefined && { connectionString: url }),
    application_name: applicationName,
    statement_timeout: options.statementTimeoutMs,
    lock_timeout: options.lockTimeoutMs,
    idle_in_transaction_session_timeout: options.idleInTransactionTimeoutMs,
    connectionTimeoutMillis: options.connectTimeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
  };
}

/** Whatever the role's or the database's defaults are: settling needs READ COMMITTED, and times are read as ISO. */
async function prepareSession(client: pg.ClientBase): Promise<void> {
  await client.query("SET default_transaction_isolation = 'read committed'; SET DateStyle = 'ISO'");
}

/** One direct connection, for LISTEN, heartbeats and migrations. */
export async function connectDirectly(
  options: ResolvedDatabaseOptions,
  applicationName = 'waybill',
): Promise<pg.Client> {
  const client = new pg.Client(clientConfig(options, options.directUrl, applicationName));
  // an error between two queries is reported by the next query; without a listener it would end the process
  client.on('error', () => {});
  await client.connect();
  await prepareSession(client);
  return client;
}

/** Destroys the socket: a connection that missed a deadline is never used again. */
export function destroy(client: pg.Client | pg.PoolClient): void {
  const { connection } = client as unknown as { connection: { stream: { destroy(): void } } };
  connection.stream.destroy();
}

export async function withDeadline<T>(
  what: string,
  deadlineMs: number,
  work: Promise<T>,
  onDeadline: () => void,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      onDeadline();
      reject(new DeadlineError(what, deadlineMs));
    }, deadlineMs);
  });
  work.catch(() => {});
  try {
    return await Promise.race([work, deadline]);
  } finally {
    clearTimeout(timer);
  }
}

/** A small pool whose every query has a deadline. Rows come as pg gives them. */
export class Database {
  readonly schema: string;
  readonly options: ResolvedDatabaseOptions;
  readonly #pool: pg.Pool;
  readonly #sockets = new Set<Socket>();
  /** Above the server's statement timeout, so that the server gives up first and the outcome is known. */
  readonly #deadlineMs: number;

  constructor(
    options: ResolvedDatabaseOptions,
    settings: { connections: number; applicationName: string },
  ) {
    this.options = options;
    this.schema = quoteIdentifier(options.schema);
    this.#deadlineMs = options.statementTimeoutMs + 2_000;
    this.#pool = new pg.Pool({
      ...clientConfig(options, options.url, settings.applicationName),
      max: settings.connections,
      idleTimeoutMillis: 60_000,
      stream: () => this.#newSocket(),
      // the pool waits for it, though its type does not say so
      onConnect: (client): void => prepareSession(client) as unknown as void,
    });
    // a connection that breaks says so where it is used too; without a listener it would end the process
    this.#pool.on('error', () => {});
    this.#pool.on('connect', (client) => client.on('error', () => {}));
  }

  async query<Row extends pg.QueryResultRow>(
    what: string,
    sql: string,
    values: unknown[] = [],
  ): Promise<Row[]> {
    const result = await this.#run<Row>(what, { text: sql, values });
    return result.rows;
  }

  /** Rows as arrays of text, unparsed: what is read in bulk and passed on. */
  async queryTexts(what: string, sql: string, values: unknown[]): Promise<(string | null)[][]> {
    const result = await this.#run<(string | null)[]>(what, {
      text: sql,
      values,
      rowMode: 'array',
      types: plainTexts,
    });
    return result.rows;
  }

  async #run<Row extends pg.QueryResultRow>(
    what: string,
    query: pg.QueryConfig & { rowMode?: string },
  ): Promise<pg.QueryResult<Row>> {
    const client = await this.#pool.connect();
    let failure: Error | undefined;
    try {
      return await withDeadline(what, this.#deadlineMs, client.query<Row>(query), () =>
        destroy(client),
      );
    } catch (error) {
      failure = error as Error;
      throw error;
    } finally {
      // an error of the server leaves the connection sound; everything else does not
      client.release(failure !== undefined && !(failure instanceof pg.DatabaseError));
    }
  }

  /** Ends the connections; those that are still busy after `patienceMs` are cut. */
  async close(patienceMs = 1000): Promise<void> {
    const cut = setTimeout(() => {
      for (const socket of this.#sockets) socket.destroy();
    }, patienceMs);
    await this.#pool.end();
    clearTimeout(cut);
  }

  /** Every socket is known, those that are still connecting too: none may outlive the pool. */
  #newSocket(): Socket {
    const socket = new Socket();
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    return socket;
  }
}

const plainTexts: pg.CustomTypesConfig = { getTypeParser: () => (value: string) => value };

const transientCodes = new Set([
  '40001', // serialization failure
  '40P01', // deadlock
  '55P03', // lock timeout
  '57014', // statement timeout
  '57P01',
  '57P02',
  '57P03', // shutdown, crash, starting up
  '53300', // too many connections
  '25006', // read-only: a failover in progress
  '53100',
  '53200', // disk full, out of memory
]);

/** True for what passes by itself: it costs no attempt and is tried again. */
export function isTransient(error: unknown): boolean {
  if (error instanceof DeadlineError) return true;
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
