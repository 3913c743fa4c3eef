// Schema errors for producers and consumers: if the schema is missing, outdated or not accessible to the login, the
// error says what to run, instead of a bare PostgreSQL code. Drivers and ORMs wrap the server's error in different
// ways, so the code is looked for in each of these places.

import { NoRightsError, SchemaMissingError, SchemaOutdatedError } from '../../core/errors.js';
import type { Transaction } from './transaction.js';

const schemaMissing = '3F000';
const functionMissing = '42883';
const tableMissing = '42P01';
const forbidden = '42501';

/** Wraps a transaction; `role` is the role that a login needs to call `callee` of the schema. */
export function explainingSchema(
  transaction: Transaction,
  { schema, callee, role }: { schema: string; callee: string; role: string },
): Transaction {
  return {
    async query(sql, parameters) {
      try {
        return await transaction.query(sql, parameters);
      } catch (error) {
        switch (sqlStateOf(error)) {
          case schemaMissing:
            throw new SchemaMissingError(schema, { cause: error });
          case functionMissing:
          case tableMissing:
            throw new SchemaOutdatedError(schema, await ownVersion(), callee, { cause: error });
          case forbidden:
            throw new NoRightsError(schema, callee, role, { cause: error });
          default:
            throw error;
        }
      }
    },
  };
}

/** Loaded on demand: it is read from package.json, which workers and bundles do not have. */
async function ownVersion(): Promise<string> {
  return import('../../core/version.js').then(
    ({ version }) => version,
    () => 'of this program',
  );
}

const known = new Set([schemaMissing, functionMissing, tableMissing, forbidden]);

/** Prisma has the code in `meta` and in its driver's error, TypeORM in `driverError`, others in a cause or directly. */
function sqlStateOf(error: unknown, depth = 0): string | undefined {
  if (typeof error !== 'object' || error === null || depth > 4) return undefined;
  const given = error as Record<string, unknown>;
  for (const name of ['code', 'originalCode', 'sqlState']) {
    const code = given[name];
    if (typeof code === 'string' && known.has(code)) return code;
  }
  for (const name of ['cause', 'driverError', 'originalError', 'meta', 'driverAdapterError']) {
    const code = sqlStateOf(given[name], depth + 1);
    if (code !== undefined) return code;
  }
  return undefined;
}
