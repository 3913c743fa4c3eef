// Actions of operators on messages: on pending ones, on dead letters, and on replayed ones.

import { expect } from 'vitest';

import { addRoute, defineDestination } from '../../support/destinations.js';
import { makeBlocked, makeDead, makeRetrying } from '../../support/letters.js';
import { only } from '../../support/only.js';
import { makeQueue } from '../../support/outbox.js';
import type { TestDatabase } from '../../support/postgres.js';
import { settleDelivered } from '../../support/settling.js';
import { waitFor } from '../../support/wait.js';
import { record } from './recorded.js';
import type { Actions, Records } from './recorded.js';

export function actionsOnMessages(records: Records): Actions {
  const { db, call, recorded } = records;
  return {
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
    async restore_dead_letters() {
      const queue = await makeQueue(db);
      const ids = await makeDead(queue, 2, 'broken');
      await call('discard_dead_letters(ids => $1)', [ids]);
      const work = () => call("restore_dead_letters(ids => $1, actor => 'ann')", [ids]);
      expect(await recorded(work)).toEqual([record('restore_dead_letters', 2, { ids })]);
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
    async release_misdated() {
      const queue = await makeQueue(db);
      await queue.enqueue(2);
      // as a clock that ran ahead would have dated them
      await db.query(
        `UPDATE ${db.quoted}.deliveries SET available_at = available_at + interval '1 day' WHERE destination_id = $1`,
        [queue.id],
      );
      expect(await recorded(() => call("release_misdated('ann')"))).toEqual([
        record('release_misdated', 2, { destination: queue.name }),
      ]);
    },
    async route_unrouted() {
      const id = await defineDestination(db, 'unrouted');
      await call("enqueue('nowhere.yet', '{}')");
      await addRoute(db, id, 'nowhere.yet');
      expect(await recorded(() => call("route_unrouted(actor => 'ann')"))).toEqual([
        record('route_unrouted', 1, {}),
      ]);
    },
    async discard_unrouted() {
      await call("enqueue('never.wanted', '{}')");
      const work = () => call("discard_unrouted('never.wanted', actor => 'ann')");
      expect(await recorded(work)).toEqual([
        record('discard_unrouted', 1, { topic: 'never.wanted' }),
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
    async send_test() {
      const { name } = await makeQueue(db);
      expect(await recorded(() => call("send_test($1, 'ann')", [name]))).toMatchObject([
        { actor: 'ann', action: 'send_test', count: 1, subject: { destination: name } },
      ]);
    },
    async start_replay() {
      const { name, replayId } = await startReplay(records);
      expect(await recorded(() => call("resume_replay($1, actor => 'ann')", [replayId]))).toEqual([
        record('resume_replay', 0, { replay: Number(replayId) }),
      ]);
      expect(await recorded(() => call('replay_step($1)', [replayId]))).toMatchObject([
        { actor: 'ann', action: 'replay', count: 1, subject: { destination: name } },
      ]);
    },
    async cancel_replay() {
      const { replayId } = await startReplay(records);
      expect(await recorded(() => call("cancel_replay($1, 'ann')", [replayId]))).toEqual([
        record('cancel_replay', 0, { replay: Number(replayId) }),
      ]);
    },
    async cancel_job() {
      const job = await startJob(db, 30_000);
      expect(await recorded(() => call("cancel_job($1, 'ann')", [job]))).toMatchObject([
        { actor: 'ann', action: 'cancel_job', count: 0, subject: { job, action: 'retry' } },
      ]);
      expect(await recorded(() => call("cancel_job($1, 'ann')", [job])), 'it had ended').toEqual(
        [],
      );
    },
    async resume_job() {
      const job = await startJob(db, 1);
      await waitFor(async () => !(await isHeld(db, job)), { what: 'the job to be given up' });
      const resume = () => call("resume_job($1, gen_random_uuid(), 30000, 'ann')", [job]);
      expect(await recorded(resume)).toMatchObject([
        { actor: 'ann', action: 'resume_job', count: 0, subject: { job, action: 'retry' } },
      ]);
      expect(await recorded(resume), 'a runner holds it').toEqual([]);
    },
  };
}

/** A job that is held for this long. */
async function startJob(db: TestDatabase, heldMs: number): Promise<string> {
  const { rows } = await db.query<{ job: string }>(
    `SELECT job_id AS job FROM ${db.quoted}.start_job('retry', now(), gen_random_uuid(), $1, actor => 'ann')`,
    [heldMs],
  );
  return only(rows).job;
}

async function isHeld(db: TestDatabase, job: string): Promise<boolean> {
  const { rows } = await db.query<{ held: boolean }>(
    `SELECT ${db.quoted}.is_taken('job ' || $1::uuid) AS held`,
    [job],
  );
  return only(rows).held;
}

/** One delivered message, to be replayed. */
async function startReplay({ db, recorded }: Records): Promise<{ name: string; replayId: string }> {
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
