// Undo of a discard: the dead letter is as it was, once, until it is replayed or retention removes its message. A key
// that has continued stays in order.

import type pg from 'pg';
import { describe, expect, it } from 'vitest';

import { cliOn } from '../support/cli.js';
import { jobOf, jobOperator, lapse, startHeldJob, untilJob } from '../support/jobs.js';
import { makeBlocked, makeDead } from '../support/letters.js';
import { backendId, waitUntilBlocked } from '../support/locks.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import { settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();

async function count(call: string, values: unknown[] = []): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT ${db.quoted}.${call} AS count`,
    values,
  );
  return only(rows).count;
}

const discard = (...ids: string[]) => count('discard_dead_letters(ids => $1)', [ids]);
const restore = (...ids: string[]) => count('restore_dead_letters(ids => $1)', [ids]);
const idsOf = async (queue: Queue) =>
  (await queue.deadLetters()).map((letter) => String(letter['message_id'])).toSorted();

/** The lane of a key: which message blocks it, and the last sequence that has ended. */
async function lane(queue: Queue) {
  const { rows } = await db.query<{ blocked_by: string | null; last_sequence: string }>(
    `SELECT blocked_by, last_sequence FROM ${db.quoted}.lanes WHERE destination_id = $1`,
    [queue.id],
  );
  return only(rows);
}

/** Sends a message to the destination again, as an operator does. */
async function replay(queue: Queue, ...ids: string[]): Promise<void> {
  const { rows } = await db.query<{ replay_id: string }>(
    `SELECT replay_id FROM ${db.quoted}.start_replay($1, ids => $2)`,
    [queue.name, ids],
  );
  await db.query(`SELECT ${db.quoted}.replay_step($1)`, [only(rows).replay_id]);
}

/** Removes a message, as retention does. */
const forget = (id: string) => db.query(`DELETE FROM ${db.quoted}.messages WHERE id = $1`, [id]);

describe('a restored dead letter', () => {
  it('M5 W8 is as it was, and can be retried and discarded again', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne({ tenantId: 'acme' });
    const claim = await queue.claim();
    await settle(db, claim, [
      { id, outcome: 'reject', errorCode: 'http_status', remoteCode: '404', errorMessage: 'gone' },
    ]);
    const before = only(await queue.deadLetters());
    expect(await discard(id)).toBe(1);
    expect(await queue.status(id)).toMatchObject({ status: 'discarded' });
    expect(await restore(id)).toBe(1);
    const after = only(await queue.deadLetters());
    // the number of the discard is used up
    expect(after).toEqual({ ...before, claim_no: Number(before['claim_no']) + 1 });
    expect(await queue.status(id)).toMatchObject({ status: 'dead' });
    expect(await discard(id)).toBe(1);
    expect(await restore(id)).toBe(1);
    expect(await count('retry_dead_letters(ids => $1)', [[id]])).toBe(1);
    await settleDelivered(db, await queue.claim());
    expect(await queue.status(id)).toMatchObject({ status: 'delivered' });
    expect((await queue.attempts(id)).map(({ state }) => state)).toEqual([
      'failed',
      'discarded',
      'discarded',
      'dispatched',
    ]);
  });

  it('M5 is restored once, and not after a replay or after retention', async () => {
    const queue = await makeQueue(db);
    const [twice = '', replayed = '', gone = '', again = ''] = await makeDead(queue, 4, 'no');
    expect(await restore(twice)).toBe(0);
    expect(await discard(twice, replayed, gone, again)).toBe(4);
    expect([await restore(twice), await restore(twice)]).toEqual([1, 0]);
    await replay(queue, replayed);
    expect(await restore(replayed)).toBe(0);
    expect(await queue.status(replayed)).toMatchObject({ status: 'pending' });
    await forget(gone);
    expect(await restore(gone)).toBe(0);
    // one that was replayed, died and was discarded again has its newest error
    await replay(queue, again);
    const claim = await queue.claim();
    await settle(
      db,
      claim,
      claim.ids.map((id) => ({ id, outcome: 'reject' as const, errorCode: 'later' })),
    );
    await discard(again);
    expect(await restore(again)).toBe(1);
    expect((await queue.deadLetters()).find((letter) => letter['message_id'] === again)).toEqual(
      expect.objectContaining({ error_code: 'later' }),
    );
  });

  it('M5 W8 of two undos at once, one is told that the letter is dead again', async () => {
    const ask = await (await serveDatabase(db)).as('operate');
    const queue = await makeQueue(db);
    for (const id of await makeDead(queue, 5, 'no')) {
      await discard(id);
      const undo = () => ask('POST', `/api/messages/${id}/restore`);
      const answers = await Promise.all([undo(), undo()]);
      const [done, late] = answers.toSorted((a, b) => a.status - b.status);
      expect(done?.status).toBe(200);
      expect([late?.status, late?.body['error']]).toEqual([
        409,
        `the message ${id} is dead at ${queue.name}: only a discarded dead letter can be restored; to send it again, replay it`,
      ]);
    }
  });

  it('M5 W8 is offered where a restore is possible, and nowhere else', async () => {
    const ask = await (await serveDatabase(db)).as('operate');
    const isOffered = async (id: string) => {
      const { body } = await ask('GET', `/api/messages/${id}`);
      const { canRestore } = only((body as { deliveries: { canRestore: boolean }[] }).deliveries);
      const { status } = await ask('POST', `/api/messages/${id}/restore`);
      expect([200, 409]).toContain(status);
      expect(canRestore).toBe(status === 200);
      return canRestore;
    };
    const queue = await makeQueue(db, { whenDead: 'park' });
    const cancel = (id: string) => count('cancel($1)', [id]);
    const [head = '', parked = ''] = await makeBlocked(queue, 'offered', 1);
    expect(await isOffered(parked)).toBe(false);
    await discard(parked, head);
    // it never failed
    expect(await isOffered(parked)).toBe(true);
    expect(await isOffered(parked)).toBe(false);

    const [retried = '', replayed = '', expired = ''] = await makeDead(queue, 3, 'no');
    await count('retry_dead_letters(ids => $1)', [[retried]]);
    await cancel(retried);
    expect(await isOffered(retried)).toBe(false);
    await discard(replayed);
    await replay(queue, replayed);
    await cancel(replayed);
    expect(await isOffered(replayed)).toBe(false);
    await db.query(
      `UPDATE ${db.quoted}.dead_letters SET dead_at = dead_at - interval '10 years' WHERE message_id = $1`,
      [expired],
    );
    await count(`discard_dead_letters(ids => $1, only_those => 'expired')`, [[expired]]);
    expect(await queue.status(expired)).toMatchObject({ status: 'discarded' });
    expect(await isOffered(expired)).toBe(false);

    const cancelled = await queue.enqueueOne();
    await cancel(cancelled);
    expect(await isOffered(cancelled)).toBe(false);
  });

  it('M5 is at the given destination only', async () => {
    const [one, two] = [await makeQueue(db), await makeQueue(db)];
    const [id = ''] = await makeDead(one, 1, 'no');
    await discard(id);
    expect(await count('restore_dead_letters($1, $2)', [[id], two.name])).toBe(0);
    expect(await count('restore_dead_letters($1, $2)', [[id], one.name])).toBe(1);
  });

  it.each([
    ['restore_dead_letters()', 'ids and job_id are null: give one of them'],
    [
      "restore_dead_letters('{}', NULL, gen_random_uuid())",
      'ids and job_id are given: give one of them',
    ],
    ["restore_dead_letters('{}', max_count => 0)", 'max_count is 0'],
    ["start_job('restore', NULL, gen_random_uuid(), 1)", 'give either ids or undone_job'],
    [
      "start_job('retry', NULL, gen_random_uuid(), 1, undone_job => gen_random_uuid())",
      'only restore undoes a job',
    ],
    [
      "start_job('restore', NULL, gen_random_uuid(), 1, undone_job => gen_random_uuid())",
      'there is no job',
    ],
  ])('M5 wrong arguments are refused: %s', async (call, words) => {
    await expect(db.query(`SELECT ${db.quoted}.${call}`)).rejects.toThrow(words);
  });

  it('is not remembered when retention discards it, and forgotten after its message', async () => {
    const queue = await makeQueue(db);
    const [kept = '', gone = '', expired = ''] = await makeDead(queue, 3, 'no');
    await discard(kept, gone);
    await db.query(`UPDATE ${db.quoted}.retention_floors SET dead_letters_days = 0`);
    await count("prune_dead_letters('0')");
    expect(await restore(expired)).toBe(0);
    expect(await count("prune_discarded_letters('0')")).toBe(0);
    await forget(gone);
    expect(await count("prune_discarded_letters('1 day')")).toBe(0);
    expect(await count("prune_discarded_letters('0')")).toBe(1);
    expect(await restore(kept)).toBe(1);
  });
});

describe('the key of a restored dead letter', () => {
  it('P1 is blocked again, if nothing behind it was sent', async () => {
    const queue = await makeQueue(db, { whenDead: 'block' });
    const [head = '', ...behind] = await makeBlocked(queue, 'k');
    const before = await lane(queue);
    await discard(head);
    expect(await lane(queue)).toMatchObject({ blocked_by: null });
    expect(await restore(head)).toBe(1);
    expect(await lane(queue)).toEqual(before);
    expect((await queue.claim()).ids).toEqual([]);
    await count('retry_dead_letters(ids => $1)', [[head]]);
    const claim = await queue.claim();
    expect(claim.ids).toEqual([head, ...behind]);
    expect(claim.rows.map(({ previous_sequence }) => previous_sequence)).toEqual(
      claim.rows.map(({ sequence }) =>
        Number(sequence) === 1 ? '0' : String(Number(sequence) - 1),
      ),
    );
  });

  it.each(['block', 'park'] as const)(
    'P1 continues, if something behind it was sent or is in flight (%s)',
    async (whenDead) => {
      for (const isSettled of [true, false]) {
        const queue = await makeQueue(db, { whenDead });
        const [head = '', second = '', third = ''] = await makeBlocked(queue, 'k');
        await discard(head);
        const claim = await queue.claim({ limit: 1 });
        expect(claim.ids).toEqual([second]);
        if (isSettled) await settleDelivered(db, claim);
        expect(await restore(head)).toBe(1);
        expect(await lane(queue)).toMatchObject({ blocked_by: null });
        expect(await idsOf(queue)).toEqual([head]);
        if (!isSettled) await settleDelivered(db, claim);
        expect((await queue.claim()).ids).toEqual([third]);
      }
    },
  );

  it('P1 is parked again, with the messages behind it', async () => {
    const queue = await makeQueue(db, { whenDead: 'park' });
    const ids = await makeBlocked(queue, 'k');
    const [head = ''] = ids;
    const before = await idsOf(queue);
    expect(before).toEqual(ids.toSorted());
    await discard(head);
    expect(await idsOf(queue)).toEqual([]);
    await restore(head);
    expect(await idsOf(queue)).toEqual(before);
    expect(await lane(queue)).toMatchObject({ blocked_by: head });
    await count('retry_dead_letters(ids => $1)', [[head]]);
    expect((await queue.claim()).ids).toEqual(ids);
  });

  it.each([
    ['oldest first', (ids: string[]) => ids],
    ['newest first', (ids: string[]) => ids.toReversed()],
  ])('P1 returns with those behind it in order, restored one by one, %s', async (_, inOrder) => {
    const queue = await makeQueue(db, { whenDead: 'park' });
    const ids = await makeBlocked(queue, 'k');
    const [head = ''] = ids;
    expect(await discard(...ids)).toBe(ids.length);
    for (const id of inOrder(ids)) expect(await restore(id)).toBe(1);
    expect((await lane(queue)).blocked_by).toBe(head);
    const fourth = await queue.enqueueOne({ key: 'k' });
    await count('retry_dead_letters(ids => $1)', [[head]]);
    expect((await queue.claim()).ids).toEqual([...ids, fourth]);
  });

  it('P1 is found without reading the other parked letters of the destination', async () => {
    const queue = await makeQueue(db, { whenDead: 'park' });
    const [head = ''] = await makeBlocked(queue, 'k');
    await db.query(
      `INSERT INTO ${db.quoted}.dead_letters
         (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, key_id, sequence)
       SELECT ${db.quoted}.new_id(), $1, now(), 1, 1, 'parked', 'parked', 1000000 + n, 1 FROM generate_series(1, 5000) n`,
      [queue.id],
    );
    await db.query(`ANALYZE ${db.quoted}.dead_letters`);
    await discard(head);
    const client = await db.connect();
    const rowsRead = async () => {
      const { rows } = await client.query<{ count: number }>(
        `SELECT (seq_tup_read + idx_tup_fetch)::int AS count FROM pg_stat_xact_user_tables WHERE schemaname = $1 AND relname = 'dead_letters'`,
        [db.schema],
      );
      return only(rows).count;
    };
    await client.query('BEGIN');
    const before = await rowsRead();
    await client.query(`SELECT ${db.quoted}.restore_dead_letters(ids => $1)`, [[head]]);
    const read = (await rowsRead()) - before;
    await client.query('COMMIT');
    expect(read).toBeLessThan(100);
    expect(await lane(queue)).toMatchObject({ blocked_by: head });
  });

  it('P1 continues at a destination that does not block keys any more', async () => {
    const queue = await makeQueue(db, { whenDead: 'block' });
    const [head = '', second = ''] = await makeBlocked(queue, 'k');
    await discard(head);
    await db.query(`UPDATE ${db.quoted}.destinations SET when_dead = 'continue' WHERE id = $1`, [
      queue.id,
    ]);
    await restore(head);
    expect(await lane(queue)).toMatchObject({ blocked_by: null });
    expect((await queue.claim({ limit: 1 })).ids).toEqual([second]);
  });

  it('P1 a letter that was parked is not sent with a later dead letter of its key', async () => {
    const queue = await makeQueue(db, { whenDead: 'park' });
    const [head = '', parked = '', third = ''] = await makeBlocked(queue, 'k');
    // both are discarded, and the third message dies
    expect(await discard(head, parked)).toBe(2);
    const claim = await queue.claim();
    expect(claim.ids).toEqual([third]);
    await settle(db, claim, [{ id: third, outcome: 'reject', errorCode: 'no' }]);
    await restore(parked);
    await count('retry_dead_letters(ids => $1)', [[third]]);
    expect((await queue.claim()).ids).toEqual([third]);
    expect(await idsOf(queue)).toEqual([parked]);
  });
});

describe('the undo of a job', () => {
  it('W5 restores what the job discarded at all destinations, and nothing else, once', async () => {
    const [one, two] = [await makeQueue(db), await makeQueue(db)];
    const ids = [...(await makeDead(one, 2, 'mine')), ...(await makeDead(two, 1, 'mine'))];
    const [other = ''] = await makeDead(one, 1, 'other');
    await discard(other);
    const ask = await jobOperator(db);
    const wanted = { action: 'discard', causes: ['mine'] };
    const { body: plan } = await ask('POST', '/api/dead-letters/plan', wanted);
    const { deadBefore } = plan;
    const { body: job } = await ask('POST', '/api/dead-letters/jobs', { ...wanted, deadBefore });
    expect(await untilJob(ask, job['id'], 'done')).toMatchObject({ done: 3, canUndo: true });
    const address = `/api/dead-letters/jobs/${String(job['id'])}/undo`;
    const { body: undo } = await ask('POST', address);
    expect(undo).toMatchObject({ action: 'restore', planned: 3, filter: { job: job['id'] } });
    await untilJob(ask, undo['id'], 'done');
    expect([...(await idsOf(one)), ...(await idsOf(two))].toSorted()).toEqual(ids.toSorted());
    const { body: done } = await ask('GET', `/api/dead-letters/jobs/${String(job['id'])}`);
    expect(done).toMatchObject({ canUndo: false });
    expect(await ask('POST', address)).toMatchObject({
      status: 409,
      body: { error: expect.stringContaining('has nothing left to restore') as unknown },
    });
    expect(await ask('POST', `/api/dead-letters/jobs/${String(undo['id'])}/undo`)).toMatchObject({
      status: 409,
      body: { error: expect.stringContaining('is a restore: only a discard') as unknown },
    });
  });

  it('W5 continues after its runner died, and counts each letter once', async () => {
    const queue = await makeQueue(db);
    const ids = await makeDead(queue, 3, 'no');
    const discarding = await startHeldJob(db, queue.name);
    const step = (job: { id: string; token: string }, most: number) =>
      db.query(`SELECT ${db.quoted}.job_step($1, $2, $3)`, [job.id, job.token, most]);
    await step(discarding, 10);
    const ask = await jobOperator(db);
    // it has not ended: its last step found nothing to do yet
    expect(await ask('POST', `/api/dead-letters/jobs/${discarding.id}/undo`)).toMatchObject({
      status: 409,
      body: { error: expect.stringContaining('is running: stop it first') as unknown },
    });
    await step(discarding, 10);
    const { rows } = await db.query<{ id: string; token: string }>(
      `SELECT job_id AS id, token::text FROM ${db.quoted}.start_job('restore', NULL, gen_random_uuid(), 60000, undone_job => $1)`,
      [discarding.id],
    );
    const restoring = only(rows);
    await step(restoring, 2);
    expect(await queue.deadLetters()).toHaveLength(2);
    await lapse(db, restoring.id);
    await ask('POST', `/api/dead-letters/jobs/${restoring.id}/resume`);
    expect(await untilJob(ask, restoring.id, 'done')).toMatchObject({ planned: 3, done: 3 });
    expect(await idsOf(queue)).toEqual(ids.toSorted());
  });

  it('W5 is started once: of operators who undo a job at the same time, one succeeds', async () => {
    const queue = await makeQueue(db);
    const ids = await makeDead(queue, 3, 'no');
    const discarding = await startHeldJob(db, queue.name);
    for (let step = 0; step < 2; step += 1)
      await db.query(`SELECT ${db.quoted}.job_step($1, $2)`, [discarding.id, discarding.token]);
    const [first, second] = [await db.connect(), await db.connect()];
    const undo = (on: pg.Client) =>
      on.query<{ id: string; token: string }>(
        `SELECT job_id AS id, token::text FROM ${db.quoted}.start_job('restore', NULL, gen_random_uuid(), 60000, undone_job => $1)`,
        [discarding.id],
      );
    await first.query('BEGIN');
    const restoring = only((await undo(first)).rows);
    const backend = await backendId(second);
    const refused = undo(second)
      .then(() => 'started')
      .catch((error: unknown) => error);
    await waitUntilBlocked(db, backend);
    await first.query('COMMIT');
    const words = `the job ${discarding.id} is being undone by the job ${restoring.id}`;
    expect(await refused).toMatchObject({
      code: '55006',
      message: expect.stringContaining(words) as string,
    });
    const ask = await jobOperator(db);
    const path = `/api/dead-letters/jobs/${discarding.id}/undo`;
    expect((await jobOf(ask, discarding.id))['canUndo']).toBe(false);
    expect((await ask('POST', path)).status).toBe(409);
    // one that was stopped leaves the rest to another
    await db.query(`SELECT ${db.quoted}.job_step($1, $2, 1)`, [restoring.id, restoring.token]);
    await ask('DELETE', `/api/dead-letters/jobs/${restoring.id}`);
    const { body } = await ask('POST', path);
    expect(await untilJob(ask, body['id'], 'done')).toMatchObject({ planned: 2, done: 2 });
    expect(await idsOf(queue)).toEqual(ids.toSorted());
  });

  it('W5 is not offered after the letters were replayed', async () => {
    const queue = await makeQueue(db);
    const other = await makeQueue(db);
    const ids = await makeDead(queue, 2, 'no');
    const discarding = await startHeldJob(db, queue.name);
    for (let step = 0; step < 2; step += 1)
      await db.query(`SELECT ${db.quoted}.job_step($1, $2)`, [discarding.id, discarding.token]);
    const ask = await jobOperator(db);
    const canUndo = async () => (await jobOf(ask, discarding.id))['canUndo'];
    // at another destination they are other deliveries
    await replay(other, ...ids);
    await replay(queue, ids[0] ?? '');
    expect(await canUndo()).toBe(true);
    await replay(queue, ids[1] ?? '');
    expect(await canUndo()).toBe(false);
  });

  it('W5 passes over letters that cannot be restored in steps of the same size', async () => {
    const queue = await makeQueue(db);
    const ids = await makeDead(queue, 5, 'no');
    const discarding = await startHeldJob(db, queue.name);
    const step = async (job: { id: string; token: string }, most: number) => {
      const { rows } = await db.query<{ changed: number; state: string; goes_on: boolean }>(
        `SELECT * FROM ${db.quoted}.job_step($1, $2, $3)`,
        [job.id, job.token, most],
      );
      return only(rows);
    };
    await step(discarding, 10);
    await step(discarding, 10);
    // the oldest four
    for (const id of ids.toSorted().slice(0, 4)) await forget(id);
    const { rows } = await db.query<{ id: string; token: string }>(
      `SELECT job_id AS id, token::text FROM ${db.quoted}.start_job('restore', NULL, gen_random_uuid(), 60000, undone_job => $1)`,
      [discarding.id],
    );
    const restoring = only(rows);
    const steps = [];
    for (let goesOn = true; goesOn; goesOn = steps.at(-1)?.goes_on ?? false)
      steps.push(await step(restoring, 2));
    expect(steps.map(({ changed }) => changed)).toEqual([0, 0, 1, 0]);
    expect(steps.at(-1)).toMatchObject({ state: 'done' });
    expect(await idsOf(queue)).toEqual(ids.toSorted().slice(4));
  });

  it('P13 a restore that is limited to a tenant leaves out letters of others', async () => {
    const queue = await makeQueue(db);
    const ids: string[] = [];
    for (const tenantId of ['acme', 'globex', undefined])
      ids.push(await queue.enqueueOne(tenantId === undefined ? {} : { tenantId }));
    const claim = await queue.claim();
    await settle(
      db,
      claim,
      claim.ids.map((id) => ({ id, outcome: 'reject', errorCode: 'no' })),
    );
    await discard(...ids);
    const { rows } = await db.query<{ job_id: string; token: string }>(
      `SELECT job_id, token::text
         FROM ${db.quoted}.start_job('restore', NULL, gen_random_uuid(), 60000, ids => $1, tenant_id => 'acme',
                limited_to => 'acme')`,
      [ids],
    );
    const { job_id: id, token } = only(rows);
    const { rows: steps } = await db.query(`SELECT changed FROM ${db.quoted}.job_step($1, $2)`, [
      id,
      token,
    ]);
    expect(steps).toEqual([{ changed: 1 }]);
    const { rows: jobs } = await db.query(
      `SELECT planned::int FROM ${db.quoted}.jobs WHERE id = $1`,
      [id],
    );
    expect(jobs).toEqual([{ planned: 1 }]);
    expect(await idsOf(queue)).toEqual([ids[0]]);
  });

  it('P13 by a token of one tenant is possible for jobs of such tokens only', async () => {
    const queue = await makeQueue(db);
    await makeDead(queue, 1, 'no', { tenantId: 'acme' });
    const job = await startHeldJob(db, queue.name);
    for (let step = 0; step < 2; step += 1)
      await db.query(`SELECT ${db.quoted}.job_step($1, $2)`, [job.id, job.token]);
    const server = await serveDatabase(db);
    const acme = await server.as('operate', 'acme');
    const undo = `/api/dead-letters/jobs/${job.id}/undo`;
    expect(await acme('POST', undo)).toMatchObject({ status: 404 });
    expect(await (await server.as('read'))('POST', undo)).toMatchObject({ status: 403 });
    expect(await queue.deadLetters()).toEqual([]);
  });
});

describe('the undo of one discard', () => {
  it('W5 over HTTP says why nothing can be restored', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await makeDead(queue, 1, 'no', { tenantId: 'acme' });
    const server = await serveDatabase(db);
    const [ask, foreign] = [await server.as('operate'), await server.as('operate', 'globex')];
    const undo = (who = ask, message = id) => who('POST', `/api/messages/${message}/restore`, {});
    const error = (words: string) => ({ error: expect.stringContaining(words) as unknown });
    expect(await undo()).toMatchObject({
      status: 409,
      body: error(`is dead at ${queue.name}: only a discarded dead letter can be restored`),
    });
    await ask('POST', `/api/messages/${id}/delete`, {});
    expect(await undo(foreign)).toMatchObject({ status: 404 });
    expect(await undo()).toMatchObject({ status: 200, body: { restored: 1 } });
    expect(await undo()).toMatchObject({ status: 409 });
    await ask('POST', `/api/messages/${id}/delete`, {});
    await forget(id);
    expect(await undo()).toMatchObject({ status: 404, body: error('retention has removed it') });
    const cancelled = await queue.enqueueOne();
    await ask('POST', `/api/messages/${cancelled}/delete`, {});
    expect(await undo(ask, cancelled)).toMatchObject({
      status: 409,
      body: error(
        'no dead letter of it is kept: it was cancelled, moved or too old before it died, or retention discarded it',
      ),
    });
  });

  it('M13 on the command line restores messages or a job, and says when there is nothing', async () => {
    const queue = await makeQueue(db);
    const ids = await makeDead(queue, 2, 'no');
    const letters = (...args: string[]) => cliOn(db, ['dead-letters', ...args]);
    await letters('discard', '--destination', queue.name, '--yes');
    expect(await letters('restore', ids[0] ?? '')).toMatchObject({ code: 4 });
    expect(await letters('restore', ids[0] ?? '', '--yes')).toMatchObject({
      code: 0,
      stdout: 'restore: 1\n',
    });
    const again = await letters('restore', ids[0] ?? '', '--yes');
    expect(again).toMatchObject({ code: 3 });
    expect(again.stderr).toContain('nothing was restored: only a discarded dead letter can be');
    const { rows } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.jobs WHERE action = 'discard' AND filter ->> 'destination' = $1`,
      [queue.name],
    );
    expect(await letters('restore', '--job', only(rows).id, '--yes')).toMatchObject({ code: 0 });
    expect(await idsOf(queue)).toEqual(ids.toSorted());
    expect(await letters('restore')).toMatchObject({ code: 2 });
    expect(await letters('restore', '--job', 'x')).toMatchObject({ code: 2 });
  });
});
