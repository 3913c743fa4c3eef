// Replays over HTTP: planned, started with the values of the plan, run by the server, cancelled, and resumed by another
// server. The state of a replay is in the database.

import { describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { deliverAll, startReplay } from '../support/replays.js';
import { serveDatabase } from '../support/server.js';
import type { Ask } from '../support/server.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

async function operator(): Promise<Ask> {
  return (await serveDatabase(db)).as('operate');
}

async function history(count: number, fields = {}): Promise<{ queue: Queue; ids: string[] }> {
  const queue = await makeQueue(db);
  const ids = await queue.enqueue(count, fields);
  await deliverAll(db, queue);
  return { queue, ids };
}

async function until(ask: Ask, id: unknown, state: string): Promise<Record<string, unknown>> {
  let body: Record<string, unknown> = {};
  await waitFor(
    async () => {
      ({ body } = await ask('GET', `/api/replays/${String(id)}`));
      return body['state'] === state;
    },
    { what: `replay ${String(id)} to be ${state}` },
  );
  return body;
}

async function countReplays(queue: Queue): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM ${db.quoted}.replays WHERE destination_id = $1`,
    [queue.id],
  );
  return only(rows).count;
}

describe('a plan', () => {
  it('M5 W5 counts, shows the first messages, and changes nothing', async () => {
    const { queue, ids } = await history(7);
    const ask = await (await serveDatabase(db)).as('read');
    const { status, body } = await ask('POST', '/api/replays/plan', {
      destination: queue.name,
      topic: queue.topic,
    });
    expect(status).toBe(200);
    expect(body).toMatchObject({
      messages: 7,
      isExact: true,
      unfinished: null,
      until: expect.stringMatching(/^\d{4}-.*Z$/) as unknown,
      sample: ids.slice(0, 5).map((messageId) => ({ messageId, status: 'delivered' })),
    });
    expect(await countReplays(queue)).toBe(0);
    expect(await queue.waiting()).toEqual([]);
  });

  it('M5 reports that it took too long, with the remedy', async () => {
    const { queue } = await history(1);
    const server = await serveDatabase(db, {
      database: openDatabase(db, 'test_server', { statementTimeoutMs: 200 }),
    });
    const ask = await server.as('read');
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`LOCK TABLE ${db.quoted}.attempts IN ACCESS EXCLUSIVE MODE`);
    const { status, body } = await ask('POST', '/api/replays/plan', {
      destination: queue.name,
      topic: queue.topic,
    });
    await client.query('ROLLBACK');
    expect([status, body['error']]).toEqual([
      503,
      expect.stringContaining('give a narrower filter') as unknown,
    ]);
  });
});

describe('a replay', () => {
  it('M5 W5 replays what was planned and nothing newer, and is recorded with the actor and the number', async () => {
    const { queue, ids } = await history(4);
    const filter = { destination: queue.name, topic: queue.topic };
    const ask = await operator();
    const { body: plan } = await ask('POST', '/api/replays/plan', filter);
    const newer = await queue.enqueueOne();
    const asked = { ...filter, until: plan['until'], perSecond: 1000 };
    const { status, body } = await ask('POST', '/api/replays', asked);
    expect(status).toBe(200);
    expect(body).toMatchObject({ destination: queue.name, perSecond: 1000, error: null });
    expect(await until(ask, body['id'], 'done')).toMatchObject({
      replayed: 4,
      waiting: 0,
      processing: 0,
      running: false,
      filter: { topic: queue.topic },
    });
    expect((await deliverAll(db, queue)).toSorted()).toEqual([...ids, newer].toSorted());
    const { rows } = await db.query(
      `SELECT actor, action, subject ->> 'destination' AS destination, count::int
         FROM ${db.quoted}.operator_actions WHERE subject ->> 'replay' = $1 ORDER BY id`,
      [body['id']],
    );
    const actor = expect.stringMatching(/^api:operate-/) as unknown;
    expect(rows).toEqual([
      { actor, action: 'start_replay', destination: queue.name, count: 0 },
      { actor, action: 'replay', destination: queue.name, count: 4 },
    ]);
  });

  it('M5 W5 keeps its rate, shows its progress, and ends where it is cancelled', async () => {
    const { queue } = await history(40);
    const ask = await operator();
    const { body } = await ask('POST', '/api/replays', {
      destination: queue.name,
      topic: queue.topic,
      until: new Date().toISOString(),
      perSecond: 4,
    });
    const place = `/api/replays/${String(body['id'])}`;
    await waitFor(async () => Number((await ask('GET', place)).body['replayed']) >= 2, {
      what: 'the first steps',
    });
    expect((await ask('GET', place)).body).toMatchObject({ state: 'unfinished', running: true });
    const { body: cancelled } = await ask('DELETE', place);
    expect(cancelled).toMatchObject({ state: 'cancelled', running: false });
    const brought = Number(cancelled['replayed']);
    expect(brought).toBeLessThan(40);
    expect(await queue.waiting()).toHaveLength(brought);
    expect((await ask('POST', `${place}/resume`, {})).status).toBe(400);
    expect((await ask('DELETE', place)).body).toMatchObject({ state: 'cancelled' });
  });

  it('M5 W5 outlives its server: another one shows it as stopped and resumes it', async () => {
    const { queue, ids } = await history(30);
    const first = await serveDatabase(db);
    const { body } = await (
      await first.as('operate')
    )('POST', '/api/replays', {
      destination: queue.name,
      topic: queue.topic,
      until: new Date().toISOString(),
      perSecond: 4,
    });
    await waitFor(async () => (await queue.waiting()).length > 0, { what: 'the first step' });
    await first.close();
    const left = (await queue.waiting()).length;
    expect(left).toBeLessThan(30);
    // makes that look a while ago
    await db.query(
      `UPDATE ${db.quoted}.replays SET moved_at = moved_at - interval '1 minute' WHERE id = $1`,
      [body['id']],
    );
    const ask = await operator();
    const place = `/api/replays/${String(body['id'])}`;
    expect((await ask('GET', place)).body).toMatchObject({
      state: 'unfinished',
      running: false,
      replayed: left,
    });
    await ask('POST', `${place}/resume`, { perSecond: 1000 });
    expect(await until(ask, body['id'], 'done')).toMatchObject({ replayed: 30 });
    expect((await deliverAll(db, queue)).toSorted()).toEqual(ids.toSorted());
  });

  it('M5 the same request again continues the same replay', async () => {
    const queue = await makeQueue(db);
    const ask = await operator();
    const asked = {
      destination: queue.name,
      key: 'unknown',
      until: new Date().toISOString(),
    };
    const { replay_id: id } = await startReplay(db, queue.name, {
      key: 'unknown',
      until: asked.until,
    });
    expect((await ask('POST', '/api/replays', asked)).body['id']).toBe(id);
  });

  it.each([
    [{ topic: 'a' }, 'destination is missing: the destination of the replay'],
    [{ destination: 'D' }, 'which ones? Give ids, topic'],
    [{ destination: 'D', all: false }, 'which ones? Give ids, topic'],
    [{ destination: 'D', topic: 'a', until: null }, 'until is null: give a time such as'],
    [{ destination: 'D', topic: 'a', until: '' }, 'until is "": give a time such as'],
    [{ destination: 'D', ids: ['x'] }, 'give a list of 1 to 1000 UUIDs'],
    // an empty selection does not mean everything
    [{ destination: 'D', ids: [] }, 'give a list of 1 to 1000 UUIDs'],
    [{ destination: 'D', topic: 'a', perSecond: 0 }, 'perSecond is 0: give a whole number from 1'],
    [{ destination: 'D', topic: 'a', since: '2026-02-01T00:00:00Z' }, 'give an earlier since'],
  ])('M5 %j is refused with the reason', async (fields, words) => {
    const queue = await makeQueue(db);
    const ask = await operator();
    const { status, body } = await ask('POST', '/api/replays', {
      until: '2026-01-01T00:00:00Z',
      ...fields,
      ...('destination' in fields && { destination: queue.name }),
    });
    expect([status, body['error']]).toEqual([400, expect.stringContaining(words) as unknown]);
    expect(await countReplays(queue)).toBe(0);
  });

  it('M5 a start without the time of a plan is refused', async () => {
    const { queue } = await history(1);
    const ask = await operator();
    const { status, body } = await ask('POST', '/api/replays', {
      destination: queue.name,
      topic: queue.topic,
    });
    expect([status, body['error']]).toEqual([400, 'until is missing: use the value from the plan']);
  });

  it('M5 an unknown destination or number is not found', async () => {
    const ask = await operator();
    const nowhere = { destination: 'nowhere', all: true, until: '2026-01-01T00:00:00Z' };
    expect((await ask('POST', '/api/replays', nowhere)).status).toBe(404);
    expect((await ask('POST', '/api/replays/plan', nowhere)).status).toBe(404);
    expect((await ask('GET', '/api/replays/999999')).status).toBe(404);
    expect((await ask('DELETE', '/api/replays/999999')).status).toBe(404);
    expect((await ask('POST', '/api/replays/999999/resume', {})).status).toBe(404);
  });
});
