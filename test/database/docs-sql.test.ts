// Keeps the SQL reference equal to the catalog of a migrated database, on every supported PostgreSQL.

import path from 'node:path';

import type pg from 'pg';
import { expect, test } from 'vitest';

import { testDatabase } from '../support/postgres.js';

const { catalogParts, filled, generatedFromCatalog } = (await import(
  path.resolve('scripts/docs.mjs')
)) as {
  generatedFromCatalog: string[];
  catalogParts: (client: pg.Client, schema: string) => Promise<Record<string, string>>;
  filled: (files: string[], parts: Record<string, string>) => { text: string; wanted: string }[];
};

const db = testDatabase();

test('the SQL reference is what `npm run docs` writes', async () => {
  const parts = await catalogParts(await db.connect(), db.schema);
  for (const { text, wanted } of filled(generatedFromCatalog, parts)) expect(text).toBe(wanted);
});

test('a function that the reference lacks is noticed', async () => {
  const client = await db.connect();
  await client.query('BEGIN');
  await client.query(
    `CREATE FUNCTION ${db.quoted}.surprise() RETURNS int LANGUAGE sql AS 'SELECT 1'`,
  );
  await expect(catalogParts(client, db.schema)).rejects.toThrow(/surprise/);
  await client.query('ROLLBACK');
});
