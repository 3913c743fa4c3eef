import 'reflect-metadata';
import { DataSource, EntitySchema } from 'typeorm';
import type { EntityManager, QueryRunner } from 'typeorm';

import { library } from '../library.js';

const effects = new EntitySchema<{ name: string }>({
  name: 'effects',
  columns: { name: { type: 'text', primary: true } },
});

const open = (url: string) =>
  new DataSource({ type: 'postgres', url, entities: [effects] }).initialize();

export const typeormManager = library<EntityManager>(['typeorm', 'pg'], async (url) => {
  const dataSource = await open(url);
  return {
    outside: dataSource.manager,
    transaction: (work) => dataSource.transaction(work),
    nested: (manager, work) => manager.transaction(work),
    insert: (manager, name) => manager.insert(effects, { name }),
    close: () => dataSource.destroy(),
  };
});

/** A query runner survives its transaction: it must not be mistaken for one that is still in it. */
export const typeormQueryRunner = library<QueryRunner>(['typeorm', 'pg'], async (url) => {
  const dataSource = await open(url);
  const outside = dataSource.createQueryRunner();
  const inTransaction = async <T>(runner: QueryRunner, work: (tx: QueryRunner) => Promise<T>) => {
    await runner.startTransaction();
    try {
      const value = await work(runner);
      await runner.commitTransaction();
      return value;
    } catch (error) {
      await runner.rollbackTransaction();
      throw error;
    }
  };
  return {
    outside,
    async transaction(work) {
      const runner = dataSource.createQueryRunner();
      try {
        return await inTransaction(runner, work);
      } finally {
        await runner.release();
      }
    },
    nested: inTransaction,
    insert: (runner, name) => runner.manager.insert(effects, { name }),
    async close() {
      await outside.release();
      await dataSource.destroy();
    },
  };
});
