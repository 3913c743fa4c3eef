// Which versions of relay and schema work together: what the database, a relay and a migration refuse, and how the old
// form of a function stays beside the new one for a version.

import { randomUUID } from 'node:crypto';

import { describe, expect, it, onTestFinished } from 'vitest';

import { createRelay } from '../../src/config.js';
import { refuseWhileOldRelaysRun } from '../../src/database/versions.js';
import { worksWithOf } from '../../src/database/sql-files.js';
import { handler } from '../../src/destinations/handler.js';
import { isNewer, version } from '../../src/core/version.js';
import { as, urlAs } from '../support/logins.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

function relay() {
  return createRelay({
    database: { url: urlAs(db.url, 'test_relay'), schema: db.schema },
    destinations: { crm: handler(() => {}) },
    routes: [{ topic: '*', to: 'crm' }],
  });
}

/** Changes the schema as another version would; reverted when the test ends. */
async function leave(file: string, changes: string): Promise<void> {
  const { rows } = await db.query<Record<string, unknown>>(
    `SELECT * FROM ${db.quoted}.applied_files WHERE file = $1`,
    [file],
  );
  onTestFinished(async () => {
    await db.query(`DELETE FROM ${db.quoted}.applied_files WHERE file = $1`, [file]);
    for (const { checksum, version: by } of rows)
      await db.query(
        `INSERT INTO ${db.quoted}.applied_files (file, checksum, version) VALUES ($1, $2, $3)`,
        [file, checksum, by],
      );
  });
  const { rowCount } = await db.query(
    `${changes.startsWith('DELETE') ? 'DELETE FROM' : 'UPDATE'} ${db.quoted}.applied_files ${changes.replace('DELETE', '')} WHERE file = '${file}'`,
  );
  expect(rowCount).toBe(1);
}

describe('a relay', () => {
  it.each([
    ['functions/claim.sql', `SET checksum = 'older', version = '0.0.9'`],
    ['functions/claim.sql', 'DELETE'],
    ['migrations/0001_storage.sql', 'DELETE'],
  ])('refuses a schema that lacks %s (%s), with the remedy', async (file, changes) => {
    await leave(file, changes);
    await expect(relay().start()).rejects.toMatchObject({
      code: 'schema_outdated',
      message: `the schema ${db.quoted} is older than Waybill ${version} (it lacks ${file}): run npx waybill migrate up with this version first; relays of the version before go on meanwhile`,
    });
  });

  it.each([
    [
      'has another text of a function',
      'functions/claim.sql',
      `SET checksum = 'newer', version = '99.10.0'`,
    ],
    ['has another text, of the same number', 'functions/claim.sql', `SET checksum = 'other'`],
    [
      'works with this one',
      'functions/claim.sql',
      `SET works_with = '${version}', version = '99.10.0'`,
    ],
    [
      'works with older ones',
      'functions/claim.sql',
      `SET works_with = '0.0.10', version = '99.10.0'`,
    ],
  ])('works with a schema of a newer version that %s', async (_what, file, changes) => {
    await leave(file, changes);
    const started = relay();
    await started.start();
    await started.stop();
  });

  it('works with a newer schema that has one file of functions less', async () => {
    await leave('functions/ids.sql', `SET version = '99.0.0'`);
    await leave('functions/claim.sql', 'DELETE');
    const started = relay();
    await started.start();
    await started.stop();
  });

  it('is refused before it has written its definitions', async () => {
    const defined = async () => {
      const { rows } = await db.query<{ defined: string }>(
        `SELECT (SELECT jsonb_agg(to_jsonb(d) ORDER BY id) FROM ${db.quoted}.destinations d)::text
             || coalesce((SELECT jsonb_agg(to_jsonb(r) ORDER BY to_jsonb(r)::text) FROM ${db.quoted}.routes r)::text, '') AS defined`,
      );
      return rows[0]?.defined;
    };
    const first = relay();
    await first.start();
    await first.stop();
    const before = await defined();
    expect(before).toContain('crm');
    await leave('migrations/0001_storage.sql', `SET works_with = '99.0.0'`);
    const other = createRelay({
      database: { url: urlAs(db.url, 'test_relay'), schema: db.schema },
      destinations: { erp: handler(() => {}) },
      routes: [{ topic: 'order.*', to: 'erp' }],
    });
    await expect(other.start()).rejects.toMatchObject({ code: 'relay_too_old' });
    expect(await defined()).toBe(before);
  });

  it('is refused by a schema for newer versions only, at its start and at every heartbeat', async () => {
    const beat = () =>
      as(db, 'test_relay', (client) =>
        client.query(`SELECT ${db.quoted}.heartbeat($1, 'r', '0.9.1', 'c', '{crm}')`, [
          randomUUID(),
        ]),
      );
    await beat();
    await leave('migrations/0001_storage.sql', `SET works_with = '0.10.0'`);
    const refusal = `the schema ${db.quoted.replace('"outbox"', 'outbox')} works with relays of Waybill 0.10.0 and newer, and this relay is Waybill`;
    await expect(relay().start()).rejects.toThrow(`${refusal} ${version}: upgrade it`);
    await expect(beat()).rejects.toMatchObject({
      code: '0A000',
      message: `${refusal} 0.9.1: upgrade it`,
    });
    // a name that is not a version number belongs to a worker in SQL
    const { rows } = await db.query(
      `SELECT ${db.quoted}.heartbeat(gen_random_uuid(), 'own', 'mine', 'c', '{crm}'), ${db.quoted}.heartbeat(gen_random_uuid(), 'r', '0.10.1-beta.1', 'c', '{crm}')`,
    );
    expect(rows).toHaveLength(1);
    // a pre-release is not yet that version
    await expect(
      db.query(
        `SELECT ${db.quoted}.heartbeat(gen_random_uuid(), 'r', '0.10.0-rc.1', 'c', '{crm}')`,
      ),
    ).rejects.toThrow(`${refusal} 0.10.0-rc.1: upgrade it`);
  });
});

it('versions have the same order here as in the database, and an invalid version has none', async () => {
  const numbers = '0 2 10 20261116010203'.split(' ');
  const names =
    'A Beta a alpha alpha.0 alpha.2 alpha.10 alpha.beta alpha2 alphabet b-2.1 rc.1'.split(' ');
  const given = [...numbers, ...names].map((word) => `1.2.0-${word}`);
  given.push('1.2.0', '1.2.0+build.7', '1.2.1-0', '1.10.0', '10.0.0', '0.9.9');
  const { rows } = await db.query<{ one: string; other: string; newer: boolean }>(
    `SELECT a AS one, b AS other, ${db.quoted}.version_number(a) > ${db.quoted}.version_number(b) AS newer
       FROM unnest($1::text[]) a, unnest($1::text[]) b`,
    [given],
  );
  expect(rows).toHaveLength(given.length ** 2);
  for (const { one, other, newer } of rows)
    expect(newer, `${one} newer than ${other}`).toBe(isNewer(one, other));
  const { rows: none } = await db.query(
    `SELECT v FROM unnest($1::text[]) v WHERE ${db.quoted}.version_number(v) IS NOT NULL`,
    [['', 'mine', '1.2', '1.2.3.4', '1.2.3rc1', 'v1.2.3', '1.2.3-']],
  );
  expect(none).toEqual([]);
});

describe('a migration', () => {
  const pending = (worksWith: string | null) => [
    { name: 'migrations/0002_next.sql', text: '', checksum: '', down: undefined, worksWith },
  ];

  it('is refused only while living relays are too old for it', async () => {
    const client = await db.connect();
    const check = (oldest: string | null) =>
      refuseWhileOldRelaysRun(client, db.quoted, pending(oldest));
    await db.query(`DELETE FROM ${db.quoted}.relays`);
    await check('99.0.0');
    const insert = `INSERT INTO ${db.quoted}.relays (id, name, version, configuration, destinations, started_at, heartbeat_at, breakers, problems)
      VALUES (gen_random_uuid(), $1, $2, 'c', '{}', now(), clock_timestamp() - $3::interval, '{}', '{}')`;
    await db.query(insert, ['pod-1', '0.2.0', '1 second']);
    await db.query(insert, ['gone', '0.0.1', '16 seconds']);
    await check(null);
    await check('0.2.0');
    await expect(check('0.10.0')).rejects.toMatchObject({
      code: 'migration_refused',
      message:
        'migrations/0002_next.sql works with relays of Waybill 0.10.0 and newer, and older ones are running: pod-1 (0.2.0). Upgrade them to 0.10.0 first, or stop them; one that was killed counts for 15 seconds more',
    });
  });

  it('reports which relays work with it', () => {
    const name = 'migrations/0002_next.sql';
    const text = '-- Adds a column.\n-- Works with relays of Waybill 0.1.0 and newer.\nSELECT 1;\n';
    expect(worksWithOf({ name, text })).toBe('0.1.0');
    const leading = text.replace('0.1.0', '0.3.0-rc.1');
    expect(worksWithOf({ name, text: leading })).toBe('0.3.0-rc.1');
    expect(() => worksWithOf({ name, text: 'SELECT 1;' })).toThrow(
      /0002_next\.sql does not say which relays work with it: add the line "-- Works with/,
    );
  });
});

describe('a function whose arguments change', () => {
  const check = async () => {
    const { rows } = await db.query<{ ok: boolean; detail: string }>(
      `SELECT ok, detail FROM ${db.quoted}.health_check() WHERE name = 'functions'`,
    );
    return rows[0];
  };

  it('stays beside the new one for a version, with the same rights, if its comment says so', async () => {
    // the new one has no defaults: a call that fits the old one fits no other
    await db.query(`CREATE FUNCTION ${db.quoted}.reap(p_max_leases int, p_relay_id uuid) RETURNS int
      LANGUAGE sql SECURITY DEFINER SET search_path = ${db.quoted}, pg_temp AS 'SELECT 42';
      REVOKE ALL ON FUNCTION ${db.quoted}.reap(int, uuid) FROM PUBLIC`);
    onTestFinished(() =>
      db.query(`DROP FUNCTION ${db.quoted}.reap(int, uuid)`).then(() => undefined),
    );
    expect(await check()).toEqual({ ok: false, detail: 'defined twice: reap' });
    await db.query(`COMMENT ON FUNCTION ${db.quoted}.reap(int) IS 'kept for relays of 0.1'`);
    onTestFinished(() =>
      db.query(`COMMENT ON FUNCTION ${db.quoted}.reap(int) IS NULL`).then(() => undefined),
    );
    expect(await check()).toMatchObject({ ok: true });

    const asRelay = (call: string) =>
      as(db, 'test_relay', (client) => client.query(`SELECT ${db.quoted}.${call} AS n`));
    await expect(asRelay(`reap(1, gen_random_uuid())`)).rejects.toThrow(/permission denied/);
    const { rows: granted } = await db.query<{ statement: string }>(
      `SELECT ${db.quoted}.apply_rights() AS statement`,
    );
    expect(granted.map(({ statement }) => statement)).toEqual([
      expect.stringMatching(
        /^GRANT EXECUTE ON FUNCTION .*reap\(p_max_leases integer, p_relay_id uuid\) TO waybill_relay$/,
      ),
    ]);
    expect((await asRelay('reap()')).rows).toEqual([{ n: 0 }]);
    expect((await asRelay('reap(1)')).rows).toEqual([{ n: 0 }]);
    expect((await asRelay('reap(1, gen_random_uuid())')).rows).toEqual([{ n: 42 }]);
    expect((await db.query(`SELECT FROM ${db.quoted}.apply_rights()`)).rowCount).toBe(0);
  });
});
