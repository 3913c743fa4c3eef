// Keeps the SQL reference equal to the catalog of a migrated database, on every supported PostgreSQL.

import path from 'node:path';

import type pg from 'pg';
import { expect, test } from 'vitest';

import { testDatabase } from '../support/postgres.js';

const { catalogParts, filled, generatedFromCatalog } = (await import(
  path.resolve('scripts/docs.mjs')
)) as {
  generatedFromCatalog: string[];
  catalogParts: (
    client: pg.Client,
    schema: string,
    load: (name: string) => Promise<unknown>,
  ) => Promise<Record<string, string>>;
  filled: (files: string[], parts: Record<string, string>) => { text: string; wanted: string }[];
};

const db = testDatabase({ allPartitions: true });
/** The sources as they are written. */
const load = async (name: string): Promise<unknown> =>
  (await import(path.resolve('src', `${name}.ts`))) as unknown;

test('the SQL reference is what `npm run docs` writes', async () => {
  const parts = await catalogParts(await db.connect(), db.schema, load);
  for (const { text, wanted } of filled(generatedFromCatalog, parts)) expect(text).toBe(wanted);
});

test('a function that the reference lacks is noticed', async () => {
  const client = await db.connect();
  await client.query('BEGIN');
  await client.query(
    `CREATE FUNCTION ${db.quoted}.surprise() RETURNS int LANGUAGE sql AS 'SELECT 1'`,
  );
  const texts = filled(generatedFromCatalog, await catalogParts(client, db.schema, load));
  const stale = texts.filter(({ text, wanted }) => text !== wanted);
  expect(stale.map(({ wanted }) => wanted.includes('- `surprise`'))).toEqual([true]);
  await client.query('ROLLBACK');
});
