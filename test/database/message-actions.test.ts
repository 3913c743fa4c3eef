// Actions of operators on one message: who retried, replayed, discarded or restored it, found by the filter and the time.

import { expect, it } from 'vitest';

import { makeDead, makeRetrying } from '../support/letters.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import { settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();

type Action = { destination: string; claimNo: number; actor: string; action: string };

async function actionsOn(id: string | undefined): Promise<string[]> {
  const ask = await (await serveDatabase(db)).as('read');
  const { body } = await ask('GET', `/api/messages/${id ?? ''}/actions`);
  return (body['actions'] as Action[]).map(
    ({ claimNo, actor, action }) => `${claimNo} ${action} ${actor}`,
  );
}

async function call(text: string, values: unknown[]): Promise<void> {
  await db.query(`SELECT ${db.quoted}.${text}`, values);
}

/** Does a whole job; returns its id. */
async function doJob(
  action: 'discard' | 'restore',
  { ids = null, job = null }: { ids?: (string | undefined)[] | null; job?: string | null },
  actor: string,
): Promise<string> {
  const { rows } = await db.query<{ id: string; token: string }>(
    `SELECT job_id AS id, token::text FROM ${db.quoted}.start_job($1, NULL, gen_random_uuid(), 60000,
       ids => $2, undone_job => $3, actor => $4)`,
    [action, ids, job, actor],
  );
  const { id, token } = only(rows);
  for (let state = ''; state !== 'done';) {
    const { rows: steps } = await db.query<{ state: string }>(
      `SELECT state FROM ${db.quoted}.job_step($1, $2)`,
      [id, token],
    );
    ({ state } = only(steps));
  }
  return id;
}

async function dieAgain(queue: Queue): Promise<void> {
  const claim = await queue.claim();
  await settle(
    db,
    claim,
    claim.ids.map((id) => ({ id, outcome: 'reject' as const, errorCode: 'again' })),
  );
}

it('W5 a message has the retries by its id, and by a filter that matches it', async () => {
  const queue = await makeQueue(db);
  const [one, two] = await makeDead(queue, 2, 'no');
  expect(await actionsOn(one)).toEqual([]);
  await call('retry_dead_letters(ids => $1, actor => $2)', [[one], 'ann']);
  expect(await actionsOn(one)).toEqual(['1 retry_dead_letters ann']);
  expect(await actionsOn(two)).toEqual([]);
  await dieAgain(queue);
  await call('retry_dead_letters(destination => $1, causes => $2, actor => $3)', [
    queue.name,
    ['again'],
    'bob',
  ]);
  await settleDelivered(db, await queue.claim());
  expect(await actionsOn(one)).toEqual(['1 retry_dead_letters ann', '2 retry_dead_letters bob']);
  // the filters of both leave it out, and it is still dead
  expect(await actionsOn(two)).toEqual([]);
});

it('W5 an action on other messages is none on this one', async () => {
  const [queue, other] = [await makeQueue(db), await makeQueue(db)];
  const [one, two] = await makeDead(queue, 2, 'no');
  await makeDead(queue, 1, 'odd');
  await makeDead(queue, 1, 'no', { tenantId: 'acme' });
  await makeDead(other, 1, 'no');
  const retry = 'retry_dead_letters(destination => $1, ids => $2, tenant_id => $3, causes => $4,';
  await call(`${retry} actor => 'ann')`, [queue.name, [one], null, null]);
  await call(`${retry} actor => 'by id')`, [queue.name, [two], null, null]);
  await call(`${retry} actor => 'by tenant')`, [queue.name, null, 'acme', null]);
  await call(`${retry} actor => 'by cause')`, [queue.name, null, null, ['odd']]);
  await call(`${retry} actor => 'by destination')`, [other.name, null, null, null]);
  const { rows } = await db.query(
    `SELECT FROM ${db.quoted}.operator_actions WHERE actor LIKE 'by %'`,
  );
  expect(rows).toHaveLength(4);
  expect(await actionsOn(one)).toEqual(['1 retry_dead_letters ann']);
});

it('W5 a message has its discard, the undo, and its replay', async () => {
  const [queue, other] = [await makeQueue(db), await makeQueue(db)];
  const [id] = await makeDead(queue, 1, 'no');
  await makeDead(other, 1, 'no');
  await call('discard_dead_letters(destination => $1, actor => $2)', [other.name, 'eve']);
  await call('discard_dead_letters(destination => $1, actor => $2)', [queue.name, 'ann']);
  expect(await actionsOn(id)).toEqual(['2 discard_dead_letters ann']);
  await call('restore_dead_letters(ids => $1, actor => $2)', [[id], 'bob']);
  expect(await actionsOn(id)).toEqual(['2 discard_dead_letters ann', '2 restore_dead_letters bob']);
  const delivered = await queue.enqueueOne();
  await settleDelivered(db, await queue.claim());
  const { rows } = await db.query<{ id: string }>(
    `SELECT replay_id AS id FROM ${db.quoted}.start_replay($1, ids => $2, actor => $3)`,
    [queue.name, [delivered], 'cem'],
  );
  // it has begun, and has not sent the message again yet
  expect(await actionsOn(delivered)).toEqual([]);
  await call('replay_step($1)', [rows[0]?.id]);
  expect(await actionsOn(delivered)).toEqual(['1 start_replay cem']);
});

it('W5 a discard of a cause, with the code of the other side, is found', async () => {
  const queue = await makeQueue(db);
  const id = await queue.enqueueOne();
  const rejected = { id, outcome: 'reject' as const, errorCode: 'http_status', remoteCode: '500' };
  await settle(db, await queue.claim(), [rejected]);
  await call('discard_dead_letters(causes => $1, actor => $2)', [['http_status 500'], 'ann']);
  expect(await actionsOn(id)).toEqual(['2 discard_dead_letters ann']);
});

it('W5 a later action with a filter that matches does not take the place of the first', async () => {
  const queue = await makeQueue(db);
  const [one, two] = await makeDead(queue, 2, 'no');
  await call('retry_dead_letters(ids => $1, actor => $2)', [[one], 'ann']);
  await call('retry_dead_letters(destination => $1, actor => $2)', [queue.name, 'bob']);
  expect(await actionsOn(one)).toEqual(['1 retry_dead_letters ann']);
  expect(await actionsOn(two)).toEqual(['1 retry_dead_letters bob']);
});

it('W5 the undo of a job is an action on what the job discarded, and on nothing else', async () => {
  const [queue, other] = [await makeQueue(db), await makeQueue(db)];
  const [one] = await makeDead(queue, 1, 'no');
  const [two] = await makeDead(other, 1, 'no');
  await call('discard_dead_letters(ids => $1, actor => $2)', [[one], 'ann']);
  const discarded = await doJob('discard', { ids: [two] }, 'bob');
  await doJob('restore', { job: discarded }, 'cem');
  await call('restore_dead_letters(ids => $1, actor => $2)', [[one], 'dan']);
  expect(await actionsOn(one)).toEqual([
    '2 discard_dead_letters ann',
    '2 restore_dead_letters dan',
  ]);
  expect(await actionsOn(two)).toEqual([
    '2 discard_dead_letters bob',
    '2 restore_dead_letters cem',
  ]);
});

it('W5 a message has who made it due early, and who cancelled it', async () => {
  const queue = await makeQueue(db);
  const [id] = await makeRetrying(queue, 1);
  await call('retry_now(destination => $1, actor => $2)', [queue.name, 'ann']);
  expect(await actionsOn(id)).toEqual(['1 retry_now ann']);
  await call('cancel($1, $2, $3)', [id, queue.name, 'bob']);
  expect(await actionsOn(id)).toEqual(['1 retry_now ann', '2 cancel bob']);
});

it('W5 those of a message that does not exist are not found', async () => {
  const ask = await (await serveDatabase(db)).as('read');
  const { status, body } = await ask(
    'GET',
    '/api/messages/01a1f062-b001-7000-8000-000000000000/actions',
  );
  expect([status, body['error']]).toEqual([
    404,
    expect.stringContaining('there is no message 01a1'),
  ]);
});

it('P13 a token of one tenant does not see them', async () => {
  const queue = await makeQueue(db);
  const [id] = await makeDead(queue, 1, 'no', { tenantId: 'acme' });
  const ask = await (await serveDatabase(db)).as('read', 'acme');
  expect((await ask('GET', `/api/messages/${id ?? ''}/actions`)).status).toBe(403);
});
