// TypeORM adapter: the EntityManager of a transaction, or a QueryRunner that has started one.

import { has } from './transaction.js';
import type { Adapter } from './transaction.js';

export type TypeormManager = {
  query(sql: string, parameters: unknown[]): PromiseLike<unknown>;
};

export const typeorm: Adapter<TypeormManager> = {
  inside: 'Give the manager that dataSource.transaction(async (manager) => …) hands you',
  fits: (handle) =>
    has(handle, 'query') && (has(handle, 'createQueryBuilder') || has(handle, 'startTransaction')),
  run: (manager, sql, parameters) => manager.query(sql, [...parameters]),
};
