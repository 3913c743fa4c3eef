// Migrations from the command line, each in its own database.

import pg from 'pg';
import { describe, expect, inject, it } from 'vitest';

import { version } from '../../src/core/version.js';
import { cli, json, startCli, writeConfig } from '../support/cli.js';
import { only } from '../support/only.js';
import { otherDatabase } from '../support/postgres.js';

const schema = inject('schema');
const quoted = pg.escapeIdentifier(schema);

async function makeDatabase(kind: 'empty' | 'migrated') {
  const { url, client } = await otherDatabase(kind);
  return {
    environment: { DATABASE_URL: url, WAYBILL_SCHEMA: schema },
    query: async (sql: string, values?: unknown[]) =>
      (await client.query<pg.QueryResultRow>(sql, values)).rows,
  };
}

describe('migrate', () => {
  it('N12 up creates the schema, verifies it and says so; a second run has nothing to do', async () => {
    const { environment } = await makeDatabase('empty');
    const status = async () =>
      json(await cli(['migrate', 'status', '--json'], { environment })) as {
        file: string;
        state: string;
      }[];
    expect(new Set((await status()).map(({ state }) => state))).toEqual(new Set(['pending']));
    const first = await cli(['migrate', 'up'], { environment });
    expect(first.code).toBe(0);
    expect(first.stdout).toMatch(/^ok {3}/m);
    expect(first.stdout).not.toContain('BAD');
    expect(first.stderr).toContain('applying migrations/0001_storage.sql');
    expect(new Set((await status()).map(({ state }) => state))).toEqual(new Set(['applied']));
    const second = await cli(['migrate', 'up', '--json'], { environment });
    expect(second.code).toBe(0);
    expect(second.stderr).not.toContain('0001_storage');
  });

  it('N12 --dry-run prints the complete SQL and changes nothing', async () => {
    const { environment, query } = await makeDatabase('empty');
    const { code, stdout } = await cli(['migrate', 'up', '--dry-run'], { environment });
    expect(code).toBe(0);
    const exists = async () =>
      only(await query(`SELECT to_regnamespace($1) IS NOT NULL AS found`, [quoted]));
    expect(await exists()).toEqual({ found: false });
    await query(stdout);
    expect(await exists()).toEqual({ found: true });
    const after = await cli(['migrate', 'status', '--json'], { environment });
    expect(new Set((json(after) as { state: string }[]).map(({ state }) => state))).toEqual(
      new Set(['applied']),
    );
  });

  it('N12 sql prints the whole schema without a database', async () => {
    const { environment, query } = await makeDatabase('empty');
    const { code, stdout } = await cli(['migrate', 'sql', '--schema', schema]);
    expect(code).toBe(0);
    await query(stdout);
    const status = await cli(['migrate', 'status', '--json'], { environment });
    expect(new Set((json(status) as { state: string }[]).map(({ state }) => state))).toEqual(
      new Set(['applied']),
    );
  });

  it('N12 check says whether the schema works with this version, by its exit code and as JSON', async () => {
    const check = async ({ environment }: { environment: Record<string, string> }) => {
      const result = await cli(['migrate', 'check', '--json'], { environment });
      return { exit: result.code, ...(json(result) as object) };
    };
    const empty = await makeDatabase('empty');
    expect(await check(empty)).toMatchObject({ exit: 1, ok: false, code: 'schema_missing' });
    const there = await makeDatabase('migrated');
    expect(await check(there)).toEqual({ exit: 0, ok: true, schema, version });
    const { environment } = there;
    expect(await cli(['migrate', 'check'], { environment })).toMatchObject({
      code: 0,
      stdout: `ok  the schema ${schema} works with Waybill ${version}\n`,
      stderr: '',
    });
    const update = `UPDATE ${quoted}.applied_files SET`;
    await there.query(
      `${update} checksum = 'x', version = '0.0.1' WHERE file = 'functions/ids.sql'`,
    );
    expect(await check(there)).toMatchObject({
      exit: 4,
      code: 'schema_outdated',
      detail: expect.stringContaining('it lacks functions/ids.sql') as unknown,
    });
    await there.query(`${update} works_with = '99.0.0' WHERE file = 'functions/ids.sql'`);
    expect(await check(there)).toMatchObject({ exit: 8, code: 'relay_too_old' });
  });

  it('N12 down needs a confirmation, refuses while messages are pending, and removes the schema', async () => {
    const { environment, query } = await makeDatabase('migrated');
    await query(`SELECT ${quoted}.define_destination('waiting')`);
    await query(
      `INSERT INTO ${quoted}.routes (destination_id, topic) SELECT id, '*' FROM ${quoted}.destinations`,
    );
    await query(`SELECT ${quoted}.enqueue(topic => 'a')`);
    const down = (...flags: string[]) => cli(['migrate', 'down', ...flags], { environment });
    expect(await down()).toMatchObject({
      code: 4,
      stderr: expect.stringContaining('--yes') as unknown,
    });
    expect(await down('--yes')).toMatchObject({
      code: 4,
      stderr: expect.stringContaining('--force') as unknown,
    });
    expect(await down('--yes', '--force')).toMatchObject({
      code: 0,
      stdout: 'took back migrations/0001_storage.sql\n',
    });
    expect(await query(`SELECT to_regclass($1) AS t`, [`${quoted}.messages`])).toEqual([
      { t: null },
    ]);
    expect(await down('--yes')).toMatchObject({ code: 0, stdout: 'nothing to take back\n' });
  });

  it('N12 commands on a database without the schema end at once with the remedy', async () => {
    const { environment } = await makeDatabase('empty');
    const config = writeConfig('{ destinations: { a: handler(() => {}) }, routes: [] }');
    for (const args of [
      ['status'],
      ['enqueue', 'a'],
      ['start', '--config', config],
      ['drain', '--config', config],
      ['dead-letters', 'list'],
    ]) {
      const { code, stderr } = await startCli(args, { environment }).ended(10_000);
      expect({ args, code }).toEqual({ args, code: 1 });
      expect(stderr, args.join(' ')).toContain('waybill migrate up');
    }
  });
});
