// Finds the adapter for the handle that an application gives, and insists on a transaction where one is needed.
// Handles are told apart by their methods, so that nobody has to import, wrap or configure anything.

import { NoTransactionError, shown } from '../errors.js';
import { drizzle } from './drizzle.js';
import type { DrizzleTransaction } from './drizzle.js';
import { queryInside } from './inside.js';
import { knex } from './knex.js';
import type { KnexTransaction } from './knex.js';
import { kysely } from './kysely.js';
import type { KyselyTransaction } from './kysely.js';
import { mikroOrm } from './mikro-orm.js';
import type { MikroOrmManager } from './mikro-orm.js';
import { nodePostgres } from './node-postgres.js';
import type { NodePostgresClient } from './node-postgres.js';
import { postgresJs } from './postgres-js.js';
import type { PostgresJsSql } from './postgres-js.js';
import { prisma } from './prisma.js';
import type { PrismaTransaction } from './prisma.js';
import type { Adapter, Outside, Transaction } from './transaction.js';
import { typeorm } from './typeorm.js';
import type { TypeormManager } from './typeorm.js';

/** What an application may give as its transaction. */
export type TransactionHandle =
  | NodePostgresClient
  | PostgresJsSql
  | DrizzleTransaction
  | PrismaTransaction
  | KyselyTransaction
  | KnexTransaction
  | TypeormManager
  | MikroOrmManager;

// Those with a method that nobody else has come first; query(), which several have, comes last.
const adapters = [
  prisma,
  mikroOrm,
  kysely,
  postgresJs,
  knex,
  drizzle,
  typeorm,
  nodePostgres,
] as readonly Adapter<unknown>[];

const known =
  'Give the transaction of node-postgres, postgres.js, Drizzle, Prisma, Kysely, Knex, TypeORM or MikroORM';

export type Demand = {
  /** Why it must be a transaction. */
  because: string;
  /** What else could be done, if anything. */
  otherwise?: string;
};

/** Runs SQL on it, in a transaction or not. */
export function adapt(handle: unknown, demand: Demand): Transaction {
  const run = runOf(adapterFor(handle, demand), handle);
  return { query: async (sql, parameters) => rowsOf(await run(sql, parameters)) };
}

/** Runs SQL that gives at least one row, and only inside a transaction: what would run outside of one is refused. */
export function adaptInside(handle: unknown, demand: Demand): Transaction {
  const adapter = adapterFor(handle, demand);
  const run = runOf(adapter, handle);
  const refusal = ({ because, remedy: what }: Outside) =>
    new NoTransactionError(because, remedy(what, demand));
  return {
    async query(sql, parameters) {
      const knows = adapter.knows?.(handle);
      // nothing may come between the two: what is true now need not be true after an await
      if (knows === true) return rowsOf(await run(sql, parameters));
      if (knows !== undefined) throw refusal(knows);
      const rows = await queryInside(
        async (text, values) => rowsOf(await run(text, values)),
        sql,
        parameters,
      );
      if (rows.length === 0) throw refusal({ because: outside, remedy: adapter.inside });
      return rows;
    },
  };
}

const outside =
  'this client is not in a transaction, or its transaction ended meanwhile (is an await missing?)';

function adapterFor(handle: unknown, demand: Demand): Adapter<unknown> {
  const adapter = adapterOf(handle);
  if (adapter !== undefined) return adapter;
  throw new NoTransactionError(
    `${shown(handle)} is not a database client that Waybill knows`,
    remedy(known, demand),
  );
}

function runOf(adapter: Adapter<unknown>, handle: unknown) {
  return (sql: string, parameters: readonly unknown[]) => adapter.run(handle, sql, parameters);
}

function adapterOf(handle: unknown): Adapter<unknown> | undefined {
  // some are functions, with methods
  if ((typeof handle !== 'object' && typeof handle !== 'function') || handle === null)
    return undefined;
  return adapters.find((adapter) => adapter.fits(handle));
}

function remedy(what: string, { because, otherwise }: Demand): string {
  return `${because}. ${what}${otherwise === undefined ? '' : `, or ${otherwise}`}.`;
}

/** Some give the rows, the others an object that has them. */
function rowsOf(result: unknown): Record<string, unknown>[] {
  const rows = Array.isArray(result) ? result : (result as { rows?: unknown } | null)?.rows;
  return (rows ?? []) as Record<string, unknown>[];
}
