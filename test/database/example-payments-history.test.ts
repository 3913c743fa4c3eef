// The history of examples/payments: no role removes it, neither directly nor through partitions, pruning, forgetting,
// retention settings, triggers, floors, operators' actions or views. Roles and functions come from the catalog, so a
// new one has to be tried here, too.

import { randomUUID } from 'node:crypto';

import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { cli, writeConfig } from '../support/cli.js';
import { urlAs } from '../support/logins.js';
import type { PaymentsLogin } from '../support/logins.js';
import {
  historyOf,
  keepHistory,
  lostSince,
  misuses,
  removals,
} from '../support/payments-history.js';
import { claim, enqueue, inDefault, install, paidLongAgo } from '../support/payments.js';
import { testDatabase } from '../support/postgres.js';

const db = inDefault(testDatabase());
/** A login that is a member of nothing: it has the rights of PUBLIC. */
const stranger: PaymentsLogin = `symphony_stranger_${randomUUID().slice(0, 8)}`;
const waybills = ['producer', 'consumer', 'relay', 'maintenance', 'operator', 'control', 'auditor'];
const logins: PaymentsLogin[] = [
  'symphony_ingest',
  'symphony_executor',
  'symphony_maintenance',
  'symphony_supervisor',
  'symphony_operator',
  'symphony_readonly',
  'symphony_auditor',
  stranger,
];
const groups = [
  'symphony_control',
  ...[...waybills, 'tenant_reader'].map((role) => `payments_${role}`),
];
const everyRole = [...logins, ...groups];
/** Each role with its name in the title of a test. */
const titled = everyRole.map((role) => [role === stranger ? 'PUBLIC' : role, role] as const);
let before: string[] = [];
let calls: Record<string, string[]> = {};

beforeAll(async () => {
  await install(db);
  await db.query(`CREATE ROLE ${stranger} LOGIN`);
  // a payment of each kind: paid long ago, paid before the move to Waybill, paid now, failed, waiting
  const id = await paidLongAgo(db, 'long-ago', 'long-ago', 400);
  await db.query(`WITH moved AS (
      INSERT INTO payments.payment_ledger (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload)
      VALUES (gen_random_uuid(), 'moved', 'moved', 1, 'k1', 'card', '{}') RETURNING outbox_id)
    INSERT INTO payments.earlier_attempts (attempt_id, outbox_id, attempt_no, state, created_at)
    SELECT gen_random_uuid(), outbox_id, 1, 'DISPATCHED', now() FROM moved`);
  for (const [participant, ending] of [
    ['paid', 'outbox.ack($1, message_id)'],
    ['failed', 'outbox.nack($1, message_id, terminal => true)'],
  ] as const) {
    await enqueue(db, { participant, rail: 'sepa' });
    const token = randomUUID();
    await claim(db, 'sepa', token);
    await db.query(`SELECT ${ending} FROM outbox.active_claims`, [token]);
  }
  for (const rail of ['sepa', 'card']) await enqueue(db, { participant: 'failed', rail });
  const { rows } = await db.query<{ name: string }>(
    `SELECT c.relname AS name FROM pg_class c
      WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r' AND c.relname ~ '_[0-9]{8}$'
        AND right(c.relname, 8) <= to_char(now(), 'YYYYMMDD') ORDER BY 1 DESC`,
  );
  calls = misuses(
    id,
    rows.map(({ name }) => name),
  );
  before = await historyOf(db);
});
afterAll(async () => {
  const client = new pg.Client({ connectionString: db.url });
  await client.connect();
  await client.query(`DROP ROLE ${stranger}`);
  await client.end();
});

it('P13 P16 the roles are these, and none of them can become the owner of the history', async () => {
  const { rows } = await db.query<{ name: string; rises: boolean }>(
    `SELECT rolname AS name, pg_has_role(oid, 'payments_owner', 'MEMBER') OR rolsuper OR rolbypassrls AS rises
       FROM pg_roles WHERE rolname ~ '^(symphony|payments)_' AND rolname !~ 'stranger' AND rolname <> 'payments_owner'`,
  );
  const named = [...logins.filter((name) => name !== stranger), ...groups];
  expect(rows.map(({ name }) => name).toSorted()).toEqual(named.toSorted());
  expect(rows.filter(({ rises }) => rises)).toEqual([]);
});

describe('directly', () => {
  // 42501: no right. PostgreSQL checks before the rights whether a view (55000) or a column (428C9) can be changed.
  const refusals = ['42501', '55000', '428C9'];

  it.each(titled)('P5 P16 %s is refused every statement', async (_title, role) => {
    const client = await connectAs(role);
    const statements = await removals(db);
    expect(statements.length).toBeGreaterThan(200);
    const done: string[] = [];
    for (const statement of statements) {
      const code = await client.query(statement).then(
        () => 'done',
        (error: pg.DatabaseError) => error.code ?? '',
      );
      if (!refusals.includes(code)) done.push(`${code} ${statement}`);
    }
    await client.end();
    expect(done).toEqual([]);
    expect(await lostSince(before, db)).toEqual([]);
  });
});

describe('through functions', () => {
  it('P16 every function that a role may execute is tried below, or known to change no history', async () => {
    const { rows } = await db.query<{ name: string }>(
      // a STABLE or IMMUTABLE function cannot change anything
      `SELECT DISTINCT p.proname AS name FROM pg_proc p, unnest($1::text[]) r(name)
        WHERE p.pronamespace IN ('outbox'::regnamespace, 'payments'::regnamespace) AND p.provolatile = 'v'
          AND has_function_privilege(r.name, p.oid, 'EXECUTE')
          AND has_schema_privilege(r.name, p.pronamespace, 'USAGE') ORDER BY 1`,
      [everyRole],
    );
    const executable = rows.map(({ name }) => name);
    expect([...Object.keys(calls), ...keepHistory].toSorted()).toEqual(executable);
  });

  it.each(titled)('P16 %s calls them all, and history stays', async (_title, role) => {
    const { rows } = await db.query<{ name: string }>(
      `SELECT DISTINCT proname AS name FROM pg_proc WHERE pronamespace = 'outbox'::regnamespace
          AND has_function_privilege($1, oid, 'EXECUTE')`,
      [role],
    );
    const allowed = new Set(rows.map(({ name }) => name));
    const all = Object.entries(calls).filter(([name]) => allowed.has(name));
    // for a login each function by itself; the roles that it is a member of have the same functions
    for (const trial of groups.includes(role) ? [all] : all.map((each) => [each])) {
      const { lost, errors } = await inTrial(role, trial);
      expect([...lost, ...errors.filter((error) => error.startsWith('42'))]).toEqual([]);
    }
  });

  it('P16 the same calls lose history where the guards are missing, so these tests can fail', async () => {
    const { lost } = await inTrial(
      'symphony_maintenance',
      ['remove_partition', 'forget_keys'].map((name) => [name, calls[name] ?? []]),
      'DELETE FROM outbox.retention_floors WHERE namespace IS NOT NULL',
    );
    expect(lost.map((row) => row.replace(/ .*/s, '')).toSorted()).toEqual([
      'attempt',
      'floor',
      'floor',
      'number',
      'shown',
      'trigger',
    ]);
  });
});

describe('through retention settings', () => {
  const shortest = `{
    destinations: { other: handler(() => {}) },
    retention: { messagesDays: 1, attemptsDays: 1, deadLettersDays: 1, dedupeKeysDays: 30, keysDays: 30, pauseMs: 0 },
  }`;

  it.each([
    ['symphony_maintenance', 0],
    ['symphony_executor', 1],
  ] as const)('P16 %s runs waybill maintain, and history stays', async (login, expected) => {
    const { code, stderr } = await cli(['maintain', '--config', writeConfig(shortest)], {
      environment: { DATABASE_URL: urlAs(db.url, login) },
    });
    expect(`${code} ${stderr}`).toMatch(new RegExp(`^${expected} `));
    expect(await lostSince(before, db)).toEqual([]);
  });

  it('P11 P16 a failed payment of long ago that blocks nothing is not discarded either', async () => {
    const client = await db.connect();
    await client.query(`BEGIN; UPDATE outbox.dead_letters SET dead_at = now() - interval '10 years';
      UPDATE outbox.lanes SET blocked_by = NULL;
      SET LOCAL SESSION AUTHORIZATION symphony_maintenance`);
    const { rows } = await client.query(`SELECT outbox.prune_dead_letters('1 day') AS discarded`);
    await client.query('ROLLBACK');
    await client.end();
    expect(rows).toEqual([{ discarded: 0 }]);
  });

  it('P16 the owner runs it, and history stays', async () => {
    const { code } = await cli(['maintain', '--config', writeConfig(shortest)], {
      environment: { DATABASE_URL: db.url },
    });
    expect(code).toBe(0);
    expect(await lostSince(before, db)).toEqual([]);
  });
});

/** A login connects; a role that cannot log in is taken on by a superuser's session. */
async function connectAs(role: string): Promise<pg.Client> {
  const login = logins.find((name) => name === role);
  const client = new pg.Client({ connectionString: login ? urlAs(db.url, login) : db.url });
  await client.connect();
  if (login === undefined) await client.query(`SET SESSION AUTHORIZATION ${role}`);
  return client;
}

/** Calls functions as the role, in a transaction that is rolled back, and tells what was lost before that. */
async function inTrial(
  role: string,
  functions: readonly (readonly [name: string, calls: readonly string[]])[],
  first = 'SELECT 1',
): Promise<{ lost: string[]; errors: string[] }> {
  const client = await db.connect();
  const errors: string[] = [];
  await client.query(`BEGIN; ${first}; SET LOCAL SESSION AUTHORIZATION ${role}`);
  for (const [name, all] of functions)
    for (const given of all) {
      await client.query('SAVEPOINT call');
      await client
        .query(`SELECT outbox.${name}(${given}\n)`.replace('--\n)', ''))
        .catch(async (error: pg.DatabaseError) => {
          errors.push(`${error.code} ${name}(${given}): ${error.message}`);
          await client.query('ROLLBACK TO call');
        });
    }
  await client.query('RESET SESSION AUTHORIZATION');
  const lost = await lostSince(before, client);
  await client.query('ROLLBACK');
  await client.end();
  return { lost, errors };
}
