// A migration that is killed at any point leaves nothing half done and can be run again. The test ends its connection
// after each of its statements in turn.

import { expect, it } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { MigrationError } from '../../src/core/errors.js';
import { only } from '../support/only.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';

const db = testDatabase({ allPartitions: true });

/**
 * Ends the session after the n-th statement of a transaction that defines something, while this many migrations are
 * applied; and at the first statement when there are more, so that the next one does not begin.
 */
const assassin = `
  CREATE TABLE public.victim (at_statement int, applied int);
  INSERT INTO public.victim DEFAULT VALUES;
  CREATE FUNCTION public.strike() RETURNS event_trigger LANGUAGE plpgsql AS $$
  DECLARE
    v_count   int := coalesce(nullif(current_setting('assassin.count', true), ''), '0')::int + 1;
    v_applied int;
    v_victim  public.victim := (SELECT v FROM public.victim v);
  BEGIN
    PERFORM set_config('assassin.count', v_count::text, true);
    IF v_count = 1 THEN
      IF to_regclass('${db.quoted}.applied_files') IS NOT NULL THEN
        SELECT count(*) INTO v_applied FROM ${db.quoted}.applied_files WHERE file LIKE 'migrations/%';
      END IF;
      PERFORM set_config('assassin.applied', coalesce(v_applied, 0)::text, true);
    END IF;
    v_applied := current_setting('assassin.applied')::int;
    IF v_applied > v_victim.applied OR v_applied = v_victim.applied AND v_count = v_victim.at_statement THEN
      PERFORM pg_terminate_backend(pg_backend_pid());
    END IF;
  END $$;
  CREATE EVENT TRIGGER assassin ON ddl_command_end EXECUTE FUNCTION public.strike();`;

const countObjects = `
  SELECT ((SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace($1))
        + (SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid WHERE c.relnamespace = to_regnamespace($1))
        + (SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace($1)))::int AS count`;

it('N12 a migration killed after any of its statements leaves nothing behind and resumes', async () => {
  const { url, client } = await otherDatabase('empty');
  await client.query(assassin);

  const objects = async (): Promise<number> => {
    const { rows } = await client.query<{ count: number }>(countObjects, [db.quoted]);
    return only(rows).count;
  };
  const run = async (
    atStatement: number | null,
    applied: number | null,
  ): Promise<string | null> => {
    await client.query('UPDATE public.victim SET at_statement = $1, applied = $2', [
      atStatement,
      applied,
    ]);
    let step = '';
    try {
      await migrateUp({ url, schema: db.schema, onStep: (title) => (step = title) });
      return null;
    } catch (error) {
      if (!(error instanceof MigrationError)) throw error;
      return step;
    }
  };

  const kills = new Map<string, number>();
  const steps = ['migrations/0001_storage.sql', 'functions and views'];
  for (const [applied, step] of steps.entries()) {
    const before = await objects();
    // there are many similar functions, and many similar guards of tables
    for (let statement = 1; ; statement += statement < 100 ? 1 : 11) {
      const killed = await run(statement, applied);
      if (killed !== step) break;
      expect(await objects(), `after statement ${statement} of ${step}`).toBe(before);
      kills.set(step, statement);
    }
    expect(await objects()).toBeGreaterThan(before);
  }
  // there are many similar partitions: the first ones, some in the middle, and far into them
  const before = await objects();
  for (const statement of [1, 2, 3, 4, 101, 102, 240]) {
    expect(await run(statement, 1), `partitions, statement ${statement}`).toBe('partitions');
    expect(await objects()).toBe(before);
  }
  expect(await run(null, null)).toBeNull();

  expect(kills.get('migrations/0001_storage.sql')).toBeGreaterThan(30);
  expect(kills.get('functions and views')).toBeGreaterThan(40);
  const { rows: template } = await db.query<{ count: number }>(countObjects, [db.quoted]);
  expect(await objects()).toBe(only(template).count);
}, 120_000);
