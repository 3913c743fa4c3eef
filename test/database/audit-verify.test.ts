// Every change to sealed rows, even by a superuser without triggers, is found and named. Once it is undone, everything
// verifies again.

import { describe, expect, it } from 'vitest';

import { readHeads } from '../../src/features/audit/database.js';
import { verifySeals } from '../../src/features/audit/verify.js';
import type { Head } from '../../src/features/audit/chain.js';
import { deliver, readSealRows, sealNow, tamper, verify } from '../support/audit.js';
import type { Login } from '../support/logins.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';

const db = testDatabase();
const attempts = () => `${db.quoted}.attempts`;

/** Copies the rows, tampers, verifies, and restores the copy. */
async function findings(...statements: string[]) {
  const tables = ['attempts', 'operator_actions', 'seals', 'seal_leaves', 'seal_exports'];
  for (const table of tables)
    await db.query(`CREATE TABLE public.kept_${table} AS TABLE ${db.quoted}.${table}`);
  await tamper(db, ...statements);
  const report = await verify(db);
  for (const table of tables) {
    await tamper(
      db,
      `DELETE FROM ${db.quoted}.${table}`,
      `INSERT INTO ${db.quoted}.${table} OVERRIDING SYSTEM VALUE TABLE public.kept_${table}`,
      `DROP TABLE public.kept_${table}`,
    );
  }
  expect(await verify(db), 'restored').toMatchObject({ intact: true });
  expect(report.intact).toBe(report.findings.length === 0);
  return report.findings;
}

async function sealed(count = 12): Promise<string[]> {
  const queue = await makeQueue(db);
  const ids = await deliver(queue, count);
  await db.query(`SELECT ${db.quoted}.set_paused($1, true, 'ann', 'noise')`, [queue.name]);
  await sealNow(db, 5);
  expect(await verify(db)).toMatchObject({ intact: true });
  return ids;
}

async function heads(): Promise<Head[]> {
  return readHeads(openDatabase(db, 'test_auditor'), 0, 10_000);
}

describe('rows', () => {
  it('W8 an edited attempt is found and named, whichever column it is', async () => {
    const [id = ''] = await sealed();
    const edits = [
      "state = 'failed'",
      "ended_at = ended_at + interval '1 microsecond'",
      "claimed_at = claimed_at - interval '1 microsecond'",
      'relay_id = gen_random_uuid()',
      'tries = tries + 1',
      'latency_ms = coalesce(latency_ms, 0) + 1',
      "error_code = ''",
      "remote_code = '200'",
      "error_message = 'x'",
      "reference = 'x'",
      "response = 'x'",
    ];
    for (const edit of edits) {
      const found = await findings(`UPDATE ${attempts()} SET ${edit} WHERE message_id = '${id}'`);
      expect(found, edit).toMatchObject([{ kind: 'edited' }]);
      expect(only(found).rows, edit).toEqual([expect.stringContaining(`message ${id}`)]);
    }
    const { rows } = await db.query<{ columns: number }>(
      `SELECT count(*)::int AS columns FROM pg_attribute WHERE attrelid = '${attempts()}'::regclass AND attnum > 0 AND NOT attisdropped`,
    );
    expect(only(rows).columns, 'and the three of the key').toBe(edits.length + 3);
  });

  it('W8 values swapped between columns are found as an edit', async () => {
    const [id = ''] = await sealed();
    await tamper(db, `UPDATE ${attempts()} SET error_code = NULL WHERE message_id = '${id}'`);
    const found = await findings(
      `UPDATE ${attempts()} SET error_message = reference, reference = 'ab' WHERE message_id = '${id}'`,
      `UPDATE ${attempts()} SET error_message = 'a', reference = 'b' WHERE message_id = '${id}'`,
    );
    expect(found).toMatchObject([{ kind: 'edited' }]);
  });

  it('W8 a deleted attempt, or a whole deleted seal range, is found', async () => {
    const [id = ''] = await sealed();
    const found = await findings(`DELETE FROM ${attempts()} WHERE message_id = '${id}'`);
    expect(found).toMatchObject([{ kind: 'deleted', rows: [] }]);
    expect(only(found).sentence).toMatch(/^1 of its rows are gone: it had \d+ rows and has \d+$/);
    const { from_id = '', number } =
      (await readSealRows(db)).findLast((seal) => seal.row_count === 5) ?? {};
    const gone = await findings(
      `DELETE FROM ${attempts()} a USING ${db.quoted}.seals s WHERE s.from_id = '${from_id}' AND a.message_id >= s.from_id AND a.message_id < s.to_id`,
    );
    expect(gone).toMatchObject([
      { kind: 'deleted', seal: number, sentence: 'it had 5 rows and has 0' },
    ]);
  });

  it('W8 an attempt that is added to a sealed range is found and named', async () => {
    const [id = ''] = await sealed();
    const found = await findings(
      `INSERT INTO ${attempts()} SELECT (a).* FROM (SELECT jsonb_populate_record(a, '{"claim_no": 7}') AS a FROM ${attempts()} a WHERE message_id = '${id}') x`,
    );
    expect(found).toMatchObject([{ kind: 'added' }]);
    expect(only(found).rows).toEqual([expect.stringMatching(new RegExp(`${id}.*claim 7$`))]);
  });

  it('W8 an attempt with a changed id is reported as deleted and as added', async () => {
    const [id = ''] = await sealed();
    const found = await findings(
      `UPDATE ${attempts()} SET message_id = ${db.quoted}.id_at(now() - interval '1 hour') WHERE message_id = '${id}'`,
    );
    expect(found.map(({ kind }) => kind)).toContain('deleted');
  });

  it('W8 an edited, deleted or added action of an operator is found', async () => {
    await sealed();
    const table = `${db.quoted}.operator_actions`;
    const last = `id = (SELECT max(id) FROM ${table})`;
    expect(await findings(`UPDATE ${table} SET actor = 'bob' WHERE ${last}`)).toMatchObject([
      { kind: 'edited' },
    ]);
    expect(await findings(`UPDATE ${table} SET database_user = 'bob' WHERE ${last}`)).toMatchObject(
      [{ kind: 'edited' }],
    );
    expect(
      await findings(`UPDATE ${table} SET subject = subject || '{"ids": []}' WHERE ${last}`),
    ).toMatchObject([{ kind: 'edited' }]);
    expect(await findings(`DELETE FROM ${table} WHERE ${last}`)).toMatchObject([
      { kind: 'deleted' },
    ]);
    const added = await findings(
      `INSERT INTO ${table} (at, actor, action, subject, count) SELECT at, 'bob', 'pause', '{}', 1 FROM ${table} WHERE ${last}`,
    );
    expect(added).toMatchObject([{ kind: 'added', rows: [expect.stringMatching(/^action \d+$/)] }]);
  });
});

describe('the chain', () => {
  it('W8 a seal that is edited, removed or exchanged breaks the chain', async () => {
    await sealed();
    const seals = `${db.quoted}.seals`;
    const { number = 0 } = (await readSealRows(db)).at(-2) ?? {};
    for (const edit of [
      'row_count = row_count + 1',
      "sealed_at = sealed_at + interval '1 us'",
      'details = \'{"day": 1}\'',
      "until = until + interval '1 us'",
    ]) {
      const found = await findings(`UPDATE ${seals} SET ${edit} WHERE number = ${number}`);
      expect(found, edit).toContainEqual(
        expect.objectContaining({ kind: 'chain broken', seal: number }),
      );
    }
    const gone = await findings(`DELETE FROM ${seals} WHERE number = ${number}`);
    expect(gone).toMatchObject([{ kind: 'chain broken', seal: number + 1 }]);
    expect(only(gone).sentence).toContain('those between are gone');
    const first = await findings(`DELETE FROM ${seals} WHERE number = 1`);
    expect(first).toMatchObject([{ kind: 'chain broken', seal: 2 }]);
  });

  it('W8 a chain that was computed anew agrees with itself, but not with the exported heads', async () => {
    const [id = ''] = await sealed();
    const kept = await heads();
    expect(await verify(db, { heads: kept })).toMatchObject({
      intact: true,
      provenTo: kept.length,
    });
    await tamper(
      db,
      `UPDATE ${attempts()} SET state = 'failed' WHERE message_id = '${id}'`,
      `DELETE FROM ${db.quoted}.seals`,
      `DELETE FROM ${db.quoted}.seal_leaves`,
      `DELETE FROM ${db.quoted}.seal_days`,
    );
    await sealNow(db, 5);
    expect(await verify(db), 'without the heads it cannot be noticed').toMatchObject({
      intact: true,
    });
    const report = await verify(db, { heads: kept });
    expect(report).toMatchObject({ intact: false });
    expect(report.findings).toContainEqual(
      expect.objectContaining({
        kind: 'chain broken',
        sentence: 'its head is not the one that was exported',
      }),
    );
  });

  it('W8 a chain that was cut off at its end does not match the exported heads, even after it has grown again', async () => {
    await sealed();
    const kept = await heads();
    const last = kept.at(-1)?.number ?? 0;
    await tamper(
      db,
      `DELETE FROM ${db.quoted}.seals WHERE number = ${last}`,
      `DELETE FROM ${db.quoted}.seal_leaves WHERE number = ${last}`,
    );
    expect((await verify(db)).findings).toEqual([]);
    expect((await verify(db, { heads: kept })).findings).toMatchObject([
      {
        kind: 'chain broken',
        seal: last,
        sentence: `its head was exported, and the chain ends at seal ${last - 1}`,
      },
    ]);
    await tamper(db, `DELETE FROM ${db.quoted}.seal_days`);
    await tamper(db, `DELETE FROM ${db.quoted}.seals`, `DELETE FROM ${db.quoted}.seal_leaves`);
    await sealNow(db, 5);
    const grown = await heads();
    const both = await verify(db, { heads: [...kept, ...grown] });
    expect(both.findings).toContainEqual(
      expect.objectContaining({ sentence: 'two different heads were exported for it' }),
    );
  });

  it('W8 heads that are missing from a file to which they were exported are reported', async () => {
    await sealed();
    const kept = await heads();
    const last = kept.length;
    expect(await verify(db, { heads: kept.slice(0, -2) }), 'an old copy').toMatchObject({
      intact: true,
      provenTo: last - 2,
    });
    await db.query(`SELECT ${db.quoted}.note_export('file here:/heads', $1)`, [last]);
    expect((await verify(db, { heads: kept.slice(0, -2) })).findings).toMatchObject([
      {
        kind: 'head missing',
        seal: last - 1,
        sentence: `heads ${last - 1} to ${last} are missing, though exported`,
      },
    ]);
    expect((await verify(db, { heads: kept.toSpliced(1, 1) })).findings).toMatchObject([
      { kind: 'head missing', seal: 2 },
    ]);
    expect(await verify(db, { heads: kept })).toMatchObject({ intact: true });
  });

  it('W8 an expiry that was recorded too early does not excuse missing rows', async () => {
    const ids = await sealed();
    const found = await findings(
      `SELECT ${db.quoted}.append_seal('expired', from_id, to_id, NULL, NULL, row_count, sha256(''), jsonb_build_object('day', (now() AT TIME ZONE 'UTC')::date, 'keptDays', 30), '')
         FROM ${db.quoted}.seals WHERE kind = 'attempts' AND '${ids[0]}' >= from_id AND '${ids[0]}' < to_id`,
      `DELETE FROM ${attempts()} a USING ${db.quoted}.seals s WHERE s.kind = 'expired' AND a.message_id >= s.from_id AND a.message_id < s.to_id`,
    );
    expect(found).toMatchObject([
      { kind: 'deleted', sentence: 'removed before the 30 days of their retention were over' },
    ]);
  });

  it('W8 the digests are the same in every version of PostgreSQL', async () => {
    const { rows } = await db.query<{ attempt: string; action: string }>(
      `SELECT encode(${db.quoted}.attempt_digest(jsonb_populate_record(NULL::${attempts()}, $1)), 'hex') AS attempt,
              encode(${db.quoted}.action_digest(jsonb_populate_record(NULL::${db.quoted}.operator_actions, $2)), 'hex') AS action`,
      [
        {
          message_id: '01a1e04f-fc9b-7bac-8d7c-6774ee519e2c',
          destination_id: 7,
          claim_no: 2,
          tries: 1,
          state: 'dispatched',
          claimed_at: '2026-02-28T23:59:59.000001+05:30',
          ended_at: '2026-03-01T00:00:00Z',
          latency_ms: -1,
          error_code: '',
          error_message: 'a "quote", a \\ backslash,\n\ttabs, ünïcödé \u{1F4E6} and \u0001',
          response: '[null]',
        },
        {
          id: 9007199254740993n.toString(),
          at: '2026-03-01T00:00:00.5Z',
          actor: 'ann',
          action: 'pause',
          subject: { b: 1.5e300, a: [true, null, 'x'], c: 1e-7 },
          count: 3,
          database_user: 'app',
        },
      ],
    );
    expect(only(rows)).toEqual({
      attempt: '99d6f04fe18ea3e1de4acf090b133ec844a22a4fc1717360bd018893920b95a0',
      action: '9686336c002ac97550a49578e63e790275ba02c27bd9dd9ac0ce5d8faedf5342',
    });
  });

  it('W8 the digests do not depend on the settings of a session', async () => {
    const ids = await sealed(1);
    const digests = new Set<string>();
    for (const settings of [
      "SET timezone = 'UTC'",
      "SET timezone = 'Asia/Kolkata'; SET datestyle = 'SQL, DMY'; SET bytea_output = 'escape'; SET extra_float_digits = -15; SET intervalstyle = 'iso_8601'; SET standard_conforming_strings = off; SET client_encoding = 'LATIN1'; SET quote_all_identifiers = on",
    ]) {
      const client = await db.connect();
      await client.query(settings);
      const { rows } = await client.query<{ digest: string }>(
        `SELECT encode(${db.quoted}.attempt_digest(a), 'base64') || (SELECT encode(${db.quoted}.action_digest(o), 'base64')
           FROM ${db.quoted}.operator_actions o ORDER BY id LIMIT 1) AS digest FROM ${attempts()} a WHERE message_id = $1`,
        [ids[0]],
      );
      digests.add(only(rows).digest);
    }
    expect(digests.size).toBe(1);
  });
});

describe('a verifier', () => {
  it.each(['test_auditor', 'test_control', undefined] as const)(
    'W8 P13 sees every row as %s',
    async (login) => {
      await sealed();
      expect(await verifySeals(openDatabase(db, login))).toMatchObject({ intact: true });
    },
  );

  it('W8 P13 sees every row as a member of the owner', async () => {
    await sealed();
    await db.query('GRANT waybill_owner TO test_operator');
    try {
      expect(await verifySeals(openDatabase(db, 'test_operator'))).toMatchObject({ intact: true });
    } finally {
      await db.query('REVOKE waybill_owner FROM test_operator');
    }
  });

  it.each(['test_relay', 'test_operator', 'test_tenant_reader'] as const)(
    'W8 P13 is refused as %s, from whom rows are hidden',
    async (login) => {
      await expect(verifySeals(openDatabase(db, login))).rejects.toMatchObject({
        code: 'rows_hidden',
        message: expect.stringContaining(`from ${login}`) as string,
      });
    },
  );

  it('W8 P13 is refused if it can read only by a grant, or if a policy hides some rows', async () => {
    await sealed();
    const look = (login: Login) => verifySeals(openDatabase(db, login));
    const everything = `ALL TABLES IN SCHEMA ${db.quoted}`;
    await db.query(`GRANT USAGE ON SCHEMA ${db.quoted} TO test_producer`);
    await db.query(`GRANT SELECT ON ${everything} TO test_producer`);
    await expect(look('test_producer')).rejects.toMatchObject({ code: 'rows_hidden' });
    await db.query(`REVOKE SELECT ON ${everything} FROM test_producer`);
    await db.query(
      `CREATE POLICY fewer ON ${db.quoted}.operator_actions AS RESTRICTIVE FOR SELECT TO PUBLIC USING (actor <> 'ann')`,
    );
    await expect(look('test_auditor')).rejects.toThrow(
      /hides rows of operator_actions from test_auditor.*role auditor, control or owner/,
    );
    await db.query(`DROP POLICY fewer ON ${db.quoted}.operator_actions`);
    expect(await look('test_auditor')).toMatchObject({ intact: true });
  });
});
