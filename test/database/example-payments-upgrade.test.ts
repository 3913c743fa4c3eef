// The move of examples/payments from its own tables to Waybill: upgrade.sql, run as it is, on tables with a payment in
// every state.

import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import pg from 'pg';
import { describe, expect, it } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { cli, temporaryDirectory } from '../support/cli.js';
import { as } from '../support/logins.js';
import { only } from '../support/only.js';
import {
  alone,
  attemptsOf,
  enqueue,
  folder,
  inDefault,
  payloads,
  pendingOf,
  startExecutor,
} from '../support/payments.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

const db = inDefault(
  testDatabase({
    async eachTestFrom(url) {
      const client = new pg.Client({ connectionString: url });
      await client.connect();
      await client.query('DROP SCHEMA IF EXISTS outbox CASCADE');
      await migrateUp({ url });
      await client.query(readFileSync('test/support/payments-old-tables.sql', 'utf8'));
      await client.query(oldRows);
      await client.end();
    },
  }),
);

/** Each payment with its old status; attempts 1, 2 … ended in these states. The id of payment N ends in N. */
const old: [participant: string, sequence: number, status: string, attempts: string[]][] = [
  ['ada', 1, 'DISPATCHED', ['RETRYABLE', 'DISPATCHED']],
  ['ada', 2, 'FAILED', ['FAILED']],
  ['ada', 3, 'RETRYABLE', ['RETRYABLE', 'RETRYABLE']],
  ['ada', 4, 'DISPATCHED', ['DISPATCHED']],
  ['ada', 5, 'PENDING', []],
  ['ben', 1, 'DISPATCHED', ['DISPATCHED']],
  ['eve', 7, 'DISPATCHING', ['ZOMBIE_REQUEUE', 'DISPATCHING']],
  ['eve', 8, 'ZOMBIE_REQUEUE', ['ZOMBIE_REQUEUE']],
  ['kim', 1, 'PENDING', []],
];
const uuid = (digit: string, n: number) =>
  `018f0000-0000-7000-8000-${digit}${String(n).padStart(11, '0')}`;
const oldRows = [
  ...old.map(
    ([participant, sequence, status], n) =>
      `INSERT INTO public.payment_outbox VALUES ('${uuid('a', n)}', 'order-${n}', '${participant}', ${sequence}, 'key-${n}', 'card',
        '${JSON.stringify({ ...payloads['card'], note: n })}', '${status}',
        now() + CASE '${participant}' WHEN 'kim' THEN interval '1 hour' ELSE '0' END, now() - interval '2 days')`,
  ),
  ...old.flatMap(([, , , attempts], n) =>
    attempts.map(
      (state, m) =>
        `INSERT INTO public.outbox_status VALUES ('${uuid('b', 10 * n + m)}', '${uuid('a', n)}', ${m + 1}, '${state}',
          now() - interval '1 day', ${state === 'DISPATCHING' ? 'NULL' : 'now()'}, 'ref-${n}')`,
    ),
  ),
].join(';');

/** Runs the script as psql would. */
async function upgrade(script = readFileSync(path.join(folder, 'upgrade.sql'), 'utf8')) {
  const text = script
    .replaceAll(/^\\ir (.*)$/gm, (_line, file: string) =>
      readFileSync(path.join(folder, file), 'utf8'),
    )
    .replaceAll(/^\\set .*$/gm, '');
  return alone(async () => {
    const client = await db.connect();
    try {
      const results = (await client.query(text)) as unknown as pg.QueryResult[];
      return results.at(-2)?.rows;
    } finally {
      await client.end();
    }
  });
}

const exists = async (name: string) => {
  const { rows } = await db.query<{ oid: string | null }>('SELECT to_regclass($1) AS oid', [name]);
  return only(rows).oid !== null;
};

async function paidByExecutor(count: number): Promise<string[]> {
  const paid: string[] = [];
  await startExecutor(db, (_rail, { participantId, sequenceId, idempotencyKey }) => {
    paid.push(`${participantId} ${sequenceId} ${idempotencyKey}`);
    return { reference: 'new' };
  });
  await waitFor(() => paid.length >= count, { what: `${count} payments` });
  return paid;
}

describe('upgrade.sql', () => {
  it('P18 drops the view and the tables, creates everything anew, and tells what it moved', async () => {
    expect(await upgrade()).toEqual([
      { waiting: '5', were_dispatching: '1', ended: '4', attempts: '10', behind_failed: '2' },
    ]);
    for (const gone of ['supervisor_outbox_status', 'outbox_status', 'payment_outbox'])
      expect(await exists(`public.${gone}`), gone).toBe(false);
    await as(db, 'symphony_supervisor', async (client) => {
      for (const name of [
        'supervisor_outbox_status',
        'payment_outbox_pending',
        'payment_outbox_attempts',
        'participant_outbox_sequences',
      ])
        await client.query(`SELECT * FROM ${name}`);
    });
    await expect(upgrade(), 'a second run').rejects.toThrow('payment_outbox" does not exist');
  });

  it('P2 P18 payments that waited are paid in order, with their ids, numbers and keys, and the next numbers follow', async () => {
    await upgrade();
    const paid = await paidByExecutor(4);
    expect(paid.filter((one) => one.startsWith('ada'))).toEqual(['ada 3 key-2', 'ada 5 key-4']);
    expect(paid.filter((one) => one.startsWith('eve'))).toEqual(['eve 7 key-6', 'eve 8 key-7']);
    expect(await pendingOf(db, 'kim'), 'due in an hour').toMatchObject([
      { outbox_id: uuid('a', 8), sequence_id: '1', attempt_count: 0 },
    ]);
    for (const [participant, next] of [
      ['ada', '6'],
      ['ben', '2'],
      ['eve', '9'],
      ['kim', '2'],
      ['new', '1'],
    ] as const)
      expect(await enqueue(db, { participant }), participant).toMatchObject({ sequence_id: next });
  });

  it('P1 P18 payments wait visibly before the first executor has created the routes', async () => {
    await upgrade();
    const waiting = await as(db, 'symphony_supervisor', async (client) => {
      const { rows } = await client.query<{ shown: string }>(
        `SELECT concat_ws(' ', participant_id, sequence_id, rail_type, attempt_count, next_attempt_at > now()) AS shown
           FROM payment_outbox_pending ORDER BY participant_id, sequence_id`,
      );
      return rows.map(({ shown }) => shown);
    });
    expect(waiting).toEqual([
      'ada 3 card 2 f',
      'ada 5 card 0 f',
      'eve 7 card 2 f',
      'eve 8 card 1 f',
      'kim 1 card 0 t',
    ]);
    const status = await as(db, 'symphony_supervisor', async (client) => {
      const { rows } = await client.query<Record<string, unknown>>(
        `SELECT *, oldest_pending_age_seconds >= 0 AS has_age FROM supervisor_outbox_status`,
      );
      return rows;
    });
    expect(only(status)).toMatchObject({
      rail_type: 'card',
      paused: false,
      pending: '5',
      unrouted: '5',
      has_age: true,
      dispatching: '0',
      blocked_participants: [],
    });
    expect(
      await enqueue(db, { instruction: 'order-2', key: 'key-2', participant: 'ada' }),
    ).toMatchObject({ attempt_count: 2 });
    await paidByExecutor(4);
    await waitFor(async () => (await pendingOf(db, 'ada')).length === 0, { what: 'ada' });
  });

  it('P5 P18 an attempt that an append-only table shows as DISPATCHING for ever is not rewritten', async () => {
    await db.query(`UPDATE public.outbox_status SET state = 'DISPATCHING'
      WHERE attempt_no = 1 AND outbox_id IN ('${uuid('a', 0)}', '${uuid('a', 2)}')`);
    await upgrade();
    const states = async (participant: string) =>
      (await attemptsOf(db, participant)).map((row) =>
        [row.sequence_id, row.attempt_no, row.state].join(' '),
      );
    expect(await states('ada')).toEqual([
      '1 1 DISPATCHING',
      '1 2 DISPATCHED',
      '2 1 FAILED',
      '3 1 DISPATCHING',
      '3 2 RETRYABLE',
      '4 1 DISPATCHED',
    ]);
    expect(await states('eve')).toContain('7 2 ZOMBIE_REQUEUE');
  });

  it('P11 P18 the rails can be created and paused before the first executor, so that nothing is sent yet', async () => {
    await upgrade();
    const config = path.join(temporaryDirectory(), 'waybill.config.mjs');
    writeFileSync(
      config,
      `import { executor } from ${JSON.stringify(pathToFileURL(path.join(folder, 'rails.mjs')).href)};
       export default executor(() => ({}), { databaseUrl: ${JSON.stringify(db.url)} });`,
    );
    expect(await cli(['apply', '--config', config])).toMatchObject({ code: 0 });
    const pause = (paused: boolean) =>
      as(db, 'symphony_operator', (client) =>
        client.query(`SELECT outbox.set_paused('rail.card', $1)`, [paused]),
      );
    await pause(true);
    const sent: string[] = [];
    await startExecutor(db, (rail) => {
      sent.push(rail);
      return {};
    });
    await enqueue(db, { participant: 'new', rail: 'sepa' });
    await waitFor(() => sent.length > 0, { what: 'the other rail' });
    expect([...sent]).toEqual(['sepa']);
    await pause(false);
    await waitFor(() => sent.length === 5, { what: 'the payments that waited' });
  });

  it('P3 P18 a late repeat of any old payment gets the old row, and nothing is paid again', async () => {
    await upgrade();
    for (const [n, [participant, sequence]] of old.entries())
      expect(
        await enqueue(db, { instruction: `order-${n}`, key: `key-${n}`, participant: 'other' }),
      ).toMatchObject({
        outbox_id: uuid('a', n),
        participant_id: participant,
        sequence_id: String(sequence),
        payload: { note: n },
      });
    const { rows } = await db.query('SELECT FROM outbox.messages');
    expect(rows, 'those that waited').toHaveLength(5);
  });

  it('P1 P17 P18 the old attempts can be read with the new ones, and their numbers go on', async () => {
    await upgrade();
    await paidByExecutor(4);
    const shown = async (participant: string) =>
      (await attemptsOf(db, participant)).map((row) =>
        [row.sequence_id, row.attempt_no, row.state, row.rail_reference].join(' '),
      );
    await waitFor(async () => (await shown('ada')).includes('5 1 DISPATCHED new'), { what: 'ada' });
    await waitFor(async () => (await shown('eve')).includes('8 2 DISPATCHED new'), { what: 'eve' });
    expect(await shown('ada')).toEqual([
      '1 1 RETRYABLE ref-0',
      '1 2 DISPATCHED ref-0',
      '2 1 FAILED ref-1',
      '3 1 RETRYABLE ref-2',
      '3 2 RETRYABLE ref-2',
      '3 3 DISPATCHED new',
      '4 1 DISPATCHED ref-3',
      '5 1 DISPATCHED new',
    ]);
    expect(await shown('eve'), 'one was in flight').toEqual([
      '7 1 ZOMBIE_REQUEUE ref-6',
      '7 2 ZOMBIE_REQUEUE ref-6',
      '7 3 DISPATCHED new',
      '8 1 ZOMBIE_REQUEUE ref-7',
      '8 2 DISPATCHED new',
    ]);
    expect((await attemptsOf(db, 'ada'))[0]).toMatchObject({
      attempt_id: uuid('b', 0),
      outbox_id: uuid('a', 0),
      instruction_id: 'order-0',
      idempotency_key: 'key-0',
      rail_type: 'card',
      payload: { note: 0 },
    });
  });

  it.each([
    [
      'a status that it does not know',
      `UPDATE public.payment_outbox SET status = 'ODD' WHERE sequence_id = 7`,
      `status is 'ODD'`,
    ],
    [
      'a payment that is there twice',
      `UPDATE public.payment_outbox SET instruction_id = 'order-0', idempotency_key = 'key-0' WHERE sequence_id = 5`,
      'payment_ledger_once',
    ],
    [
      'a payment that waits twice',
      `UPDATE public.payment_outbox SET instruction_id = 'order-6', idempotency_key = 'key-6' WHERE sequence_id = 8`,
      'waits twice',
    ],
    [
      'a number that is there twice',
      `UPDATE public.payment_outbox SET sequence_id = 4 WHERE sequence_id = 5`,
      'payment_ledger_sequence',
    ],
  ])('P18 %s stops it, and everything is as before', async (_what, change, message) => {
    await db.query(change);
    const rows = () =>
      db.query('SELECT * FROM public.payment_outbox ORDER BY 1').then((result) => result.rows);
    const before = await rows();
    await expect(upgrade()).rejects.toThrow(message);
    expect(await rows()).toEqual(before);
    expect(await exists('public.supervisor_outbox_status')).toBe(true);
    const { rows: messages } = await db.query('SELECT FROM outbox.messages');
    expect(messages).toEqual([]);
  });
});
