// Everything that an operator can do in SQL leaves a record: who, what, to what, how many. The record can only be
// added to. What is done by the command line and the API is in audit-interfaces.test.ts.

import { randomBytes } from 'node:crypto';

import type pg from 'pg';
import { describe, expect, it } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { addRoute, defineDestination } from '../support/destinations.js';
import { makeBlocked, makeDead, makeRetrying } from '../support/letters.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Connection } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { settleDelivered } from '../support/settling.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

async function call(sql: string, values: unknown[] = [], on: Connection = db.pool): Promise<void> {
  await on.query(`SELECT ${db.quoted}.${sql}`, values);
}

/** The records that the work has left. */
async function recorded(work: () => Promise<unknown>): Promise<pg.QueryResultRow[]> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT coalesce(max(id), 0) AS id FROM ${db.quoted}.operator_actions`,
  );
  await work();
  const records = await db.query(
    `SELECT actor, action, subject, count::int, database_user = session_user AS "asMyself"
       FROM ${db.quoted}.operator_actions WHERE id > $1 ORDER BY id`,
    [only(rows).id],
  );
  return records.rows;
}

const record = (action: string, count: number, subject: object) => ({
  actor: 'ann',
  asMyself: true,
  action,
  count,
  subject,
});

const sealedSecret = 'sealed:1:x';
const endpoint = (name: string) => [
  name,
  { url: 'https://example.com', topics: ['a.b'], sealedSecret, fingerprint: 'f', tenantId: 'acme' },
];

/** A job that is held for so long. */
async function startJob(heldMs: number): Promise<string> {
  const { rows } = await db.query<{ job: string }>(
    `SELECT ${db.quoted}.start_job('retry', now(), 0, gen_random_uuid(), $1, actor => 'ann') AS job`,
    [heldMs],
  );
  return only(rows).job;
}

async function isHeld(job: string): Promise<boolean> {
  const { rows } = await db.query<{ held: boolean }>(
    `SELECT held_until > clock_timestamp() AS held FROM ${db.quoted}.jobs WHERE id = $1`,
    [job],
  );
  return only(rows).held;
}

/** One message that was delivered, to be brought again. */
async function startReplay(): Promise<{ name: string; replayId: string }> {
  const queue = await makeQueue(db);
  await queue.enqueueOne();
  await settleDelivered(db, await queue.claim());
  let replayId = '';
  const work = async () => {
    const { rows } = await db.query<{ replay_id: string }>(
      `SELECT replay_id FROM ${db.quoted}.start_replay($1, topic => $2, actor => 'ann')`,
      [queue.name, queue.topic],
    );
    replayId = only(rows).replay_id;
  };
  expect(await recorded(work)).toMatchObject([
    { actor: 'ann', action: 'start_replay', count: 0, subject: { destination: queue.name } },
  ]);
  return { name: queue.name, replayId };
}

/** Each with the function that records it, so that none is forgotten. */
const actions: Record<string, () => Promise<void>> = {
  async cancel() {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    const subject = { messageId: id, destination: queue.name };
    expect(await recorded(() => call('cancel($1, $2, $3)', [id, queue.name, 'ann']))).toEqual([
      record('cancel', 1, subject),
    ]);
  },
  async retry_dead_letters() {
    const queue = await makeQueue(db);
    await makeDead(queue, 3, 'broken');
    const subject = { destination: queue.name, errorCode: 'broken', topic: queue.topic };
    const work = () =>
      call('retry_dead_letters($1, error_code => $2, topic => $3, actor => $4)', [
        queue.name,
        'broken',
        queue.topic,
        'ann',
      ]);
    expect(await recorded(work)).toEqual([record('retry_dead_letters', 3, subject)]);
  },
  async discard_dead_letters() {
    const queue = await makeQueue(db);
    const ids = await makeDead(queue, 2, 'broken');
    const work = () => call("discard_dead_letters(ids => $1, actor => 'ann')", [ids]);
    expect(await recorded(work)).toEqual([record('discard_dead_letters', 2, { ids })]);
  },
  async skip_dead_letters() {
    const queue = await makeQueue(db, { whenDead: 'block' });
    await makeBlocked(queue, 'a');
    const work = () =>
      call("skip_dead_letters($1, tenant_id => 'acme', actor => 'ann')", [queue.name]);
    const subject = { destination: queue.name, tenantId: 'acme' };
    expect(await recorded(work)).toEqual([record('skip_dead_letters', 1, subject)]);
  },
  async retry_now() {
    const queue = await makeQueue(db);
    await makeRetrying(queue, 2);
    const work = () => call("retry_now($1, 'ann')", [queue.name]);
    expect(await recorded(work)).toEqual([record('retry_now', 2, { destination: queue.name })]);
  },
  async route_unrouted() {
    const id = await defineDestination(db, 'unrouted');
    await call("enqueue('nowhere.yet', '{}')");
    await addRoute(db, id, 'nowhere.yet');
    expect(await recorded(() => call("route_unrouted(actor => 'ann')"))).toEqual([
      record('route_unrouted', 1, {}),
    ]);
  },
  async move_deliveries() {
    const [from, to] = [await makeQueue(db), await makeQueue(db)];
    await from.enqueue(2);
    const work = () => call("move_deliveries($1, $2, actor => 'ann')", [from.name, to.name]);
    const subject = { destination: from.name, to: to.name };
    expect(await recorded(work)).toEqual([record('move_deliveries', 2, subject)]);
  },
  async discard_deliveries() {
    const queue = await makeQueue(db);
    await queue.enqueue(2);
    const work = () => call("discard_deliveries($1, actor => 'ann')", [queue.name]);
    expect(await recorded(work)).toEqual([
      record('discard_deliveries', 2, { destination: queue.name }),
    ]);
  },
  async set_paused() {
    const { name } = await makeQueue(db);
    const work = async () => {
      await call("set_paused($1, true, 'ann', 'noise')", [name]);
      await call("set_paused($1, true, 'ann', 'again')", [name]);
      await call("set_paused($1, false, 'ann')", [name]);
    };
    expect(await recorded(work), 'what changes nothing is no action').toEqual([
      record('pause', 1, { destination: name, reason: 'noise' }),
      record('resume', 1, { destination: name }),
    ]);
  },
  async pause_after() {
    const { id, name } = await makeQueue(db);
    const relay = '00000000-0000-4000-8000-000000000001';
    const work = () =>
      call("pause_after($1::smallint, now(), $2, 'gone', '410', 'Gone')", [id, relay]);
    expect(await recorded(work)).toEqual([
      {
        ...record('pause', 1, {
          destination: name,
          code: 'gone',
          remoteCode: '410',
          reason: 'Gone',
        }),
        actor: `worker ${relay}`,
      },
    ]);
  },
  async add_token() {
    const work = () =>
      call("add_token('grafana', $1, 'operate', 'acme', p_actor => 'ann')", [randomBytes(32)]);
    const subject = { name: 'grafana', scope: 'operate', tenantId: 'acme' };
    expect(await recorded(work)).toEqual([record('add_token', 1, subject)]);
  },
  async remove_token() {
    await call("add_token('old', $1)", [randomBytes(32)]);
    const work = async () => {
      await call("remove_token('old', 'ann')");
      await call("remove_token('old', 'ann')");
    };
    expect(await recorded(work)).toEqual([record('remove_token', 1, { name: 'old' })]);
  },
  async save_endpoint() {
    const work = async () => {
      await call("add_endpoint($1, $2, 'ann')", endpoint('customer'));
      await call(`change_endpoint('customer', '{"description": "x"}', actor => 'ann')`);
      await call(`rotate_endpoint('customer', '${sealedSecret}', 'g', actor => 'ann')`);
      await call("retire_endpoint_secrets('customer', actor => 'ann')");
      await call(`reseal_endpoint('customer', 4, '[{"sealed": "${sealedSecret}"}]', NULL, 'ann')`);
    };
    const subject = { endpoint: 'customer', tenantId: 'acme' };
    expect(await recorded(work)).toEqual(
      [
        'add_endpoint',
        'change_endpoint',
        'rotate_endpoint',
        'retire_endpoint_secrets',
        'reseal_endpoint',
      ].map((action) => record(action, 1, subject)),
    );
  },
  async remove_endpoint() {
    await call('add_endpoint($1, $2)', endpoint('leaving'));
    const work = async () => {
      await call("set_endpoint_enabled('leaving', false, 'acme', 'ann', 'late')");
      await call("remove_endpoint('leaving', actor => 'ann')");
    };
    expect(await recorded(work)).toEqual([
      record('pause', 1, { destination: 'leaving', reason: 'late' }),
      record('remove_endpoint', 1, { endpoint: 'leaving', tenantId: 'acme' }),
    ]);
  },
  async reset_cursor() {
    await defineDestination(db, 'reader');
    await call("define_cursor('reader')");
    const work = () => call("reset_cursor('reader', 'beginning', 'ann')");
    expect(await recorded(work)).toEqual([
      record('reset_cursor', 1, { name: 'reader', from: 'beginning' }),
    ]);
  },
  async delete_cursor() {
    await defineDestination(db, 'gone');
    await call("define_cursor('gone')");
    expect(await recorded(() => call("delete_cursor('gone', 'ann')"))).toEqual([
      record('delete_cursor', 1, { name: 'gone' }),
    ]);
  },
  async repair_cursors() {
    expect(await recorded(() => call("repair_cursors(actor => 'ann')"))).toEqual([
      record('repair_cursors', 0, { cursors: 0 }),
    ]);
  },
  async define_destination() {
    const client = await db.connect();
    await client.query("SET waybill.actor = 'ann'");
    const records = await recorded(() =>
      call("define_destination('crm', p_max_attempts => 3)", [], client),
    );
    expect(records).toEqual([
      record(
        'define_destination',
        1,
        expect.objectContaining({ destination: 'crm', maxAttempts: 3 }) as object,
      ),
    ]);
  },
  async sync_definitions() {
    const client = await db.connect();
    await client.query("SET waybill.actor = 'ann'");
    const file = { name: 'filed', kind: 'x', maxAttempts: 3, retryBaseMs: 1, retryMaxMs: 2 };
    const sync = (destinations: object[], routes: object[]) =>
      recorded(() =>
        call('sync_definitions($1)', [JSON.stringify({ destinations, routes })], client),
      );
    const route = { topic: 'a.b', to: 'filed' };
    const first = await sync([file], [route]);
    expect(first.map(({ action }) => String(action))).toEqual([
      'define_destination',
      'leave_destinations',
      'change_routes',
    ]);
    expect(first[2]).toMatchObject({ actor: 'ann', subject: { added: [route] } });
    expect(await sync([file], [route]), 'a file that says the same').toEqual([]);
    const governed = { ...route, rollout: 'step' };
    const shadow = { ...file, name: 'step.shadow' };
    expect(await sync([file, shadow], [governed]), 'a rollout changes its route').toEqual([
      record(
        'define_destination',
        1,
        expect.objectContaining({ destination: 'step.shadow' }) as object,
      ),
      record('change_routes', 1, { added: [governed] }),
    ]);
    expect(await sync([file, shadow], [governed]), 'and then it says the same').toEqual([]);
    await call("set_rollout('step', 0)");
    expect(await sync([], [])).toEqual([
      record('leave_destinations', 2, { destinations: ['filed', 'step.shadow'] }),
      record('change_routes', 1, { removed: [governed] }),
    ]);
  },
  async set_rollout() {
    const file = { kind: 'x', maxAttempts: 3, retryBaseMs: 1, retryMaxMs: 2 };
    const definitions = {
      destinations: ['billing', 'handover.shadow'].map((name) => ({ ...file, name })),
      routes: [{ topic: 'bill.due', to: 'billing', rollout: 'handover' }],
    };
    await call('sync_definitions($1)', [JSON.stringify(definitions)]);
    const work = async () => {
      await call("set_rollout('handover', 5, actor => 'ann')");
      await call("set_rollout('handover', 5, actor => 'ann')");
    };
    const subject = {
      rollout: 'handover',
      percent: 5,
      shadow: false,
      percentBefore: 0,
      shadowBefore: false,
    };
    expect(await recorded(work), 'what changes nothing is no action').toEqual([
      record('rollout', 1, subject),
    ]);
  },
  async send_test() {
    const { name } = await makeQueue(db);
    expect(await recorded(() => call("send_test($1, 'ann')", [name]))).toMatchObject([
      { actor: 'ann', action: 'send_test', count: 1, subject: { destination: name } },
    ]);
  },
  async start_replay() {
    const { name, replayId } = await startReplay();
    expect(await recorded(() => call("resume_replay($1, actor => 'ann')", [replayId]))).toEqual([
      record('resume_replay', 0, { replay: Number(replayId) }),
    ]);
    expect(await recorded(() => call('replay_step($1)', [replayId]))).toMatchObject([
      { actor: 'ann', action: 'replay', count: 1, subject: { destination: name } },
    ]);
  },
  async cancel_replay() {
    const { replayId } = await startReplay();
    expect(await recorded(() => call("cancel_replay($1, 'ann')", [replayId]))).toEqual([
      record('cancel_replay', 0, { replay: Number(replayId) }),
    ]);
  },
  async cancel_job() {
    const job = await startJob(30_000);
    expect(await recorded(() => call("cancel_job($1, 'ann')", [job]))).toMatchObject([
      { actor: 'ann', action: 'cancel_job', count: 0, subject: { job, action: 'retry' } },
    ]);
    expect(await recorded(() => call("cancel_job($1, 'ann')", [job])), 'it had ended').toEqual([]);
  },
  async resume_job() {
    const job = await startJob(1);
    await waitFor(async () => !(await isHeld(job)), { what: 'the job to be given up' });
    const resume = () => call("resume_job($1, gen_random_uuid(), 30000, 'ann')", [job]);
    expect(await recorded(resume)).toMatchObject([
      { actor: 'ann', action: 'resume_job', count: 0, subject: { job, action: 'retry' } },
    ]);
    expect(await recorded(resume), 'somebody holds it').toEqual([]);
  },
  async define_watch() {
    await db.query('CREATE TABLE public.watched (id int PRIMARY KEY)');
    const work = () => call("watch('public.watched', 'thing')");
    expect(await recorded(work)).toMatchObject([
      { action: 'watch', subject: { table: 'public.watched', topic: 'thing' } },
    ]);
    expect(await recorded(work), 'nothing to do').toEqual([]);
  },
  async end_watch() {
    await db.query('CREATE TABLE public.seen (id int PRIMARY KEY)');
    await call("watch('public.seen', 'thing')");
    expect(await recorded(() => call("unwatch('public.seen')"))).toMatchObject([
      { action: 'unwatch', subject: { table: 'public.seen', topic: 'thing' } },
    ]);
  },
};

describe('every action', () => {
  it.each(Object.entries(actions))('W8 N13 %s leaves its record', async (_name, check) => {
    await check();
  });

  it('W8 every function that records has its test here, and every one with an actor records', async () => {
    const { rows } = await db.query<{ name: string; records: boolean }>(
      `SELECT p.proname AS name, p.prosrc LIKE '%record_action(%' AS records FROM pg_proc p
        WHERE p.pronamespace = $1::regnamespace AND p.proname <> 'record_action'
          AND (p.prosrc LIKE '%record_action(%' OR p.proargnames && '{actor,p_actor}')
        ORDER BY 1`,
      [db.quoted],
    );
    const direct = rows.filter(({ records }) => records).map(({ name }) => name);
    // these two are tried with start_replay
    const others = ['replay_step', 'resume_replay'];
    expect(direct).toEqual([...Object.keys(actions), ...others].toSorted());
    expect(rows.filter(({ records }) => !records).map(({ name }) => name)).toEqual(
      // through save_endpoint and set_paused
      [
        'add_endpoint',
        'change_endpoint',
        'reseal_endpoint',
        'retire_endpoint_secrets',
        'rotate_endpoint',
        'set_endpoint_enabled',
        // what it does is recorded batch by batch
        'start_job',
      ],
    );
  });
});

describe('the actor', () => {
  it('W8 is who is given, else whom the session names, else the login; the login is kept in any case', async () => {
    const { name } = await makeQueue(db);
    const client = await db.connect();
    const actors = async () => {
      const { rows } = await db.query<{ actor: string; database_user: string }>(
        `SELECT actor, database_user FROM ${db.quoted}.operator_actions ORDER BY id DESC LIMIT 1`,
      );
      return only(rows);
    };
    const { rows } = await db.query<{ login: string }>('SELECT session_user AS login');
    const { login } = only(rows);
    await call('set_paused($1, true)', [name], client);
    expect(await actors()).toEqual({ actor: login, database_user: login });
    await client.query("SET waybill.actor = 'bob'");
    await call('set_paused($1, false)', [name], client);
    expect(await actors()).toEqual({ actor: 'bob', database_user: login });
    await call("set_paused($1, true, 'ann')", [name], client);
    expect(await actors()).toEqual({ actor: 'ann', database_user: login });
  });

  it('W8 an action that is rolled back leaves no record', async () => {
    const { name } = await makeQueue(db);
    const work = () =>
      db.inTransaction(async (client) => {
        await call('set_paused($1, true)', [name], client);
        throw new Error('no');
      });
    expect(await recorded(() => work().catch(() => {}))).toEqual([]);
  });
});

describe('append-only', () => {
  it.each([
    'UPDATE operator_actions SET actor = actor',
    'DELETE FROM operator_actions WHERE false',
    'TRUNCATE operator_actions',
    'UPDATE seals SET row_count = 0',
    'DELETE FROM seals',
    'TRUNCATE seals',
  ])('W8 P5 %s is refused, with P0001', async (statement) => {
    await expect(
      db.query(statement.replace(/operator_actions|seals/, (table) => `${db.quoted}.${table}`)),
    ).rejects.toMatchObject({
      code: 'P0001',
      message: expect.stringContaining('it is a record') as string,
    });
  });

  it.each(['operator_actions', 'seals'])(
    'W8 a health check misses a guard of %s that was switched off, and a migration switches it on',
    async (table) => {
      const check = async () => {
        const { rows } = await db.query<{ ok: boolean; detail: string }>(
          `SELECT ok, detail FROM ${db.quoted}.health_check() WHERE name = 'protection'`,
        );
        return only(rows);
      };
      expect(await check()).toMatchObject({ ok: true });
      const alter = `ALTER TABLE ${db.quoted}.${table}`;
      for (const state of ['DISABLE', 'ENABLE', 'ENABLE REPLICA']) {
        await db.query(`${alter} ${state} TRIGGER append_only`);
        expect(await check(), state).toMatchObject({
          ok: false,
          detail: expect.stringMatching(
            new RegExp(`run waybill migrate up: .*${table} ENABLE ALWAYS TRIGGER append_only$`),
          ) as string,
        });
      }
      await migrateUp({ url: db.url, schema: db.schema });
      expect(await check()).toMatchObject({ ok: true });
    },
  );
});
