// Knex adapter: the trx of knex.transaction(). Knex's placeholders are question marks, so $1 becomes ? and a question
// mark in the SQL is escaped. Quoted names keep their dollar signs.

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
