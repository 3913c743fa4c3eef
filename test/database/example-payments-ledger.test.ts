// The ledger of examples/payments: it decides what is a repeat, answers repeats for ever, and tells what each attempt
// paid. Its constraints hold in the database, whatever calls it.

import { randomUUID } from 'node:crypto';

import { afterEach, beforeAll, describe, expect, it } from 'vitest';

import { prune, resolveRetention } from '../../src/relay/upkeep/retention.js';
import { as } from '../support/logins.js';
import { only } from '../support/only.js';
import {
  attemptsOf,
  claim,
  enqueue,
  executorOf,
  inDefault,
  install,
  paidLongAgo,
  payloads,
  pendingOf,
  settleAll,
} from '../support/payments.js';
import type { PendingRow } from '../support/payments.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = inDefault(testDatabase());

beforeAll(() => install(db));
afterEach(() => settleAll(db));

async function pay(row: PendingRow): Promise<void> {
  const token = randomUUID();
  await claim(db, row.rail_type, token);
  await db.query('SELECT outbox.mark_delivered($1, $2)', [token, [row.outbox_id]]);
}

type PlanNode = {
  'Relation Name'?: string;
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  Plans?: PlanNode[];
};
const nodesOf = (node: PlanNode): PlanNode[] => [node, ...(node.Plans ?? []).flatMap(nodesOf)];

const notPending = { attempt_count: null, next_attempt_at: null };

describe('a repeat', () => {
  it('P3 P6 P18 returns the first row: at once, on another rail, while it is in flight and after it has ended', async () => {
    const instruction = 'INV/2026-0042';
    const repeat = (rail = 'card') => enqueue(db, { instruction, participant: 'repeated', rail });
    await as(db, 'symphony_ingest', async (client) => {
      await client.query('BEGIN');
      await enqueue(db, { instruction, participant: 'repeated' }, client);
      await client.query('ROLLBACK');
    });
    const rows = await Promise.all([
      repeat(),
      repeat('sepa'),
      repeat(),
      repeat('mobile'),
      repeat(),
    ]);
    const first = only(await pendingOf(db, 'repeated'));
    expect(first).toMatchObject({
      sequence_id: '1',
      attempt_count: 0,
      instruction_id: instruction,
    });
    expect(rows).toEqual(rows.map(() => first));
    const due = await db.query(
      `SELECT created_at <= next_attempt_at AS due FROM payments.payment_outbox_pending WHERE participant_id = 'repeated'`,
    );
    expect(due.rows, 'due when it was created, not before').toEqual([{ due: true }]);
    const token = randomUUID();
    await claim(db, first.rail_type, token);
    expect(await repeat()).toEqual({ ...first, ...notPending });
    await db.query('SELECT outbox.mark_delivered($1, $2)', [token, [first.outbox_id]]);
    expect(await repeat('sepa')).toEqual({ ...first, ...notPending });
    expect(await attemptsOf(db, 'repeated')).toMatchObject([{ state: 'DISPATCHED' }]);
    const other = await enqueue(db, { instruction, participant: 'repeated', key: 'k2' });
    expect(other.sequence_id).toBe('2');
  });

  it.each([
    ['commits', 'COMMIT'],
    ['rolls back', 'ROLLBACK'],
  ])(
    'P3 P18 waits for the first one, even with another rail and participant, and the first %s',
    async (_what, end) => {
      const instruction = randomUUID();
      const winner = `winner-${end}`;
      const loser = `loser-${end}`;
      const [one, other] = [await db.connect(), await db.connect()];
      for (const session of [one, other])
        await session.query('SET ROLE symphony_ingest; SET search_path = payments');
      await one.query('BEGIN');
      const first = await enqueue(db, { instruction, participant: winner, rail: 'card' }, one);
      const second = enqueue(db, { instruction, participant: loser, rail: 'sepa' }, other);
      await waitFor(
        async () =>
          (
            await db.query(
              `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
            )
          ).rowCount === 1,
        { what: 'the second session waits' },
      );
      await one.query(end);
      const answer = await second;
      const [won, lost] = [await pendingOf(db, winner), await pendingOf(db, loser)];
      const { rows } = await db.query<{ key: string }>(
        'SELECT key FROM outbox.keys WHERE key = ANY ($1)',
        [[winner, loser]],
      );
      const pays = end === 'COMMIT' ? winner : loser;
      expect(answer).toMatchObject({ participant_id: pays, sequence_id: '1' });
      expect(answer.outbox_id === first.outbox_id).toBe(end === 'COMMIT');
      expect([...won, ...lost].map((row) => row.participant_id)).toEqual([pays]);
      expect(rows, 'the other one used no number').toEqual([{ key: pays }]);
    },
  );

  it('P3 P18 of many sessions at once, one pays and all get its row', async () => {
    const instruction = randomUUID();
    const rows = await Promise.all(
      Array.from({ length: 10 }, (_, n) =>
        enqueue(db, { instruction, participant: `p${n % 3}`, rail: n % 2 ? 'card' : 'sepa' }),
      ),
    );
    expect(new Set(rows.map((row) => `${row.outbox_id} ${row.sequence_id}`)).size).toBe(1);
    const { rows: messages } = await db.query(
      'SELECT FROM outbox.messages WHERE aggregate_id = $1',
      [instruction],
    );
    expect(messages).toHaveLength(1);
  });

  it('P3 P18 is answered when Waybill has forgotten the message and its dedupe key', async () => {
    const instruction = randomUUID();
    const first = await enqueue(db, { instruction, participant: 'forgotten' });
    await pay(first);
    await db.query('DELETE FROM outbox.dedupe_keys WHERE message_id = $1', [first.outbox_id]);
    await db.query('DELETE FROM outbox.messages WHERE id = $1', [first.outbox_id]);
    expect(await enqueue(db, { instruction, participant: 'forgotten' })).toEqual({
      ...first,
      ...notPending,
    });
    expect(await pendingOf(db, 'forgotten')).toEqual([]);
  });

  it('P3 P16 P18 is answered after years, when retention has removed the message and the dedupe key', async () => {
    const id = await paidLongAgo(db, 'long-ago', 'late', 400);
    const { retention } = executorOf(db, () => ({}));
    await prune(
      openDatabase(db, 'symphony_maintenance'),
      resolveRetention({ ...retention, messagesDays: 1, dedupeKeysDays: 30, pauseMs: 0 }),
    );
    const { rows } = await db.query(
      `SELECT (SELECT count(*)::int FROM outbox.messages WHERE id = $1) AS messages,
              (SELECT count(*)::int FROM outbox.dedupe_keys WHERE message_id = $1) AS keys`,
      [id],
    );
    expect(rows).toEqual([{ messages: 0, keys: 0 }]);
    const again = await enqueue(db, { instruction: 'long-ago', participant: 'late' });
    expect(again).toMatchObject({
      outbox_id: id,
      sequence_id: '1',
      participant_id: 'late',
      payload: { amount: '9.99' },
    });
    expect(await pendingOf(db, 'late')).toEqual([]);
    expect(await enqueue(db, { participant: 'late' }), 'numbers go on').toMatchObject({
      sequence_id: '2',
    });
  });

  it('P18 is told apart from another payment, whatever characters its ids have', async () => {
    const ids = new Set<string>();
    for (const [instruction, key] of [
      ['a/b', 'c'],
      ['a', 'b/c'],
      ['a%2Fb', 'c'],
      ['a%252Fb', 'c'],
    ] as const)
      ids.add((await enqueue(db, { instruction, key, participant: 'odd' })).outbox_id);
    expect(ids.size).toBe(4);
  });

  it('P3 P18 fails with 40001 in a transaction whose snapshot is older than the first one', async () => {
    const instruction = randomUUID();
    await as(db, 'symphony_ingest', async (client) => {
      await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
      await client.query('SELECT 1');
      await enqueue(db, { instruction, participant: 'snapshot', rail: 'sepa' });
      for (const rail of ['sepa', 'card']) {
        await client.query('SAVEPOINT try');
        await expect(
          enqueue(db, { instruction, participant: `snapshot-${rail}`, rail }, client),
          rail,
        ).rejects.toMatchObject({ code: '40001' });
        await client.query('ROLLBACK TO try');
      }
    });
  });
});

describe('the ledger', () => {
  const copy = (changes: Record<string, string>) => {
    const columns = {
      outbox_id: 'gen_random_uuid()',
      instruction_id: 'gen_random_uuid()::text',
      participant_id: 'participant_id',
      sequence_id: 'sequence_id + 1000',
      idempotency_key: 'idempotency_key',
      rail_type: 'rail_type',
      payload: 'payload',
      ...changes,
    };
    return `INSERT INTO payments.payment_ledger (${Object.keys(columns).join()})
            SELECT ${Object.values(columns).join()} FROM payments.payment_ledger WHERE outbox_id = $1`;
  };

  it.each([
    ['(participant, sequence)', { sequence_id: 'sequence_id' }, 'payment_ledger_sequence'],
    ['(instruction, key)', { instruction_id: 'instruction_id' }, 'payment_ledger_once'],
  ])('P18 %s is unique by constraint', async (_what, changes, constraint) => {
    const { outbox_id: id } = await enqueue(db, { participant: 'unique' });
    await expect(db.query(copy(changes), [id])).rejects.toMatchObject({
      code: '23505',
      constraint,
    });
  });

  it('P18 numbers that begin again are refused, not paid', async () => {
    await enqueue(db, { participant: 'rewound' });
    await db.query(`UPDATE outbox.keys SET next_sequence = 1 WHERE key = 'rewound'`);
    await expect(enqueue(db, { participant: 'rewound' })).rejects.toMatchObject({
      code: '23505',
      constraint: 'payment_ledger_sequence',
    });
    await db.query(`UPDATE outbox.keys SET next_sequence = 2 WHERE key = 'rewound'`);
    expect(await pendingOf(db, 'rewound')).toHaveLength(1);
  });

  it('P5 P18 rows are only added, for owners and superusers too, with every kind of triggers', async () => {
    await enqueue(db, { participant: 'appended' });
    const client = await db.connect();
    for (const before of [
      'SET ROLE payments_owner',
      'RESET ROLE',
      'SET session_replication_role = replica',
    ]) {
      await client.query(before);
      for (const table of ['payment_ledger', 'earlier_attempts'])
        for (const change of [
          `UPDATE payments.${table} SET outbox_id = outbox_id`,
          `DELETE FROM payments.${table}`,
          `TRUNCATE payments.${table} CASCADE`,
        ])
          await expect(client.query(change), `${before}: ${change}`).rejects.toMatchObject({
            code: 'P0001',
          });
    }
  });
});

describe('an attempt', () => {
  it('P17 P18 tells what was paid after its message is gone, payload included', async () => {
    const payment = { instruction: 'alone', participant: 'alone', key: 'k9' };
    const row = await enqueue(db, payment);
    await pay(row);
    await db.query('DELETE FROM outbox.messages WHERE id = $1', [row.outbox_id]);
    expect(await attemptsOf(db, 'alone')).toMatchObject([
      {
        outbox_id: row.outbox_id,
        instruction_id: 'alone',
        participant_id: 'alone',
        sequence_id: '1',
        idempotency_key: 'k9',
        rail_type: 'card',
        payload: payloads['card'],
        state: 'DISPATCHED',
      },
    ]);
  });

  it('P4 P6 P17 is found by its participant without reading other attempts, while many are in flight', async () => {
    await db.query(
      `WITH paid AS MATERIALIZED (
         SELECT n, outbox.new_id() AS id FROM generate_series(1, 20000) n),
       attempted AS (
         INSERT INTO outbox.attempts (message_id, claimed_at, ended_at, claim_no, tries, state, destination_id)
         SELECT p.id, now(), now(), c, c, 'retryable', t.id
           FROM paid p, generate_series(1, 5) c, outbox.destinations t WHERE t.name = 'rail.card')
       INSERT INTO payments.payment_ledger (outbox_id, message_id, instruction_id, participant_id, sequence_id,
                                            idempotency_key, rail_type, payload)
       SELECT id, id, 'many-' || n, 'many-' || n % 4000, n, 'k1', 'card', '{}' FROM paid`,
    );
    await as(db, 'symphony_ingest', async (client) => {
      for (let n = 0; n < 300; n += 1) await enqueue(db, { participant: `held-${n}` }, client);
    });
    await claim(db, 'card', randomUUID(), 300);
    await db.query('ANALYZE outbox.attempts, outbox.leases, payments.payment_ledger');
    const client = await db.connect();
    await client.query('SET max_parallel_workers_per_gather = 0; SET ROLE symphony_readonly');
    const planOf = async (where: string): Promise<PlanNode> => {
      const { rows } = await client.query<{ 'QUERY PLAN': [{ Plan: PlanNode }] }>(
        `EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM payments.payment_outbox_attempts WHERE ${where}`,
      );
      return only(rows)['QUERY PLAN'][0].Plan;
    };
    const mostAttempts = (plan: PlanNode): number =>
      Math.max(
        ...nodesOf(plan)
          .filter((node) => node['Relation Name']?.startsWith('attempts_'))
          .map((node) => node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)),
      );
    const plan = await planOf("participant_id = 'many-7'");
    expect(plan['Actual Rows']).toBe(25);
    expect(mostAttempts(plan)).toBeLessThan(1000);
    const leases = nodesOf(plan).filter((node) => node['Relation Name'] === 'leases');
    // once, or once for each rail, and not for each payment
    expect(Math.max(...leases.map((node) => node['Actual Loops']))).toBeLessThanOrEqual(3);
    const inFlight = await planOf("state = 'DISPATCHING'");
    expect(inFlight['Actual Rows']).toBe(300);
    expect(mostAttempts(inFlight), 'whatever is in the archive').toBeLessThan(1000);
    expect(mostAttempts(await planOf("state = 'RETRYABLE'"))).toBeGreaterThan(50_000);
  }, 60_000);

  it('P4 P18 has a UUIDv7 of the time of its claim, which stays the same until after its end', async () => {
    await enqueue(db, { participant: 'versioned' });
    const token = randomUUID();
    await claim(db, 'card', token);
    const ids = async () =>
      (await attemptsOf(db, 'versioned')).map(({ attempt_id, state }) => [attempt_id, state]);
    const [[id = ''] = []] = await ids();
    expect(id).toMatch(/^[\da-f]{8}-[\da-f]{4}-7[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/);
    const { rows } = await db.query(
      `SELECT outbox.id_time(attempt_id) = date_trunc('milliseconds', claimed_at) AS timely
         FROM payments.payment_outbox_attempts WHERE participant_id = 'versioned'`,
    );
    expect(rows).toEqual([{ timely: true }]);
    await db.query('SELECT outbox.nack($1, message_id) FROM outbox.active_claims', [token]);
    await db.query(`SELECT outbox.retry_now('rail.card')`);
    await claim(db, 'card', token);
    const [ended, held] = await ids();
    expect([ended, held?.[1]]).toEqual([[id, 'RETRYABLE'], 'DISPATCHING']);
    expect(held?.[0]).not.toBe(id);
    expect((held?.[0] ?? '') > id, 'in the order of the claims').toBe(true);
  });
});

describe('the channel outbox_pending', () => {
  it('P7 P18 tells listeners of each transaction with a new payment, and of no repeat or rollback', async () => {
    const heard: string[] = [];
    await as(db, 'symphony_readonly', async (listener) => {
      listener.on('notification', ({ payload = '' }) => heard.push(payload));
      await listener.query('LISTEN outbox_pending');
      const instruction = randomUUID();
      await as(db, 'symphony_ingest', async (client) => {
        for (const end of ['ROLLBACK', 'COMMIT']) {
          await client.query('BEGIN');
          await enqueue(db, { participant: 'heard', instruction }, client);
          await enqueue(db, { participant: 'heard' }, client);
          await client.query(end);
        }
        await enqueue(db, { participant: 'heard', instruction }, client);
        await client.query(`SET waybill.notify = off`);
        await enqueue(db, { participant: 'heard' }, client);
      });
      // notifications arrive in the order of their commits
      await db.query(`NOTIFY outbox_pending, 'the last'`);
      await waitFor(() => heard.includes('the last'), { what: 'the last notification' });
    });
    expect(heard).toEqual(['', 'the last']);
  });
});
