// How Waybill reaches PostgreSQL: which address, which schema, which limits. Every statement runs under the
// limits of session.ts, and every call has a deadline on the client's side too: a server that does not
// answer (a dead network, a stopped process) costs a connection, never a hung relay.

import { Socket } from 'node:net';

import pg from 'pg';

import { ConfigurationError, DeadlineError } from '../errors.js';
import { checkOptions, integer, nullable, optional, schemaName, text } from '../model/options.js';
import { checkAddress } from './address.js';
import { inLimitedTransaction, isPooled, limitSession } from './session.js';

export type DatabaseOptions = {
  /** Default: DATABASE_URL, or the PG* variables. */
  url?: string;
  /** A direct address for LISTEN, retention and migrations, when `url` leads through a pooler. null: none, whatever the environment says. Default: `url`. */
  directUrl?: string | null;
  /** A hot standby that answers what only reads: the page, the metrics, `waybill tail` and the like. null: none, whatever the environment says. Default: DATABASE_REPLICA_URL, or none. */
  replicaUrl?: string | null;
  /** A replica that is further behind is not asked. Default 30,000. */
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
    connectionTimeoutMillis: options.connectTimeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
  };
}

/** One direct connection, for LISTEN, retention and migrations. What is called direct may be a pooler in session mode. */
export async function connectDirectly(
  options: ResolvedDatabaseOptions,
  applicationName = 'waybill',
  stream?: () => Socket,
): Promise<pg.Client> {
  const { url, directUrl } = options;
  const client = new pg.Client({
    ...clientConfig(options, directUrl ?? url, applicationName),
    ...(stream && { stream }),
  });
  // an error between two queries is reported by the next query; without a listener it would end the process
  client.on('error', () => {});
  try {
    await client.connect();
    await prepare(client, options, async () => {
      if (directUrl === undefined && (await isPooled(client))) {
        throw new ConfigurationError(
          'the address of the database leads through a connection pooler, which keeps no session: set database.directUrl (DATABASE_DIRECT_URL) to the address of PostgreSQL itself, or of a pooler in session mode',
        );
      }
      await limitSession(client, options);
    });
  } catch (error) {
    destroy(client);
    throw error;
  }
  return client;
}

/** A server that accepts a connection and then says nothing must not hold anybody up. */
async function prepare(
  client: pg.Client | pg.PoolClient,
  { connectTimeoutMs }: ResolvedDatabaseOptions,
  work: () => Promise<void>,
): Promise<void> {
  await withDeadline('prepare session', connectTimeoutMs, work(), () => destroy(client));
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
  /** Connections behind which there is a pooler. */
  readonly #pooled = new WeakSet<pg.ClientBase>();
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
      onConnect: (client): void => this.#prepare(client as pg.PoolClient) as unknown as void,
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
      const run = () => answerTo<Row>(client, query);
      return await withDeadline(
        what,
        this.#deadlineMs,
        this.#pooled.has(client) ? inLimitedTransaction(client, this.options, run) : run(),
        () => destroy(client),
      );
    } catch (error) {
      failure = error as Error;
      throw error;
    } finally {
      // an error of the server leaves the connection sound; everything else does not
      client.release(failure !== undefined && !(failure instanceof pg.DatabaseError));
    }
  }

  async #prepare(client: pg.PoolClient): Promise<void> {
    await prepare(client, this.options, async () => {
      if (await isPooled(client)) this.#pooled.add(client);
      else await limitSession(client, this.options);
    });
  }

  /** Runs the work on one direct connection, each of its queries with a deadline like all others. */
  async directly<T>(applicationName: string, work: (query: DirectQuery) => Promise<T>): Promise<T> {
    const client = await connectDirectly(this.options, applicationName, () => this.#newSocket());
    const query: DirectQuery = async <Row extends pg.QueryResultRow>(
      what: string,
      sql: string,
      values: unknown[] = [],
    ) => {
      const running = client.query<Row>(sql, values);
      return (await withDeadline(what, this.#deadlineMs, running, () => destroy(client))).rows;
    };
    try {
      return await work(query);
    } finally {
      await withDeadline('end', 1000, client.end(), () => destroy(client)).catch(() => {});
    }
  }

  /** Ends the connections; those that are still busy after `patienceMs` are cut, and who waited for them has heard of it. */
  async close(patienceMs = 1000): Promise<void> {
    const cut = setTimeout(() => {
      for (const socket of this.#sockets) socket.destroy();
    }, patienceMs);
    await this.#pool.end();
    clearTimeout(cut);
    // a direct connection is not the pool's to end
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => setImmediate(resolve));
  }

  /** Every socket is known, those that are still connecting too: none may outlive the pool. */
  #newSocket(): Socket {
    const socket = new Socket();
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    return socket;
  }
}

export type DirectQuery = <Row extends pg.QueryResultRow>(
  what: string,
  sql: string,
  values?: unknown[],
) => Promise<Row[]>;

const plainTexts: pg.CustomTypesConfig = { getTypeParser: () => (value: string) => value };

/**
 * By callback: of the promises that pg makes, each keeps the rows of the next one until memory is cleaned from the
 * ground up, so that nothing that is read would be cleared away in passing (`--trace-gc` shows it).
 */
function answerTo<Row extends pg.QueryResultRow>(
  client: pg.PoolClient,
  query: pg.QueryConfig,
): Promise<pg.QueryResult<Row>> {
  return new Promise((resolve, reject) => {
    client.query<Row>(query, (error: Error | null, result) => {
      if (error === null) resolve(result);
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
