// A test message: an ordinary message to one destination only, delivered by the relay that serves it, and recorded with
// its sender.

import { describe, expect, it } from 'vitest';

import { sendTest } from '../../src/database/definitions.js';
import { readDestinations } from '../../src/listing/reports.js';
import { handler } from '../../src/destinations/handler.js';
import { subscribe } from '../../src/consumer/subscribe.js';
import { cliOn, json } from '../support/cli.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase, startRelay, untilPlaces } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import { cursorName } from '../support/streams.js';

const db = testDatabase();

describe('a test of a destination', { timeout: 30_000 }, () => {
  it('M13 goes to that destination only, whatever the routes say, and is recorded with its sender', async () => {
    const [queue, other] = [await makeQueue(db), await makeQueue(db)];
    await db.query(`INSERT INTO ${db.quoted}.routes (destination_id, topic) VALUES ($1, '*')`, [
      other.id,
    ]);
    const id = await sendTest(openDatabase(db), queue.name, 'ann');
    expect((await other.claim()).ids).toEqual([]);
    const claim = await queue.claimOne();
    expect(claim.id).toBe(id);
    expect(claim.row).toMatchObject({
      topic: 'waybill.test',
      payload: { test: true, destination: queue.name },
      headers: { actor: 'ann' },
    });
    const { rows } = await db.query(
      `SELECT actor, action, subject, count::int FROM ${db.quoted}.operator_actions WHERE subject ->> 'messageId' = $1`,
      [id],
    );
    expect(only(rows)).toEqual({
      actor: 'ann',
      action: 'send_test',
      subject: { destination: queue.name, messageId: id },
      count: 1,
    });
  });

  it('M13 is refused where no relay would deliver it, with the reason', async () => {
    const database = openDatabase(db);
    const queue = await makeQueue(db);
    await expect(sendTest(database, 'unknown', 'ann')).rejects.toThrow('unknown');
    await db.query(`UPDATE ${db.quoted}.destinations SET configured = false WHERE id = $1`, [
      queue.id,
    ]);
    await expect(sendTest(database, queue.name, 'ann')).rejects.toThrow(
      `destination is "${queue.name}", which is in no configuration any more`,
    );
    const name = cursorName();
    const reading = await subscribe(
      { name, topics: ['x'], database: { url: db.url, schema: db.schema } },
      () => Promise.resolve(),
    );
    await reading.stop();
    await expect(sendTest(database, name, 'ann')).rejects.toThrow('reads the log with a cursor');
    const server = await serveDatabase(db);
    const ask = await server.as('operate');
    expect(await ask('POST', `/api/destinations/${name}/test`)).toMatchObject({
      status: 400,
      body: { error: expect.stringContaining('reads the log') as string },
    });
  });

  it('M13 is delivered by the relay that serves it, and the command line waits for that', async () => {
    const taken: unknown[] = [];
    await startRelay(db, {
      destinations: {
        good: handler((message) => void taken.push([message.topic, message.payload]), {
          rate: { perSecond: 50 },
          breaker: {},
        }),
      },
    });
    const { code, stdout } = await cliOn(db, ['destinations', 'test', 'good']);
    expect(stdout).toMatch(/^good took test [0-9a-f-]{36} in \d+ ms\n$/);
    expect(code).toBe(0);
    expect(taken).toEqual([['waybill.test', { test: true, destination: 'good' }]]);
    const reported = await readDestinations(openDatabase(db));
    expect(reported.find(({ name }) => name === 'good')).toMatchObject({
      ratePerSecond: 50,
      hasBreaker: true,
    });
  });

  it('M13 one that fails, or that no relay claims, is an error with the reason', async () => {
    await startRelay(db, {
      destinations: {
        bad: handler(() => {
          throw new Error('it is raining');
        }),
      },
    });
    const failed = await cliOn(db, ['destinations', 'test', 'bad', '--json']);
    expect(failed.code).toBe(1);
    expect(json({ ...failed, code: 0 })).toMatchObject({
      status: 'pending',
      attempt: { state: 'retryable', errorMessage: expect.stringContaining('raining') as string },
    });
    await untilPlaces(db, 'bad', { waiting: 1 });
    const queue = await makeQueue(db, { kind: 'webhook' });
    const unserved = await cliOn(db, ['destinations', 'test', queue.name, '--wait', '1']);
    expect(unserved).toMatchObject({
      code: 1,
      stdout: expect.stringContaining('no living relay serves') as string,
    });
    expect(await cliOn(db, ['destinations', 'test', 'nowhere'])).toMatchObject({ code: 3 });
  });
});
