// Prisma adapter: the client of an interactive transaction.

import { has } from './transaction.js';
import type { Adapter } from './transaction.js';

export type PrismaTransaction = {
  $queryRawUnsafe(sql: string, ...parameters: unknown[]): PromiseLike<unknown>;
};

export const prisma: Adapter<PrismaTransaction> = {
  inside: 'Give the tx that prisma.$transaction(async (tx) => …) hands you',
  fits: (handle) => has(handle, '$queryRawUnsafe'),
  run: (tx, sql, parameters) => tx.$queryRawUnsafe(sql, ...parameters),
};
