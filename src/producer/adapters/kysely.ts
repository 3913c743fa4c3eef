// Kysely adapter: a Transaction or a ControlledTransaction. It passes an object in the shape of a compiled raw query;
// the query id only serves plugins to distinguish queries.

import { has } from './transaction.js';
import type { Adapter } from './transaction.js';

export type KyselyTransaction = {
  executeQuery(query: never): PromiseLike<unknown>;
};

export const kysely: Adapter<KyselyTransaction> = {
  inside: 'Give the trx that db.transaction().execute(async (trx) => …) hands you',
  fits: (handle) => has(handle, 'executeQuery'),
  run(trx, sql, parameters) {
    const query = { kind: 'RawNode', sqlFragments: [sql], parameters: [] };
    return trx.executeQuery({ sql, parameters, query, queryId: { queryId: 'waybill' } } as never);
  },
};
