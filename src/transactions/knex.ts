// Knex: the trx of knex.transaction(). Its placeholders are question marks, so $1 becomes ? and a question mark
// of the SQL itself is escaped. A quoted name is left as it is otherwise: it may hold a dollar sign.

import { has } from './transaction.js';
import type { Adapter } from './transaction.js';

export type KnexTransaction = {
  raw(sql: string, bindings: never): PromiseLike<unknown>;
};

export const knex: Adapter<KnexTransaction> = {
  inside: 'Give the trx that knex.transaction(async (trx) => …) hands you',
  fits: (handle) => has(handle, 'raw'),
  run(trx, sql, parameters) {
    const bindings: unknown[] = [];
    const text = sql.replaceAll(/"(?:[^"]|"")*"|\$(\d+)|\?/g, (part, number?: string) => {
      if (number === undefined) return part.replaceAll('?', '\\?');
      bindings.push(parameters[Number(number) - 1]);
      return '?';
    });
    return trx.raw(text, bindings as never);
  },
};
