// `explain` answers why a message is not delivered: one test for each reason that the database gives.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { cliOn, json } from '../support/cli.js';
import { only } from '../support/only.js';
import { makeQueue as makeAnyQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { expire, settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();

type Answer = {
  destination: string | null;
  status: string;
  reason: string;
  sentence: string;
  remedy: string | null;
};

async function explain(id: string): Promise<Answer> {
  const { rows } = await db.query<Answer>(`SELECT * FROM ${db.quoted}.explain($1)`, [id]);
  return only(rows);
}

async function serve(queue: Queue): Promise<void> {
  await db.query(`SELECT ${db.quoted}.heartbeat($1, 'worker-1:77', '0.1.0', 'abc', $2)`, [
    randomUUID(),
    [queue.name],
  ]);
}

async function kill(queue: Queue): Promise<string> {
  const claim = await queue.claimOne();
  await settle(db, claim, [
    { id: claim.id, outcome: 'reject', errorCode: 'http_status', remoteCode: '422' },
  ]);
  return claim.id;
}

async function deadOf(queue: Queue): Promise<string> {
  await queue.enqueueOne();
  return kill(queue);
}

type Options = Parameters<typeof makeAnyQueue>[1];

/** For workers, which send no heartbeat. */
async function makeQueue(options: Options = {}): Promise<Queue> {
  return makeAnyQueue(db, { kind: 'worker', ...options });
}

async function makeRelayQueue(): Promise<Queue> {
  return makeAnyQueue(db, { kind: 'handler' });
}

describe('explain', () => {
  it('P14 W8 reports an unknown message', async () => {
    const id = randomUUID();
    expect(await explain(id)).toMatchObject({
      destination: null,
      status: 'unknown',
      reason: 'unknown_message',
      sentence: expect.stringContaining(id) as string,
    });
  });

  it('W8 reports an unrouted message', async () => {
    const { rows } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.enqueue(topic => 'never.routed')`,
    );
    expect(await explain(only(rows).id)).toMatchObject({
      status: 'unrouted',
      reason: 'no_route',
      sentence: 'No route and no cursor wants it. It is kept until it is routed or discarded.',
    });
  });

  it('W8 reports when a delayed unrouted message is due once it is routed', async () => {
    const { rows } = await db.query<{ id: string; at: string }>(
      `SELECT e.id, to_char((now() + interval '1 hour') AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') AS at
         FROM ${db.quoted}.enqueue(topic => 'never.routed', delay => '1 hour') e`,
    );
    const { id, at } = only(rows);
    expect(await explain(id)).toMatchObject({
      status: 'unrouted',
      reason: 'no_route',
      sentence: expect.stringContaining(
        `It is scheduled for ${at} UTC: if it is routed before, it waits until then.`,
      ) as string,
    });
    await db.query(
      `UPDATE ${db.quoted}.unrouted_messages SET available_at = '2026-01-31 12:00Z' WHERE message_id = $1`,
      [id],
    );
    expect(await explain(id)).toMatchObject({
      sentence: expect.stringContaining(
        'It was scheduled for 2026-01-31 12:00:00 UTC: it is due as soon as it is routed.',
      ) as string,
    });
  });

  it('W8 reports a due message with a relay that serves it', async () => {
    const queue = await makeRelayQueue();
    await serve(queue);
    expect(await explain(await queue.enqueueOne())).toMatchObject({
      destination: queue.name,
      status: 'pending',
      reason: 'due',
      remedy: null,
    });
  });

  it('W8 reports a due message whose destination no living relay serves', async () => {
    const queue = await makeRelayQueue();
    const id = await queue.enqueueOne();
    expect(await explain(id)).toMatchObject({ reason: 'no_relay' });
    await serve(queue);
    await db.query(
      `UPDATE ${db.quoted}.relays SET heartbeat_at = heartbeat_at - interval '1 minute' WHERE $1 = ANY (destinations)`,
      [queue.name],
    );
    expect(await explain(id)).toMatchObject({ reason: 'no_relay' });
  });

  it('W8 does not report a missing relay for workers, which send no heartbeat', async () => {
    const queue = await makeQueue();
    expect(await explain(await queue.enqueueOne())).toMatchObject({ reason: 'due' });
  });

  it('W8 reports a message that is scheduled for later', async () => {
    const queue = await makeQueue();
    const id = await queue.enqueueOne({ availableAt: '2999-12-31T23:59:58Z' });
    expect(await explain(id)).toMatchObject({
      reason: 'scheduled',
      sentence: 'It is scheduled for 2999-12-31 23:59:58 UTC.',
    });
  });

  it('W8 reports a message that waits for a retry: which, when, and after what', async () => {
    const queue = await makeQueue({ maxAttempts: 7 });
    const ids = await queue.enqueue(2);
    const [id = '', other = ''] = ids;
    const claim = await queue.claim();
    await settle(
      db,
      claim,
      ids.map((each) => ({
        id: each,
        outcome: 'retry' as const,
        retryAfterMs: 3_600_000,
        errorCode: 'http_status',
        remoteCode: '503',
        errorMessage: 'busy\nnow',
      })),
    );
    const answer = await explain(id);
    expect(answer).toMatchObject({ status: 'pending', reason: 'retrying' });
    expect(answer.sentence).toMatch(/^Try 2 of 7 is at .* UTC, after http_status 503: busy now\.$/);
    // the remedy can be pasted in every schema
    await db.query(answer.remedy?.replace(/^To retry now: /, '') ?? '');
    expect((await explain(id)).reason).not.toBe('retrying');
    expect((await explain(other)).reason).toBe('retrying');
  });

  it('W8 names the relay or worker that holds a message', async () => {
    const queue = await makeQueue();
    const id = await queue.enqueueOne();
    const { relayId } = await queue.claimOne();
    expect(await explain(id)).toMatchObject({
      status: 'processing',
      reason: 'leased',
      sentence: expect.stringContaining(`worker ${relayId} has held it`) as string,
    });
    await db.query(`SELECT ${db.quoted}.heartbeat($1, 'shop:9', '0.1.0', 'abc', '{}')`, [relayId]);
    expect((await explain(id)).sentence).toContain('relay shop:9 has held it');
  });

  it('W8 reports a holder whose lease has expired', async () => {
    const queue = await makeQueue();
    const id = await queue.enqueueOne();
    await expire(db, await queue.claimOne());
    expect(await explain(id)).toMatchObject({ status: 'processing', reason: 'zombie' });
  });

  it('W8 reports a paused destination', async () => {
    const queue = await makeQueue();
    const id = await queue.enqueueOne();
    await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [queue.name]);
    expect(await explain(id)).toMatchObject({
      reason: 'paused',
      sentence: expect.stringMatching(
        /^The destination has been paused since .* UTC by .*\.$/,
      ) as string,
      remedy: `Fix the cause, then: waybill destinations resume ${queue.name}`,
    });
  });

  it('W8 reports a destination whose breaker is open at every relay', async () => {
    const queue = await makeRelayQueue();
    await serve(queue);
    const id = await queue.enqueueOne();
    const breakers = JSON.stringify({ [queue.name]: { state: 'open', since: '', failures: 10 } });
    await db.query(`UPDATE ${db.quoted}.relays SET breakers = $2 WHERE $1 = ANY (destinations)`, [
      queue.name,
      breakers,
    ]);
    expect(await explain(id)).toMatchObject({ reason: 'breaker_open' });
    await serve(queue);
    expect(await explain(id)).toMatchObject({ reason: 'due' });
  });

  it('W8 reports a destination whose rate limit is used up at every relay', async () => {
    const queue = await makeRelayQueue();
    await serve(queue);
    const id = await queue.enqueueOne();
    const limit = (names: string[]) =>
      db.query(
        `SELECT ${db.quoted}.tell_limits(id, $2) FROM ${db.quoted}.relays WHERE $1 = ANY (destinations)`,
        [queue.name, names],
      );
    await limit(['another']);
    expect(await explain(id)).toMatchObject({ reason: 'due' });
    await limit(['another', queue.name]);
    const answer = await explain(id);
    expect(answer).toMatchObject({ status: 'pending', reason: 'rate_limited' });
    expect(answer.sentence).toContain(`the rate limit of ${queue.name} is used up`);
    await db.query(`UPDATE ${db.quoted}.destinations SET rate_per_second = 2.5 WHERE id = $1`, [
      queue.id,
    ]);
    expect((await explain(id)).sentence).toContain(`${queue.name}, 2.5 a second, is used up`);
    await serve(queue);
    expect(await explain(id), 'another relay has some left').toMatchObject({ reason: 'due' });
  });

  it('W8 reports a destination that left the configuration', async () => {
    const queue = await makeQueue();
    const id = await queue.enqueueOne();
    await db.query(`UPDATE ${db.quoted}.destinations SET configured = false WHERE id = $1`, [
      queue.id,
    ]);
    expect(await explain(id)).toMatchObject({ reason: 'unconfigured' });
  });

  it('W8 reports a message behind another of its key that is pending or leased', async () => {
    const queue = await makeQueue();
    const [first = '', second = ''] = await queue.enqueue(2, { key: 'k' });
    expect(await explain(second)).toMatchObject({
      reason: 'behind',
      remedy: `waybill explain ${first}`,
    });
    await queue.claimOne();
    expect(await explain(second)).toMatchObject({
      reason: 'behind',
      remedy: `waybill explain ${first}`,
    });
    expect(await explain(first)).toMatchObject({ reason: 'leased' });
  });

  it('W8 reports a message behind a dead letter that blocks its key', async () => {
    const queue = await makeQueue({ whenDead: 'block' });
    const [head = '', follower = ''] = await queue.enqueue(2, { key: 'k' });
    expect(await kill(queue)).toBe(head);
    expect(await explain(follower)).toMatchObject({
      reason: 'blocked',
      sentence: `Its key is blocked by the dead letter ${head}.`,
    });
  });

  it('W8 reports a message that is parked behind a dead letter', async () => {
    const queue = await makeQueue({ whenDead: 'park' });
    const [, follower = ''] = await queue.enqueue(2, { key: "o'k" });
    await kill(queue);
    await queue.claim();
    expect(await explain(follower)).toMatchObject({ status: 'dead', reason: 'parked' });
  });

  it('W8 M13 reports a dead message: since when, why, after how many tries', async () => {
    const queue = await makeQueue();
    const id = await queue.enqueueOne();
    await kill(queue);
    const answer = await explain(id);
    expect(answer).toMatchObject({ status: 'dead', reason: 'dead' });
    expect(answer.sentence).toMatch(
      /^It has been dead since .* UTC: refused for good \(http_status 422\) after 1 try\.$/,
    );
  });

  it('W8 reports a delivered message with its receipt', async () => {
    const queue = await makeQueue();
    const id = await queue.enqueueOne();
    const claim = await queue.claimOne();
    await settle(db, claim, [{ id, outcome: 'delivered', reference: 'orders/3/42' }]);
    const answer = await explain(id);
    expect(answer).toMatchObject({ status: 'delivered', reason: 'delivered', remedy: null });
    expect(answer.sentence).toMatch(/at try 1, receipt orders\/3\/42\.$/);
  });

  it('W8 reports a message delivered without a receipt, and a discarded one', async () => {
    const queue = await makeQueue();
    const [delivered = '', discarded = ''] = await queue.enqueue(2);
    await settleDelivered(db, await queue.claimOne());
    await db.query(`SELECT ${db.quoted}.discard_deliveries($1)`, [queue.name]);
    expect((await explain(delivered)).sentence).toMatch(/at try 1\.$/);
    expect(await explain(discarded)).toMatchObject({ status: 'discarded', reason: 'discarded' });
  });

  it.each([
    ['discard_dead_letters', 'was discarded at .*, by an operator or by retention'],
    ['discard_deliveries', 'operator cancelled its delivery at'],
    ['move_deliveries', 'operator moved it to another destination at'],
  ])('W8 says why a message was discarded: %s', async (verb, words) => {
    const [queue, other] = [await makeQueue(), await makeQueue()];
    const id = verb === 'discard_dead_letters' ? await deadOf(queue) : await queue.enqueueOne();
    await db.query(
      `SELECT ${db.quoted}.${verb}($1${verb === 'move_deliveries' ? ', $2' : ''})`,
      verb === 'move_deliveries' ? [queue.name, other.name] : [queue.name],
    );
    const { rows } = await db.query<Answer>(
      `SELECT * FROM ${db.quoted}.explain($1) WHERE destination = $2`,
      [id, queue.name],
    );
    expect(only(rows).sentence).toMatch(new RegExp(words));
  });

  it('W8 gives one answer for each destination', async () => {
    const queue = await makeQueue();
    const other = await makeQueue();
    await db.query(`INSERT INTO ${db.quoted}.routes (destination_id, topic) VALUES ($1, $2)`, [
      other.id,
      queue.topic,
    ]);
    const id = await queue.enqueueOne();
    await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [other.name]);
    const { rows } = await db.query<Answer>(`SELECT * FROM ${db.quoted}.explain($1)`, [id]);
    expect(new Map(rows.map((row) => [row.destination, row.reason]))).toEqual(
      new Map([
        [queue.name, 'due'],
        [other.name, 'paused'],
      ]),
    );
  });

  it('N4 W8 reports a message that a cursor has not read yet', async () => {
    const topic = `stream-${randomUUID()}`;
    await db.query(`SELECT ${db.quoted}.define_destination('reader', 'worker')`);
    await db.query(`SELECT ${db.quoted}.define_cursor('reader', p_topics => $1)`, [[topic]]);
    const { rows } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.enqueue(topic => $1)`,
      [topic],
    );
    expect(await explain(only(rows).id)).toMatchObject({
      destination: 'reader',
      reason: 'not_read',
      remedy: 'Start a relay or a subscription that reads reader.',
    });
  });

  it('W8 works on the command line, with an exit code', async () => {
    const queue = await makeQueue();
    const id = await queue.enqueueOne({ availableAt: '2999-01-01T00:00:00Z' });
    const waybill = (...args: string[]) => cliOn(db, ['explain', ...args]);
    expect(await waybill(id)).toMatchObject({
      code: 0,
      stdout: `${queue.name}: pending. It is scheduled for 2999-01-01 00:00:00 UTC.\n`,
    });
    expect(json(await waybill(id, '--json'))).toMatchObject([{ reason: 'scheduled' }]);
    expect(await waybill(randomUUID())).toMatchObject({ code: 3 });
    expect(await waybill('nonsense')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('give a message id: a UUID') as string,
    });
  });
});
