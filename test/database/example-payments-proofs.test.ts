// The nine proofs in the plan of the payments processor, each with a login and the names of examples/payments.
// test/database/proofs.test.ts has the same for Waybill itself.

import { randomUUID } from 'node:crypto';

import { afterEach, beforeAll, describe, expect, it } from 'vitest';

import { destinationId } from '../support/listeners.js';
import { as } from '../support/logins.js';
import { only } from '../support/only.js';
import { Queue } from '../support/outbox.js';
import {
  attemptsOf,
  claim,
  enqueue,
  inDefault,
  install,
  pendingOf,
  settleAll,
  startExecutor,
} from '../support/payments.js';
import { testDatabase } from '../support/postgres.js';
import { untilCount } from '../support/relay.js';
import { expire, reap, settleDelivered } from '../support/settling.js';
import { waitFor } from '../support/wait.js';

const db = inDefault(testDatabase());
const denied = { code: '42501' };
const refused = { code: 'P0001' };
const everyLogin = [
  'symphony_ingest',
  'symphony_executor',
  'symphony_maintenance',
  'symphony_supervisor',
  'symphony_operator',
  'symphony_readonly',
  'symphony_auditor',
] as const;
const views = ['payment_outbox_pending', 'payment_outbox_attempts', 'participant_outbox_sequences'];
const tables = ['deliveries', 'attempts', 'messages', 'leases', 'dead_letters', 'keys'];
const everything = [
  ...views.map((view) => `payments.${view}`),
  'payments.payment_ledger',
  'payments.earlier_attempts',
  ...tables.map((table) => `outbox.${table}`),
];
const changesOfAttempts = [
  'UPDATE payments.payment_outbox_attempts SET attempt_no = 9',
  'DELETE FROM payments.payment_outbox_attempts',
  'UPDATE outbox.attempts SET tries = 9',
  'DELETE FROM outbox.attempts',
];

beforeAll(() => install(db));
afterEach(() => settleAll(db));

/** A payment that was paid, and so has an attempt. */
async function paid(participant: string): Promise<string> {
  const { outbox_id: id } = await enqueue(db, { participant });
  const token = randomUUID();
  await claim(db, 'card', token);
  await db.query('SELECT outbox.mark_delivered($1, $2)', [token, [id]]);
  return id;
}

describe('rights', () => {
  it('P13 P15 ingest enqueues, and cannot write or read any table, nor take a number', async () => {
    await as(db, 'symphony_ingest', async (client) => {
      expect(await enqueue(db, { participant: 'least' }, client)).toMatchObject({
        sequence_id: '1',
      });
      for (const name of everything)
        for (const statement of [
          `INSERT INTO ${name} DEFAULT VALUES`,
          `DELETE FROM ${name}`,
          `SELECT FROM ${name}`,
        ])
          await expect(client.query(statement), statement).rejects.toMatchObject(denied);
      for (const call of [
        `outbox.number_messages('{}')`,
        `outbox.enqueue('payment.card')`,
        'outbox.reap()',
        `bump_participant_outbox_seq('least')`,
        `payments.send_payment('i', 'least', 'k', 'card', '{}')`,
      ])
        await expect(client.query(`SELECT ${call}`), call).rejects.toMatchObject(denied);
    });
  });

  it('P2 P13 a number is taken only with a payment: no login bumps a sequence', async () => {
    for (const login of everyLogin)
      await as(db, login, (client) =>
        expect(
          client.query(`SELECT payments.bump_participant_outbox_seq('bumped')`),
          login,
        ).rejects.toMatchObject(denied),
      );
    await expect(db.query(`SELECT payments.bump_participant_outbox_seq('bumped')`)).rejects.toThrow(
      'which would be a gap: call enqueue_payment_outbox',
    );
  });

  it('P5 P15 neither the executor nor any other login can change attempts, not even owners and superusers', async () => {
    await paid('kept');
    for (const login of everyLogin)
      await as(db, login, async (client) => {
        for (const change of changesOfAttempts)
          await expect(client.query(change), `${change} by ${login}`).rejects.toMatchObject(denied);
      });
    for (const change of changesOfAttempts)
      await expect(db.query(change), change).rejects.toMatchObject(refused);
    const [ofView = '', , ofTable = ''] = changesOfAttempts;
    for (const [role, change] of [
      ['payments_owner', ofView],
      ['payments_owner', ofTable],
    ]) {
      const client = await db.connect();
      await client.query(`SET ROLE ${role}`);
      await expect(client.query(change ?? ''), role).rejects.toMatchObject(refused);
    }
    expect(await attemptsOf(db, 'kept')).toMatchObject([{ state: 'DISPATCHED', attempt_no: 1 }]);
  });

  it('P5 P15 truncate fails for every role', async () => {
    await enqueue(db, { participant: 'waiting' });
    const guarded = everything.filter((name) => /^outbox\.|ledger|earlier/.test(name));
    for (const login of everyLogin)
      await as(db, login, async (client) => {
        for (const table of guarded)
          await expect(
            client.query(`TRUNCATE ${table}`),
            `${table} by ${login}`,
          ).rejects.toMatchObject(denied);
      });
    for (const table of guarded)
      await expect(db.query(`TRUNCATE ${table} CASCADE`), table).rejects.toMatchObject(refused);
    for (const view of views)
      await expect(db.query(`TRUNCATE payments.${view}`), view).rejects.toMatchObject({
        code: '42809',
      });
    expect(await pendingOf(db, 'waiting')).toHaveLength(1);
  });

  it('P13 P15 the control plane reads the sequences; the auditor reads everything else', async () => {
    await paid('sequenced');
    const codes: Record<string, unknown> = {};
    for (const login of everyLogin)
      for (const name of ['payments.participant_outbox_sequences', 'outbox.keys'])
        codes[`${login} ${name}`] = await as(db, login, async (client) => {
          const { rows } = await client.query(`SELECT * FROM ${name} LIMIT 1`);
          return rows.length;
        }).catch((error: { code: string }) => error.code);
    const may = (login: string) => /supervisor|operator/.test(login);
    expect(codes).toEqual(
      Object.fromEntries(Object.keys(codes).map((asked) => [asked, may(asked) ? 1 : denied.code])),
    );
    for (const login of ['symphony_auditor', 'symphony_readonly'] as const)
      await as(db, login, async (client) => {
        for (const view of ['payment_outbox_attempts', 'supervisor_outbox_status']) {
          const { rows } = await client.query(`SELECT * FROM payments.${view}`);
          expect(rows.length, `${view} by ${login}`).toBeGreaterThan(0);
        }
        await client.query('SELECT * FROM payments.payment_outbox_pending');
      });
  });

  it('P13 functions have an owner that cannot log in and a fixed search_path, and PUBLIC has no right', async () => {
    const { rows } = await db.query(
      `SELECT p.proname AS name, r.rolname AS owner, r.rolcanlogin AS can, p.prosecdef AS definer, p.proconfig AS settings
         FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner WHERE p.pronamespace = 'payments'::regnamespace ORDER BY 1`,
    );
    const control = 'symphony_control';
    const owners: [name: string, owner: string][] = [
      ['bump_participant_outbox_seq', control],
      ['enqueue_payment_outbox', control],
      ['notify_outbox_pending', 'payments_owner'],
      ['refuse_change', 'payments_owner'],
      ['refuse_two_rails', 'payments_owner'],
      ['send_payment', control],
      ['topic_with_two_rails', 'payments_owner'],
    ];
    expect(rows).toEqual(
      owners.map(([name, owner]) => ({
        name,
        owner,
        can: false,
        definer: ['enqueue_payment_outbox', 'refuse_two_rails'].includes(name),
        settings: ['search_path=pg_catalog, pg_temp'],
      })),
    );
    const open = await db.query(
      `SELECT o.name FROM (
         SELECT nspname AS name, nspacl AS acl FROM pg_namespace WHERE nspname = 'payments'
         UNION ALL SELECT relname, relacl FROM pg_class WHERE relnamespace = 'payments'::regnamespace AND relkind IN ('r', 'v')
         UNION ALL SELECT proname, coalesce(proacl, acldefault('f', proowner)) FROM pg_proc WHERE pronamespace = 'payments'::regnamespace) o
        WHERE EXISTS (SELECT FROM aclexplode(o.acl) a WHERE a.grantee = 0)`,
    );
    expect(open.rows).toEqual([]);
  });
});

describe('the record', () => {
  it('P4 P15 an attempt number is not used twice', async () => {
    const id = await paid('numbered');
    await expect(
      db.query('INSERT INTO outbox.attempts SELECT * FROM outbox.attempts WHERE message_id = $1', [
        id,
      ]),
    ).rejects.toMatchObject({ code: '23505' });
  });

  it('P6 P15 a claim is one set-based call: one lease for everything that it claims', async () => {
    await as(db, 'symphony_ingest', async (client) => {
      for (let n = 1; n <= 40; n += 1) await enqueue(db, { participant: `set-${n}` }, client);
    });
    const queue = new Queue(db, 'rail.card', await destinationId(db, 'rail.card'));
    const taken = await as(db, 'symphony_executor', async (client) => {
      await client.query('BEGIN');
      const claimed = await queue.claim({ limit: 30, on: client });
      const { rows } = await client.query(
        `SELECT relname AS name, n_tup_ins::int AS added, n_tup_del::int AS removed FROM pg_stat_xact_user_tables
          WHERE schemaname = 'outbox' AND relname IN ('deliveries', 'leases') ORDER BY 1`,
      );
      await client.query('COMMIT');
      expect(rows).toEqual([
        { name: 'deliveries', added: 0, removed: 30 },
        { name: 'leases', added: 1, removed: 0 },
      ]);
      return claimed;
    });
    expect(await settleDelivered(db, taken)).toMatchObject({ settled: 30 });
  });

  it('P15 retries keep attempt numbers and counts increasing; an operator’s replay continues the numbers', async () => {
    let busy = true;
    await startExecutor(db, () => (busy ? { code: 'RAIL_BUSY' } : {}));
    const { outbox_id: id } = await enqueue(db, { participant: 'monotonic' });
    const last = (state: string) =>
      waitFor(async () => (await attemptsOf(db, 'monotonic')).at(-1)?.state === state, {
        what: state,
      });
    await last('FAILED');
    busy = false;
    await as(db, 'symphony_operator', (client) =>
      client.query('SELECT outbox.retry_dead_letters(ids => ARRAY[$1::uuid])', [id]),
    );
    await last('DISPATCHED');
    const attempts = await attemptsOf(db, 'monotonic');
    expect(attempts.map((row) => [row.attempt_no, row.state])).toEqual([
      [1, 'RETRYABLE'],
      [2, 'RETRYABLE'],
      [3, 'FAILED'],
      [4, 'DISPATCHED'],
    ]);
    const { rows } = await db.query<{ tries: number }>(
      'SELECT tries FROM outbox.attempts WHERE message_id = $1 ORDER BY claim_no',
      [id],
    );
    expect(rows.map((row) => row.tries)).toEqual([1, 2, 3, 1]);
  });

  it('P12 P15 zombies are repaired once, however often and by however many processes', async () => {
    const { outbox_id: id } = await enqueue(db, { participant: 'repaired' });
    await claim(db, 'card', randomUUID());
    const { rows } = await db.query<{ leaseId: string }>(
      'SELECT id AS "leaseId" FROM outbox.leases',
    );
    await expire(db, only(rows));
    const repair = () => as(db, 'symphony_executor', (client) => reap(db, client));
    const repaired = [...(await Promise.all([repair(), repair(), repair()])), await repair()];
    expect(repaired.toSorted((a, b) => a - b)).toEqual([0, 0, 0, 1]);
    expect(await pendingOf(db, 'repaired')).toMatchObject([{ outbox_id: id, sequence_id: '1' }]);
    expect(await attemptsOf(db, 'repaired')).toMatchObject([
      { attempt_no: 1, state: 'ZOMBIE_REQUEUE' },
    ]);
  });
});

describe('wake-up', () => {
  it.each([
    ['the notification', { fallbackPollMs: null }, true],
    ['the poll', { listen: false, fallbackPollMs: 250 }, false],
  ])('P7 P15 %s alone drives payments', async (what, settings, notified) => {
    const sent: string[] = [];
    const executor = await startExecutor(
      db,
      (_rail, { participantId, sequenceId }) => {
        if (participantId === what) sent.push(sequenceId);
        return {};
      },
      settings,
    );
    for (let n = 1; n <= 3; n += 1) {
      await enqueue(db, { participant: what });
      await untilCount(sent, n, 'payments');
    }
    expect(sent).toEqual(['1', '2', '3']);
    expect(executor.of('woken').length > 0).toBe(notified);
  });
});
