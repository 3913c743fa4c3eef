// Finds the adapter for the handle that an application gives, and insists on a transaction where one is needed.
// Handles are told apart by their methods, so that nobody has to import, wrap or configure anything.

import { NoTransactionError, shown } from '../errors.js';
import { drizzle } from './drizzle.js';
import type { DrizzleTransaction } from './drizzle.js';
import { isInside } from './inside.js';
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
import type { Adapter, Transaction } from './transaction.js';
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

export function adapt(handle: unknown, demand: Demand): Transaction {
  const adapter = adapterOf(handle);
  if (adapter === undefined) {
    throw new NoTransactionError(
      `${shown(handle)} is not a database client that Waybill knows`,
      remedy(known, demand),
    );
  }
  const run = (sql: string, parameters: readonly unknown[]) => adapter.run(handle, sql, parameters);
  return {
    query: async (sql, parameters) => rowsOf(await run(sql, parameters)),
    async outsideBecause() {
      const knows = adapter.knows?.(handle);
      if (knows !== undefined) return knows === true ? null : knows;
      return (await isInside(run)) ? null : 'this client is not in a transaction';
    },
  };
}

export async function adaptInside(handle: unknown, demand: Demand): Promise<Transaction> {
  const transaction = adapt(handle, demand);
  const reason = await transaction.outsideBecause();
  if (reason !== null)
    throw new NoTransactionError(reason, remedy(adapterOf(handle)?.inside ?? known, demand));
  return transaction;
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
