// postgres.js adapter: the sql of sql.begin(). Without a name, unsafe() prepares nothing on the server, so it works
// behind poolers too.

import { has } from './transaction.js';
import type { Adapter } from './transaction.js';

export type PostgresJsSql = {
  unsafe(sql: string, parameters: never[]): PromiseLike<unknown>;
};

export const postgresJs: Adapter<PostgresJsSql> = {
  inside: 'Give the sql that sql.begin(async (sql) => …) hands you',
  fits: (handle) => has(handle, 'unsafe'),
  run: (sql, text, parameters) => sql.unsafe(text, [...parameters] as never[]),
};
