// Finds the adapter for an application's database handle, and requires a transaction if one is needed. Handles are
// recognised by their methods, so that applications need not import, wrap or configure anything.

import { NoTransactionError, shown } from '../../core/errors.js';
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

/** The handles that an application may pass as its transaction. */
export type TransactionHandle =
  | NodePostgresClient
  | PostgresJsSql
  | DrizzleTransaction
  | PrismaTransaction
  | KyselyTransaction
  | KnexTransaction
  | TypeormManager
  | MikroOrmManager;

// adapters with a unique method come first; query(), which several have, comes last
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
  /** Why a transaction is required. */
  because: string;
  /** The alternative, if there is one. */
  otherwise?: string;
};

/** Runs SQL with the handle, inside a transaction or not. */
export function adapt(handle: unknown, demand: Demand): Transaction {
  const run = runOf(adapterFor(handle, demand), handle);
  return { query: async (sql, parameters) => rowsOf(await run(sql, parameters)) };
}

/**
 * Runs SQL only inside a transaction, and throws otherwise. The SQL must return a row: no row is taken as a sign that
 * it did not run.
 */
export function adaptInside(handle: unknown, demand: Demand): Transaction {
  const adapter = adapterFor(handle, demand);
  const run = runOf(adapter, handle);
  const refusal = ({ because, remedy: what }: Outside) =>
    new NoTransactionError(because, remedy(what, demand));
  return {
    async query(sql, parameters) {
      const knows = adapter.knows?.(handle);
      // no await between the check and the query: the state could change meanwhile
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
  // some handles are functions with methods
  if ((typeof handle !== 'object' && typeof handle !== 'function') || handle === null)
    return undefined;
  return adapters.find((adapter) => adapter.fits(handle));
}

function remedy(what: string, { because, otherwise }: Demand): string {
  return `${because}. ${what}${otherwise === undefined ? '' : `, or ${otherwise}`}.`;
}

/** Some drivers return the rows, others an object that contains them. */
function rowsOf(result: unknown): Record<string, unknown>[] {
  const rows = Array.isArray(result) ? result : (result as { rows?: unknown } | null)?.rows;
  return (rows ?? []) as Record<string, unknown>[];
}
