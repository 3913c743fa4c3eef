// What the doctor reads from the text of migrations. test/database/doctor-storage.test.ts compares it with a real
// database.

import { expect, test } from 'vitest';

import { declaredIn } from '../../src/doctor/declared.js';

const file = (text: string, name = 'migrations/0001_first.sql') => ({ name, text, checksum: '' });

const first = file(`-- CREATE TABLE commented (id int);
CREATE TABLE parcels (
  id    bigint PRIMARY KEY, -- one, and only one
  code  text NOT NULL UNIQUE CHECK (code IN ('a', 'b')),
  owner text,
  UNIQUE NULLS NOT DISTINCT (code, owner)
) WITH (fillfactor = 50);
CREATE TABLE days (day date NOT NULL, parcel_id bigint, PRIMARY KEY (day, parcel_id)) PARTITION BY RANGE (day);
CREATE UNIQUE INDEX parcels_by_owner ON parcels (owner)
  WHERE owner IS NOT NULL;
CREATE INDEX days_by_parcel ON days (parcel_id);
`);

const statements = (...files: ReturnType<typeof file>[]) =>
  Object.fromEntries(declaredIn(files, []).indexes.map(({ name, statement }) => [name, statement]));

test('tables are found with the statements that create their indexes and constraints', () => {
  expect(declaredIn([first], []).tables).toEqual(['parcels', 'days']);
  expect(statements(first)).toEqual({
    parcels_pkey: 'ALTER TABLE %s.parcels ADD PRIMARY KEY (id);',
    parcels_code_key: 'ALTER TABLE %s.parcels ADD UNIQUE (code);',
    parcels_code_owner_key: 'ALTER TABLE %s.parcels ADD UNIQUE NULLS NOT DISTINCT (code, owner);',
    days_pkey: 'ALTER TABLE %s.days ADD PRIMARY KEY (day, parcel_id);',
    parcels_by_owner:
      'CREATE UNIQUE INDEX CONCURRENTLY parcels_by_owner ON %s.parcels (owner) WHERE owner IS NOT NULL;',
    days_by_parcel: 'CREATE INDEX days_by_parcel ON %s.days (parcel_id);',
  });
});

test('an object that a later migration drops is not expected', () => {
  const later = file(
    'DROP INDEX IF EXISTS parcels_by_owner;\nDROP TABLE days;\n',
    'migrations/0002_later.sql',
  );
  expect(declaredIn([first, later], []).tables).toEqual(['parcels']);
  expect(Object.keys(statements(first, later))).toEqual([
    'parcels_pkey',
    'parcels_code_key',
    'parcels_code_owner_key',
  ]);
});

test('functions and views are found with their file, and once if the text depends on the server version', () => {
  const text = `CREATE OR REPLACE FUNCTION make() RETURNS int AS 'SELECT 1';
DO $$ BEGIN EXECUTE 'CREATE OR REPLACE FUNCTION make() RETURNS int AS ''SELECT 2'''; END $$;
CREATE OR REPLACE VIEW made AS SELECT 1;`;
  expect(declaredIn([], [file(text, 'functions/make.sql')]).definitions).toEqual([
    { name: 'make', kind: 'function', file: 'functions/make.sql' },
    { name: 'made', kind: 'view', file: 'functions/make.sql' },
  ]);
});
