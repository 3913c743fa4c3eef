// The doctor's findings about the schema: another version, damage, or wrong rights. Each is really caused, and fixed by
// the printed remedy.

import { randomUUID } from 'node:crypto';

import { afterEach, describe, expect, it } from 'vitest';

import { version } from '../../src/core/version.js';
import { expectWell, follow, look } from '../support/doctor.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

const repairs: string[] = [];
afterEach(async () => {
  for (const repair of repairs.splice(0)) await db.query(repair);
});

describe('versions', () => {
  it('a schema that lacks a statement of this version is found', async () => {
    await expectWell(db, 'schema_version');
    await db.query(
      `UPDATE ${db.quoted}.applied_files SET checksum = 'older' WHERE file = 'functions/claim.sql'`,
    );
    const finding = await look(db, 'schema_version');
    expect(finding).toMatchObject({ state: 'warning' });
    expect(finding.found).toMatch(/the schema lacks 1 file of Waybill .*: functions\/claim\.sql$/);
    await follow(db, finding);
    await expectWell(db, 'schema_version');
  });

  it.each([
    ['a newer version', `'functions/retry.sql', 'other', '99.0.0', NULL`, 'warning'],
    [
      'a newer version that works with this one',
      `'migrations/9999_later.sql', 'other', '99.0.0', '${version}'`,
      'warning',
    ],
    [
      'a newer version that does not',
      `'migrations/9999_later.sql', 'other', '99.0.0', '99.0.0'`,
      'error',
    ],
    [
      'a migration that is not known here',
      `'migrations/9999_later.sql', 'other', '${version}', NULL`,
      'error',
    ],
  ])('a schema of %s is found', async (_what, values, state) => {
    await expectWell(db, 'schema_version');
    const { rows } = await db.query(
      `SELECT * FROM ${db.quoted}.applied_files WHERE file = 'functions/retry.sql'`,
    );
    await db.query(
      `INSERT INTO ${db.quoted}.applied_files (file, checksum, version, works_with) VALUES (${values})
       ON CONFLICT (file) DO UPDATE SET version = excluded.version`,
    );
    const finding = await look(db, 'schema_version');
    expect(finding).toMatchObject({ state });
    expect(finding.paste).toEqual([expect.stringMatching(/^npm install waybill@\d/)]);
    await db.query(`DELETE FROM ${db.quoted}.applied_files WHERE file LIKE 'migrations/9%'`);
    await db.query(`UPDATE ${db.quoted}.applied_files SET version = $1`, [rows[0]?.['version']]);
    await expectWell(db, 'schema_version');
  });
});

describe('objects', () => {
  it('a missing function is found, and created again', async () => {
    await expectWell(db, 'objects_missing');
    await db.query(`DROP FUNCTION ${db.quoted}.retry_now`);
    const finding = await look(db, 'objects_missing');
    expect(finding).toMatchObject({ state: 'error', found: 'missing: function retry_now' });
    await follow(db, finding);
    await expectWell(db, 'objects_missing');
  });

  it('a missing view is found, and created again', async () => {
    await db.query(`DROP VIEW ${db.quoted}.attempt_log`);
    const finding = await look(db, 'objects_missing');
    expect(finding).toMatchObject({ state: 'error', found: 'missing: view attempt_log' });
    await follow(db, finding);
    await expectWell(db, 'objects_missing');
  });

  it('a missing table is found; the checks that need it are skipped, and the others continue', async () => {
    const rename = (from: string, to: string) => `ALTER TABLE ${db.quoted}.${from} RENAME TO ${to}`;
    await db.query(rename('leases', 'lost'));
    repairs.push(rename('lost', 'leases'));
    expect(await look(db, 'objects_missing')).toMatchObject({
      state: 'error',
      found: 'missing: table leases',
    });
    expect(await look(db, 'leases_expired')).toMatchObject({
      state: 'skipped',
      found: expect.stringMatching(/leases" does not exist/) as string,
    });
    await expectWell(db, 'watches_broken');
  });

  it('an object of another version is not expected', async () => {
    await db.query(`DROP FUNCTION ${db.quoted}.retry_now`);
    await db.query(
      `UPDATE ${db.quoted}.applied_files SET checksum = 'older' WHERE file = 'functions/deliveries.sql'`,
    );
    await expectWell(db, 'objects_missing');
    await follow(db, await look(db, 'schema_version'));
    const { rows } = await db.query(
      `SELECT FROM pg_proc WHERE pronamespace = $1::text::regnamespace AND proname = 'retry_now'`,
      [db.quoted],
    );
    expect(rows).toHaveLength(1);
  });
});

describe('rights', () => {
  it('a right of PUBLIC is found, and revoked', async () => {
    await expectWell(db, 'public_rights');
    await db.query(`GRANT SELECT ON ${db.quoted}.messages TO PUBLIC`);
    const finding = await look(db, 'public_rights');
    expect(finding).toMatchObject({ state: 'error' });
    expect(finding.found).toMatch(/^PUBLIC has rights on messages/);
    await follow(db, finding);
    await expectWell(db, 'public_rights');
  });

  it('a definer function without a fixed search_path is found, and fixed', async () => {
    await expectWell(db, 'functions_unsafe');
    await db.query(`ALTER FUNCTION ${db.quoted}.notification_channel() SECURITY DEFINER RESET ALL`);
    const finding = await look(db, 'functions_unsafe');
    expect(finding).toMatchObject({
      state: 'error',
      found: 'no fixed search_path that ends in pg_temp: notification_channel',
    });
    await follow(db, finding);
    await expectWell(db, 'functions_unsafe');
  });

  it('a function that exists twice is found', async () => {
    await db.query(
      `CREATE FUNCTION ${db.quoted}.reap(text) RETURNS int LANGUAGE sql AS 'SELECT 1';
       REVOKE ALL ON FUNCTION ${db.quoted}.reap(text) FROM PUBLIC`,
    );
    repairs.push(`DROP FUNCTION ${db.quoted}.reap(text)`);
    expect(await look(db, 'functions_unsafe')).toMatchObject({
      state: 'error',
      found: 'defined twice: reap',
    });
  });

  it('a role that may claim and not settle, or may not use the schema, is found', async () => {
    await expectWell(db, 'grants_missing');
    const role = `Relay ${randomUUID().slice(0, 8)}`;
    await db.query(`CREATE ROLE "${role}"`);
    repairs.push(`DROP OWNED BY "${role}"; DROP ROLE "${role}"`);
    await db.query(`GRANT EXECUTE ON FUNCTION ${db.quoted}.claim_batch TO "${role}"`);
    const finding = await look(db, 'grants_missing');
    expect(finding).toMatchObject({ state: 'warning' });
    expect(finding.found).toMatch(
      new RegExp(`^${role} lacks USAGE on the schema; .*deliver_leases`),
    );
    await follow(db, finding);
    await expectWell(db, 'grants_missing');
    await db.query(`REVOKE EXECUTE ON FUNCTION ${db.quoted}.settle FROM "${role}"`);
    expect((await look(db, 'grants_missing')).found).toMatch(/ lacks \S.*\.settle$/);
    await db.query(`GRANT EXECUTE ON FUNCTION ${db.quoted}.settle TO "${role}"`);
    // without it no relay can claim
    await db.query(`REVOKE EXECUTE ON FUNCTION ${db.quoted}.lacking_files FROM "${role}"`);
    expect((await look(db, 'grants_missing')).found).toMatch(/ lacks \S.*\.lacking_files$/);
  });

  it('a role that may only enqueue lacks nothing', async () => {
    const role = `producer_${randomUUID().slice(0, 8)}`;
    await db.query(`CREATE ROLE ${role}`);
    repairs.push(`DROP OWNED BY ${role}; DROP ROLE ${role}`);
    await db.query(
      `GRANT USAGE ON SCHEMA ${db.quoted} TO ${role}; GRANT EXECUTE ON FUNCTION ${db.quoted}.enqueue TO ${role}`,
    );
    await expectWell(db, 'grants_missing');
  });
});
