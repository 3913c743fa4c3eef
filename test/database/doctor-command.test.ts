// `waybill doctor` as users run it: its output and exit codes. It also works without rights, with an older or missing
// schema, and when the database is lost meanwhile.

import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';

import { checks } from '../../src/doctor/doctor.js';
import type { Examination } from '../../src/doctor/doctor.js';
import { cli, json } from '../support/cli.js';
import { ownServer, report } from '../support/doctor.js';
import { databaseUrl } from '../support/postgres.js';
import { TcpProxy } from '../support/tcp-proxy.js';

const db = ownServer();
const codes = checks.map(({ code }) => code);

async function doctor(args: string[] = [], url = db.url) {
  const finished = await cli(['doctor', ...args], {
    environment: { DATABASE_URL: url, WAYBILL_SCHEMA: db.schema },
  });
  return { ...finished, lines: finished.stdout.trimEnd().split('\n') };
}

async function examinations(url?: string): Promise<{ code: number | null; all: Examination[] }> {
  const finished = await doctor(['--json'], url);
  return { code: finished.code, all: json(finished) as Examination[] };
}

const inState = (all: Examination[], state: string) =>
  all.filter((each) => each.state === state).map(({ code }) => code);

describe('without problems', () => {
  it('every check is listed with ok, and the exit code is 0', async () => {
    const { code, lines, stderr } = await doctor();
    expect(code).toBe(0);
    expect(lines.map((line) => line.split(/\s+/).slice(0, 2))).toEqual(
      codes.map((each) => ['ok', each]),
    );
    expect(stderr).toBe(
      `${codes.length} checks: ${codes.length} ok, 0 warning, 0 error, 0 skipped\n`,
    );
  });

  it('JSON is an array of checks with code, state, finding and remedy', async () => {
    const { code, all } = await examinations();
    expect(code).toBe(0);
    expect(all.map((each) => each.code)).toEqual(codes);
    for (const each of all)
      expect(each).toEqual({
        code: each.code,
        title: expect.stringMatching(/\S/) as string,
        state: 'ok',
        found: expect.stringMatching(/\S/) as string,
        remedy: null,
        paste: [],
      });
  });

  it('each code appears once', () => {
    expect(new Set(codes).size).toBe(codes.length);
    for (const code of codes) expect(code).toMatch(/^[a-z]+(_[a-z]+)*$/);
  });

  it('only the named checks are run', async () => {
    const { code, lines } = await doctor(['fsync_off', 'alerts']);
    expect(code).toBe(0);
    expect(lines.map((line) => line.split(/\s+/)[1])).toEqual(['fsync_off', 'alerts']);
  });
});

describe('a finding', () => {
  it('gives exit code 10, with the finding and lines to paste; and cannot control the terminal', async () => {
    const role = 'red \u001b[31m role';
    await db.query(`CREATE ROLE "${role}"; ALTER ROLE "${role}" SET synchronous_commit = off`);
    const { code, lines, stderr } = await doctor(['synchronous_commit_off']);
    const { code: codeOfJson } = await examinations();
    await db.query(`DROP ROLE "${role}"`);
    expect({ code, codeOfJson }).toEqual({ code: 10, codeOfJson: 10 });
    expect(lines).toEqual([
      expect.stringMatching(
        /^warning {2}synchronous_commit_off {2}synchronous_commit is off for role red \\u001b\[31m role:/,
      ),
      '           Switch it on, at least for the roles that enqueue.',
      String.raw`             ALTER ROLE "red \u001b[31m role" RESET synchronous_commit;`,
    ]);
    expect(stderr).toBe('1 check: 0 ok, 1 warning, 0 error, 0 skipped\n');
  });
});

describe('with limited access', () => {
  it('a missing schema is the finding, and checks that need it are skipped', async () => {
    await db.query('CREATE DATABASE bare');
    const { code, all } = await examinations(databaseUrl(db.url, 'bare'));
    expect(code).toBe(10);
    expect(inState(all, 'error')).toEqual(['schema_missing']);
    expect(inState(all, 'ok')).toEqual(
      checks
        .filter((check) => check.needs === 'server' && check.code !== 'schema_missing')
        .map((check) => check.code),
    );
    expect(inState(all, 'warning')).toEqual([]);
  });

  it('in an older schema, checks of missing objects are skipped, and the others run', async () => {
    await db.query('CREATE DATABASE older TEMPLATE postgres');
    const url = databaseUrl(db.url, 'older');
    const older = { url, schema: db.schema };
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query(`SET search_path = ${db.quoted};
      DROP VIEW health, watch_status, destination_load; DROP FUNCTION alerts, cursor_status, cursor_partitions, watch_problem, health_check;
      ALTER TABLE relays DROP COLUMN problems, DROP COLUMN breakers;
      DROP TABLE maintenance_runs;
      UPDATE applied_files SET checksum = 'older', version = '0.0.1'`);
    await client.end();
    const all = await report(older);
    expect(all.map((each) => each.code)).toEqual(codes);
    expect(inState(all, 'skipped')).toEqual([
      'public_rights',
      'functions_unsafe',
      'relay_versions',
      'relay_definitions',
      'relay_problems',
      'breakers_open',
      'destinations_paused',
      'destinations_gone',
      'retention_late',
      'cursors_foreign',
      'cursors_behind',
      'watches_broken',
      'alerts',
    ]);
    expect(inState(all, 'warning')).toEqual(['schema_version']);
    expect(inState(all, 'error')).toEqual([]);
  });

  it('a role without rights is told, check by check, what it may not see', async () => {
    await db.query('CREATE ROLE stranger LOGIN');
    const url = new URL(db.url);
    url.username = 'stranger';
    const { code, all } = await examinations(url.href);
    expect(code).toBe(0);
    expect(inState(all, 'warning')).toEqual([]);
    expect(inState(all, 'error')).toEqual([]);
    const skipped = inState(all, 'skipped');
    expect(skipped).toEqual(
      expect.arrayContaining(['long_transactions', 'standby_feedback', 'schema_version', 'alerts']),
    );
    const found = (name: string) => all.find((each) => each.code === name);
    expect(found('alerts')?.found).toMatch(/permission denied for schema .* \(stranger\)$/);
    expect(found('long_transactions')?.paste).toEqual(['GRANT pg_read_all_stats TO stranger;']);
    expect(inState(all, 'ok')).toEqual(expect.arrayContaining(['fsync_off', 'schema_missing']));

    await db.query('GRANT pg_read_all_stats TO stranger');
    const { all: more } = await examinations(url.href);
    expect(inState(more, 'ok')).toEqual(
      expect.arrayContaining(['long_transactions', 'standby_feedback']),
    );
  });
});

describe('a check that cannot finish', () => {
  it('is skipped when it has to wait for too long, and the others continue', async () => {
    const client = await db.connect();
    await client.query(`BEGIN; LOCK TABLE ${db.quoted}.maintenance_runs`);
    const all = await report(db, { database: { lockTimeoutMs: 100 } });
    await client.end();
    expect(inState(all, 'skipped')).toEqual(['retention_late']);
    expect(all.find((each) => each.code === 'retention_late')?.found).toMatch(
      /^it took too long: .*lock timeout/,
    );
    expect(inState(all, 'ok')).toHaveLength(codes.length - 1);
  });

  it('is an error when it fails for another reason, and the others continue', async () => {
    await db.query('CREATE DATABASE broken TEMPLATE postgres');
    const url = databaseUrl(db.url, 'broken');
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query(`CREATE OR REPLACE FUNCTION ${db.quoted}.partition_bounds(p_table regclass)
      RETURNS TABLE (partition regclass, day date, detaching boolean) LANGUAGE plpgsql
      AS $$ BEGIN RAISE division_by_zero; END $$; REVOKE ALL ON ALL ROUTINES IN SCHEMA ${db.quoted} FROM PUBLIC`);
    await client.end();
    const all = await report({ url, schema: db.schema });
    expect(inState(all, 'error')).toContain('partitions_missing');
    expect(all.find((each) => each.code === 'partitions_missing')?.found).toMatch(
      /^the check failed: division_by_zero \(22012\)$/,
    );
    expect(all.map((each) => each.code)).toEqual(codes);
    expect(inState(all, 'ok')).toContain('watches_broken');
  });
});

describe('an unreachable database', () => {
  it('is an error that says so, and not a finding', async () => {
    const { code, stdout, stderr } = await doctor([], 'postgresql://127.0.0.1:1/none');
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toMatch(/no database answers at 127\.0\.0\.1:1 \(ECONNREFUSED\)/);
  });

  it('that is lost during the checks ends them', async () => {
    const proxy = await TcpProxy.open();
    onTestFinished(() => proxy.close());
    const { hostname, port } = new URL(db.url);
    proxy.leadTo({ host: hostname, port: Number(port) });
    const url = new URL(db.url);
    url.port = String(proxy.address.port);
    const examined = { url: url.href, schema: db.schema };
    expect(await report(examined)).toHaveLength(codes.length);
    const nowMs = () => {
      void proxy.leave();
      return Date.now();
    };
    await expect(report(examined, { nowMs })).rejects.toThrow(/ECONN|terminated/);
  });
});
