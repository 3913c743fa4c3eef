// The payments processor of examples/payments: its own calls with its own logins, and its unchanged program. The proofs
// of its plan, its ledger, the safety of its history and the move to it have files of their own.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';

import { afterEach, beforeAll, describe, expect, it } from 'vitest';

import { createRelay } from '../../src/config.js';
import { metricCatalogue } from '../../src/telemetry/metric-catalogue.js';
import { runNode } from '../support/cli.js';
import { as } from '../support/logins.js';
import { only } from '../support/only.js';
import {
  attemptsOf,
  claim,
  payloads,
  enqueue,
  executorOf,
  folder,
  inDefault,
  install,
  pendingOf,
  settleAll,
  startExecutor,
} from '../support/payments.js';
import type { SentPayment } from '../support/payments.js';
import { testDatabase } from '../support/postgres.js';
import { expire, reap } from '../support/settling.js';
import { waitFor } from '../support/wait.js';

const db = inDefault(testDatabase());

beforeAll(() => install(db));
afterEach(() => settleAll(db));

const states = async (participant: string) =>
  (await attemptsOf(db, participant)).map(({ state }) => state);

async function until(participant: string, wanted: string[]): Promise<void> {
  let seen: string[] = [];
  await waitFor(async () => (seen = await states(participant)).join() === wanted.join(), {
    what: `${participant}: ${wanted.join()}`,
    timeoutMs: 20_000,
  }).catch((error: Error) => {
    throw new Error(`${error.message}, not ${seen.join()}`, { cause: error });
  });
}

async function nextSequence(participant: string): Promise<string> {
  return as(db, 'symphony_supervisor', async (client) => {
    const { rows } = await client.query<{ next: string }>(
      'SELECT next_sequence_id AS next FROM payments.participant_outbox_sequences WHERE participant_id = $1',
      [participant],
    );
    return only(rows).next;
  });
}

describe('the calls', () => {
  it('P2 a participant’s payments are numbered without a gap over all rails, also where enqueues are rolled back', async () => {
    const rails = Object.keys(payloads);
    await Promise.all(
      Array.from({ length: 12 }, (_, n) =>
        as(db, 'symphony_ingest', async (client) => {
          await client.query('BEGIN');
          await enqueue(db, { participant: 'counted', rail: rails[n % 3] ?? '' }, client);
          await client.query(n % 4 === 0 ? 'ROLLBACK' : 'COMMIT');
        }),
      ),
    );
    const numbers = (await pendingOf(db, 'counted')).map((row) => Number(row.sequence_id));
    expect(numbers).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(await nextSequence('counted')).toBe('10');
  });

  it('P8 P18 an amount keeps its digits, and the payload stays as it was given', async () => {
    const sent: string[] = [];
    await startExecutor(db, (_rail, { amount, instructionId }) => {
      if (instructionId === 'exact') sent.push(amount);
      return {};
    });
    const given = `{"amount": 123456789012345.78, "currency": "USD", "destination": "tok_4eC39HqLyjWDarjtT1"}`;
    await as(db, 'symphony_ingest', async (client) => {
      const { rows } = await client.query<{ payload: string }>(
        `SELECT payload::text FROM enqueue_payment_outbox('exact', 'exact', 'k', 'card', $1)`,
        [given],
      );
      expect(only(rows).payload).toContain('"amount": 123456789012345.78');
    });
    await until('exact', ['DISPATCHED']);
    expect(sent).toEqual(['123456789012345.78']);
  });

  it.each([
    [
      { rail: 'swift', payload: {} },
      'rail_type is "swift": give one of those that have a route: card, mobile, sepa',
    ],
    [{ key: null }, 'idempotency_key is null: '],
    [{ instruction: '' }, 'instruction_id "" has 0 bytes: give 1 to 255'],
    [{ key: 'k'.repeat(256) }, 'has 256 bytes: give 1 to 255'],
    [{ payload: [] }, 'payload is array, not an object: give one such as '],
  ])('P8 %j is refused with its field, and leaves nothing', async (wrong, message) => {
    await expect(enqueue(db, { participant: 'none', ...wrong })).rejects.toThrow(message);
    expect(await pendingOf(db, 'none')).toEqual([]);
  });

  it('P6 P8 a topic that only another destination or namespace gets is not a rail', async () => {
    await db.query(
      `SELECT outbox.define_destination('export'), outbox.define_destination('rail.elsewhere'),
              outbox.define_route('payment.exported', 'export', 'payments'),
              outbox.define_route('payment.elsewhere', 'rail.elsewhere', 'other')`,
    );
    for (const rail of ['exported', 'elsewhere'])
      await expect(enqueue(db, { participant: 'none', rail, payload: {} })).rejects.toThrow(
        `rail_type is "${rail}": give one of those that have a route: card, mobile, sepa`,
      );
  });

  it('P6 a second rail for a topic is refused, also by an overlapping pattern; a topic can change its rail', async () => {
    const route = (topic: string, rail: string) =>
      db.query('SELECT outbox.define_route($1, $2)', [topic, rail]);
    for (const topic of ['payment.sepa', 'payment.*', '*'])
      await expect(route(topic, 'rail.card')).rejects.toThrow(
        / to rail\.\w+: a payment would be paid on both rails$/,
      );
    await db.query("SELECT outbox.define_destination('rail.new')");
    await route('payment.old', 'rail.card');
    // a configuration adds the new route before it removes the old one
    await db.inTransaction(async (client) => {
      await client.query("SELECT outbox.define_route('payment.old', 'rail.new')");
      await client.query("SELECT outbox.remove_route('payment.old', 'rail.card')");
    });
    await expect(route('payment.old', 'rail.card')).rejects.toThrow('paid on both rails');
    await db.query("SELECT outbox.remove_route('payment.old', 'rail.new')");
    // others than rails may read along
    await route('payment.*', 'export');
    await db.query("SELECT outbox.remove_route('payment.*', 'export')");
    // an executor whose configuration has two rails for a topic does not start
    const config = executorOf(db, () => ({}));
    const wrong = createRelay({
      ...config,
      routes: [...(config.routes ?? []), { topic: 'payment.sepa', to: 'rail.card' }],
    });
    await expect(wrong.start()).rejects.toThrow('a payment would be paid on both rails');
  });

  it('P6 a claimed payment is no longer pending but DISPATCHING, and one executor has it', async () => {
    const participants = Array.from({ length: 4 }, (_, n) => `claimed-${n}`);
    for (const participant of [...participants, ...participants])
      await enqueue(db, { participant });
    const [some, others] = await Promise.all([
      claim(db, 'card', randomUUID(), 3),
      claim(db, 'card', randomUUID(), 3),
    ]);
    const ids = [...some, ...others].map((row) => row.message_id);
    expect(ids.length).toBeGreaterThanOrEqual(3);
    expect(new Set(ids).size).toBe(ids.length);
    const pending = (await Promise.all(participants.map((one) => pendingOf(db, one)))).flat();
    expect(pending.map((row) => row.outbox_id).filter((id) => ids.includes(id))).toEqual([]);
    expect(pending.length + ids.length).toBe(8);
    const held = (await Promise.all(participants.map((one) => attemptsOf(db, one)))).flat();
    expect(new Set(held.map((row) => row.outbox_id))).toEqual(new Set(ids));
    expect(held.every((row) => row.state === 'DISPATCHING' && row.attempt_no === 1)).toBe(true);
    await db.query('UPDATE outbox.leases SET expires_at = now()');
  });

  it('P8 an invalid payment fails with a code, and its rail is never called', async () => {
    const calls: string[] = [];
    await startExecutor(db, (_rail, payment) => {
      calls.push(payment.participantId);
      return {};
    });
    const cases: [rail: string, change: object, code: string][] = [
      ['sepa', { amount: '0' }, 'amount_not_positive'],
      ['sepa', { amount: undefined }, 'amount_invalid'],
      ['sepa', { currency: 'EURO' }, 'currency_unknown'],
      ['sepa', { currency: 'USD' }, 'currency_not_allowed'],
      ['sepa', { destination: 'DE00370400440532013000' }, 'destination_invalid'],
      ['card', { destination: '4242424242424242' }, 'card_number_refused'],
      ['mobile', { destination: '0772123456' }, 'destination_invalid'],
    ];
    for (const [index, [rail, change]] of cases.entries())
      await enqueue(db, {
        participant: `bad-${index}`,
        rail,
        payload: { ...payloads[rail], ...change },
      });
    for (const [index, [, , code]] of cases.entries()) {
      await until(`bad-${index}`, ['FAILED']);
      expect(only(await attemptsOf(db, `bad-${index}`))).toMatchObject({
        error_code: 'guard_refused',
        rail_code: code,
      });
    }
    expect(calls).toEqual([]);
  });

  it('P10 P11 the rail’s code decides and its text does not; an unknown code is retried', async () => {
    const codes: Record<string, string[]> = {
      terminal: ['ACCOUNT_CLOSED'],
      retryable: ['RAIL_BUSY', 'RAIL_BUSY'],
      unknown: ['NEVER_HEARD_OF'],
      exhausted: ['RAIL_BUSY', 'RAIL_BUSY', 'RAIL_BUSY'],
    };
    await startExecutor(db, (rail, { participantId, idempotencyKey }) => {
      const code = codes[participantId]?.shift();
      if (code === undefined) return { reference: `${rail} ${idempotencyKey}` };
      return { code, message: 'the account is closed, busy, or worse' };
    });
    for (const participant of Object.keys(codes)) await enqueue(db, { participant });
    await until('terminal', ['FAILED']);
    await until('retryable', ['RETRYABLE', 'RETRYABLE', 'DISPATCHED']);
    await until('unknown', ['RETRYABLE', 'DISPATCHED']);
    await until('exhausted', ['RETRYABLE', 'RETRYABLE', 'FAILED']);
    expect((await attemptsOf(db, 'unknown')).map((row) => row.rail_code)).toEqual([
      'NEVER_HEARD_OF',
      null,
    ]);
    expect((await attemptsOf(db, 'unknown')).at(-1)).toMatchObject({ rail_reference: 'card k1' });
    const { rows } = await db.query(
      'SELECT key FROM outbox.dead_letters WHERE key = ANY ($1) ORDER BY 1',
      [Object.keys(codes)],
    );
    expect(rows).toEqual([{ key: 'exhausted' }, { key: 'terminal' }]);
  });

  it('P2 P11 at a rail that blocks, a participant waits behind a failed payment, and an operator releases it in order', async () => {
    let closed = true;
    const paid: string[] = [];
    await startExecutor(db, (_rail, { participantId, sequenceId }: SentPayment) => {
      if (participantId === 'blocked' && closed) return { code: 'ACCOUNT_CLOSED' };
      paid.push(`${participantId} ${sequenceId}`);
      return {};
    });
    const rail = 'sepa';
    const { outbox_id: id } = await enqueue(db, { participant: 'blocked', rail });
    await until('blocked', ['FAILED']);
    for (const participant of ['blocked', 'blocked', 'free'])
      await enqueue(db, { participant, rail });
    await until('free', ['DISPATCHED']);
    const seen = await as(db, 'symphony_supervisor', (client) =>
      client.query<{ pending: string; blocked_participants: string[] }>(
        `SELECT pending, blocked_participants FROM supervisor_outbox_status WHERE rail_type = 'sepa'`,
      ),
    );
    expect(only(seen.rows)).toMatchObject({ pending: '2' });
    expect(only(seen.rows).blocked_participants).toContain('blocked');
    closed = false;
    await as(db, 'symphony_operator', (client) =>
      client.query('SELECT outbox.retry_dead_letters(ids => ARRAY[$1::uuid])', [id]),
    );
    await until('blocked', ['FAILED', 'DISPATCHED', 'DISPATCHED', 'DISPATCHED']);
    expect(paid).toEqual(['free 1', 'blocked 1', 'blocked 2', 'blocked 3']);
    const [, again] = await attemptsOf(db, 'blocked');
    expect(again).toMatchObject({ outbox_id: id, sequence_id: '1', attempt_no: 2 });
  });

  it('P2 P11 at a rail that continues, the payments behind a failed one are paid, and it stays a dead letter', async () => {
    const paid: string[] = [];
    await startExecutor(db, (_rail, { participantId, sequenceId }: SentPayment) => {
      if (sequenceId === '1') return { code: 'ACCOUNT_CLOSED' };
      paid.push(`${participantId} ${sequenceId}`);
      return {};
    });
    for (let n = 1; n <= 3; n += 1) await enqueue(db, { participant: 'continued', rail: 'card' });
    await waitFor(() => paid.length === 2, { what: 'two payments' });
    expect(paid).toEqual(['continued 2', 'continued 3']);
    const { rows } = await db.query(
      `SELECT sequence FROM outbox.dead_letters WHERE key = 'continued'`,
    );
    expect(rows).toEqual([{ sequence: '1' }]);
  });

  it('P12 payments of a dead executor are requeued with id and sequence, and paid by the next one', async () => {
    const { outbox_id: id } = await enqueue(db, { participant: 'zombie', rail: 'sepa' });
    await claim(db, 'sepa', randomUUID());
    const { rows } = await db.query<{ leaseId: string }>(
      'SELECT id AS "leaseId" FROM outbox.leases',
    );
    await expire(db, only(rows));
    expect(await as(db, 'symphony_executor', (client) => reap(db, client))).toBe(1);
    expect(only(await pendingOf(db, 'zombie'))).toMatchObject({
      outbox_id: id,
      sequence_id: '1',
      attempt_count: 1,
    });
    await startExecutor(db, () => ({}));
    await until('zombie', ['ZOMBIE_REQUEUE', 'DISPATCHED']);
    const attempts = await attemptsOf(db, 'zombie');
    expect(attempts.map((row) => [row.outbox_id, row.sequence_id, row.attempt_no])).toEqual([
      [id, '1', 1],
      [id, '1', 2],
    ]);
    const { leaseMs = NaN, reapMs = NaN } = executorOf(db, () => ({})).relay ?? {};
    expect(leaseMs + reapMs).toBeLessThan(120_000);
  });
});

const columns = {
  participant_outbox_sequences: 'participant_id text, next_sequence_id bigint',
  payment_outbox_pending:
    'outbox_id uuid, instruction_id text, participant_id text, sequence_id bigint, idempotency_key text, rail_type text, payload jsonb, attempt_count integer, next_attempt_at timestamp with time zone, created_at timestamp with time zone',
  payment_outbox_attempts:
    'attempt_id uuid, outbox_id uuid, instruction_id text, participant_id text, sequence_id bigint, idempotency_key text, rail_type text, payload jsonb, attempt_no integer, state text, claimed_at timestamp with time zone, completed_at timestamp with time zone, rail_reference text, rail_code text, error_code text, error_message text, latency_ms integer, created_at timestamp with time zone',
};

it.each(Object.entries(columns))(
  'P6 P18 %s has the columns and types of the plan',
  async (view, wanted) => {
    const { rows } = await db.query<{ columns: string }>(
      `SELECT string_agg(attname || ' ' || format_type(atttypid, NULL), ', ' ORDER BY attnum) AS columns
         FROM pg_attribute WHERE attrelid = format('payments.%s', $1::text)::regclass AND attnum > 0`,
      [view],
    );
    expect(only(rows).columns).toBe(wanted);
  },
);

it('P7 P9 P12 P14 the relayer has the settings of the plan, and the README maps every metric to one that exists', () => {
  const { relay = {}, destinations } = executorOf(db, () => ({}));
  expect(relay.pollMs).toBeGreaterThanOrEqual(25);
  expect(relay.pollMs).toBeLessThanOrEqual(50);
  expect(relay.fallbackPollMs).toBeGreaterThanOrEqual(250);
  expect(relay.fallbackPollMs).toBeLessThanOrEqual(1000);
  expect(Object.values(destinations).map(({ settings }) => settings.timeoutMs)).toEqual([
    30_000, 30_000, 30_000,
  ]);
  const readme = readFileSync(path.join(folder, 'README.md'), 'utf8');
  const mapped = [...readme.matchAll(/^\| `(\w+)(?:\{\w+\})?` \| `(outbox_\w+)/gm)].map(
    ([, theirs, ours]) => [theirs, ours],
  );
  expect(mapped.map(([theirs]) => theirs)).toEqual([
    'outbox_pending_depth',
    'oldest_pending_age_seconds',
    'notify_wakeups_total',
    'claim_batches_total',
    'dispatch_latency_ms',
    'attempts_total',
    'dlq_depth',
    'reaper_requeues_total',
    'stuck_dispatching_count',
  ]);
  expect(mapped.filter(([, ours = '']) => !(ours in metricCatalogue))).toEqual([]);
});

it('P2 P8 P11 P13 the program runs: a repeat, a refusal, a retry, and a participant that an operator releases', async () => {
  const { code, stdout, stderr } = await runNode([path.join(folder, 'main.mjs')], {
    environment: { DATABASE_URL: db.url },
  }).ended();
  expect(`${code} ${stderr}`).toBe('0 ');
  expect(stdout).toContain('a repeat is the first one: true');
  expect(stdout).toMatch(/'FAILED' +│ 'guard_refused' +│ 'amount_not_positive'/);
  expect(stdout).toMatch(/'birch-\w+' +│ '1' +│ 1 +│ 'RETRYABLE' +│ 'rail_error' +│ 'RAIL_BUSY'/);
  expect(stdout).toMatch(/"blocked_participants":"[^"]*alder-\w+, [^"]*cedar-\w+/);
  expect(stdout).toContain('the operator released 1 payment, and the two behind it followed:');
  expect(stdout).toMatch(/^cedar-\w+ 1, cedar-\w+ 1, cedar-\w+ 2, cedar-\w+ 3$/m);
  expect(stdout).toMatch(/'dogwood-\w+' +│ '2' +│ \d +│ 'DISPATCHED'/);
  expect(stdout).toContain('paid: 6');
});
