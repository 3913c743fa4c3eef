// A shadow: what Waybill would have sent is stored beside what the other system sent, and nothing is sent.

import { describe, expect, it } from 'vitest';

import { webhook } from '../../src/destinations/webhook/webhook.js';
import { countVerdicts, newestComparisonsSince } from '../../src/features/rollouts/database.js';
import { cliOn, json } from '../support/cli.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase, send, startRelay, untilPlaces } from '../support/relay.js';
import { loopback, serve } from '../support/relay-partner.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();

/** A relay with a webhook in the shadow, and the number of calls. */
async function inShadow(name: string, guard?: () => { code: string; message: string } | undefined) {
  const calls: string[] = [];
  const server = await serve((request, response) => {
    calls.push(request.url ?? '');
    response.end();
  });
  // this file has no routes of earlier tests
  await db.query(`UPDATE ${db.quoted}.rollouts SET percent = 0`);
  const relay = await startRelay(db, {
    destinations: {
      [name]: webhook({
        url: server.url,
        body: 'envelope',
        allowedNetworks: loopback,
        ...(guard && { guard }),
      }),
    },
    routes: [{ topic: `${name}.*`, to: name, rollout: name }],
  });
  await db.query(`SELECT ${db.quoted}.set_rollout($1, shadow => true)`, [name]);
  return { calls, relay };
}

async function reported(name: string, reference: string, body: unknown): Promise<void> {
  await db.query(`SELECT ${db.quoted}.report_sent($1, $2, $3)`, [
    name,
    reference,
    JSON.stringify(body),
  ]);
}

const verdictsOf = async (name: string, ignore: string[] = []) => {
  // older than the time that each side has
  await db.query(
    `UPDATE ${db.quoted}.shadow_comparisons SET first_at = first_at - interval '2 minutes'`,
  );
  return countVerdicts(openDatabase(db), name, { ignore });
};

describe('a rollout in the shadow', () => {
  it('W6 renders and compares what the webhook would get, and sends nothing', async () => {
    const { calls } = await inShadow('signups');
    await send(
      db,
      ['a', 'b', 'c'].map((user) => ({
        topic: 'signups.registered',
        payload: { user },
        dedupeKey: `registered/${user}`,
      })),
    );
    await untilPlaces(db, 'signups.shadow', { waiting: 0, leased: 0, delivered: 3 });
    await reported('signups', 'registered/a', {
      event: 'signups.registered',
      data: { user: 'a' },
      timestamp: 'another',
    });
    await reported('signups', 'registered/b', { event: 'signups.registered', data: { user: 'B' } });
    await reported('signups', 'registered/z', { event: 'signups.registered' });
    expect(await verdictsOf('signups', ['timestamp'])).toEqual({
      matched: 1,
      different: 1,
      missing: 1,
      extra: 1,
      waiting: 0,
    });
    expect(await verdictsOf('signups')).toMatchObject({ matched: 0, different: 2 });
    expect(calls).toEqual([]);

    const report = await cliOn(db, ['rollout', 'report', 'signups', '--ignore', 'timestamp']);
    expect(report.code).toBe(10);
    expect(report.stdout).toContain('different: registered/b');
    expect(report.stdout).toContain('missing: registered/z');
    expect(report.stdout).toContain('extra: registered/c');
    expect(
      json(await cliOn(db, ['rollout', 'report', 'signups', '--ignore', 'timestamp', '--json'])),
    ).toMatchObject({
      matched: 1,
      examples: [{ verdict: 'missing' }, { verdict: 'extra' }, { verdict: 'different' }],
    });
  });

  it('W6 a comparison with one side waits for a minute, and is not a finding', async () => {
    await inShadow('patient');
    await reported('patient', 'one', { n: 1 });
    expect(await countVerdicts(openDatabase(db), 'patient')).toMatchObject({
      waiting: 1,
      missing: 0,
    });
  });

  it('W6 M10 a reported body that is larger than a message can be is refused, with its size and the limit', async () => {
    await inShadow('large');
    await expect(reported('large', 'one', 'x'.repeat(1_200_000))).rejects.toThrow(
      'body has 1200002 bytes, the limit is 1114112: report the JSON that was sent for one message',
    );
    await reported('large', 'one', 'x'.repeat(1_100_000));
  });

  it('W6 of very many comparisons the newest are counted, with their start', async () => {
    await inShadow('many');
    await db.query(
      `INSERT INTO ${db.quoted}.shadow_comparisons (rollout, reference, first_at, sent, sent_at)
       SELECT 'many', 'r' || n, now() - n * interval '1 hour', '{}', now() FROM generate_series(1, 6000) n`,
    );
    const database = openDatabase(db);
    expect(await newestComparisonsSince(database, 'many', 6000)).toBeNull();
    const ask = await (await serveDatabase(db)).as('read');
    const { body } = await ask('GET', '/api/rollouts/many');
    expect(body).toMatchObject({ verdicts: { missing: 5000 } });
    expect(body['comparedSince']).toMatch(/^20\d\d-/);
    const lately = await ask(
      'GET',
      `/api/rollouts/many?since=${new Date(Date.now() - 10.5 * 3_600_000).toISOString()}`,
    );
    expect(lately.body).toMatchObject({ verdicts: { missing: 10 }, comparedSince: null });
  });

  it('W6 comparisons are kept for 30 days, whatever they showed', async () => {
    await inShadow('kept');
    await db.query(
      `INSERT INTO ${db.quoted}.shadow_comparisons (rollout, reference, first_at, sent, sent_at)
       SELECT 'kept', 'r' || days, now() - days * interval '1 day', '{}', now() FROM unnest(ARRAY[0, 29, 31, 400]) days`,
    );
    expect((await cliOn(db, ['maintain'])).code).toBe(0);
    const { rows } = await db.query<{ reference: string }>(
      `SELECT reference FROM ${db.quoted}.shadow_comparisons WHERE rollout = 'kept' ORDER BY first_at DESC`,
    );
    expect(rows.map(({ reference }) => reference)).toEqual(['r0', 'r29']);
  });

  it('W6 messages that the guard refuses count as not sent', async () => {
    const { calls } = await inShadow('guarded', () => ({ code: 'amount', message: 'no' }));
    await send(db, [
      { topic: 'guarded.x', dedupeKey: 'x' },
      { topic: 'guarded.y', dedupeKey: 'y' },
    ]);
    await untilPlaces(db, 'guarded.shadow', { waiting: 0, leased: 0, delivered: 2 });
    await reported('guarded', 'y', { event: 'guarded.y' });
    expect(await verdictsOf('guarded')).toMatchObject({ matched: 1, different: 1, extra: 0 });
    expect(calls).toEqual([]);
  });

  it('W6 pending shadow messages are never sent, also after the share has grown', async () => {
    const { calls, relay } = await inShadow('late');
    await relay.stop();
    await send(db, [{ topic: 'late.one' }]);
    await db.query(`SELECT ${db.quoted}.set_rollout('late', 100)`);
    const again = await startRelayOf('late', calls);
    await untilPlaces(db, 'late.shadow', { waiting: 0, leased: 0, delivered: 1 });
    await send(db, [{ topic: 'late.two' }]);
    await untilPlaces(db, 'late', { waiting: 0, leased: 0, delivered: 1 });
    expect(calls).toHaveLength(1);
    await again.stop();
  });

  it('W6 over HTTP the other system reports, and operators read and change', async () => {
    await inShadow('http');
    const server = await serveDatabase(db);
    const ask = await server.as('operate');
    const sent = { rollout: 'http', reference: 'r-1', body: { n: 1 } };
    expect(await ask('POST', '/api/shadow', sent)).toMatchObject({ status: 200 });
    expect((await ask('GET', '/api/rollouts/http')).body).toMatchObject({
      rollout: { name: 'http', shadow: true, percent: 0, routed: true },
      verdicts: { waiting: 1 },
    });
    expect(await ask('POST', '/api/shadow', { rollout: 'http', reference: 'r-1' })).toMatchObject({
      status: 400,
      body: { error: 'body is missing: what was sent, as JSON' },
    });
    expect(await ask('POST', '/api/rollouts/http', { percent: 10 })).toMatchObject({
      status: 200,
      body: { percent: 10, shadow: false },
    });
    expect(await ask('POST', '/api/rollouts/http', { percent: 101 })).toMatchObject({
      status: 400,
    });
    expect(await ask('POST', '/api/rollouts/nowhere', { percent: 1 })).toMatchObject({
      status: 404,
    });
    const { rows } = await db.query(
      `SELECT percent::float8 AS percent FROM ${db.quoted}.rollouts WHERE name = 'http'`,
    );
    expect(rows).toEqual([{ percent: 10 }]);
    // below 100 % the file of the next test could not drop it
    await ask('POST', '/api/rollouts/http', { percent: 100 });
  });

  it.each([
    [{}, 'give percent, or shadow: true'],
    [{ shadow: false }, 'give percent, or shadow: true'],
    [{ percent: 10, shadow: true }, 'a shadow sends nothing'],
  ])('W6 over HTTP %j changes nothing', async (change, words) => {
    await inShadow('neither');
    const ask = await (await serveDatabase(db)).as('operate');
    const answer = await ask('POST', '/api/rollouts/neither', change);
    expect(answer.status).toBe(400);
    expect(answer.body['error']).toContain(words);
    const { body } = await ask('GET', '/api/rollouts/neither');
    expect(body).toMatchObject({ rollout: { shadow: true } });
  });

  it('W6 a report that the database cannot store is an error of the client', async () => {
    await inShadow('malformed');
    const ask = await (await serveDatabase(db)).as('operate');
    const sent = { rollout: 'malformed', reference: 'r', body: { text: 'a\u0000b' } };
    const answer = await ask('POST', '/api/shadow', sent);
    expect(answer, JSON.stringify(answer.body)).toMatchObject({ status: 400 });
    const command = await cliOn(db, ['rollout', 'sent', 'malformed', 'r', '"\\u0000"']);
    expect(`${command.code} ${command.stderr}`).toMatch(/^2 /);
    const long = { ...sent, reference: 'é'.repeat(600), body: {} };
    expect(await ask('POST', '/api/shadow', long)).toMatchObject({ status: 400 });
    expect(
      await ask('POST', '/api/shadow', { ...sent, rollout: 'nowhere', body: 1 }),
    ).toMatchObject({ status: 404 });
  });

  it('W6 an ignored path that fits one body and not another breaks no report', async () => {
    await inShadow('shapes');
    await send(db, [
      { topic: 'shapes.list', payload: { items: [{ at: 1 }] }, dedupeKey: 'list' },
      { topic: 'shapes.object', payload: { items: { at: 1 } }, dedupeKey: 'object' },
    ]);
    await untilPlaces(db, 'shapes.shadow', { waiting: 0, leased: 0, delivered: 2 });
    await reported('shapes', 'list', { event: 'shapes.list', data: { items: [{ at: 2 }] } });
    await reported('shapes', 'object', { event: 'shapes.object', data: { items: { at: 2 } } });
    const paths = ['timestamp', 'data.items.at', 'data.items.at.deeper', 'event.x', ''];
    expect(await verdictsOf('shapes', paths)).toMatchObject({ matched: 1, different: 1 });
    expect(await verdictsOf('shapes', [...paths, 'data.items.0.at'])).toMatchObject({ matched: 2 });
  });
});

describe('waybill rollout', () => {
  it('W6 status, set and sent; refusals change nothing', async () => {
    await inShadow('commands');
    const run = (...args: string[]) => cliOn(db, ['rollout', ...args]);
    expect(json(await run('status', '--json'))).toContainEqual(
      expect.objectContaining({ name: 'commands', shadow: true, destination: 'commands' }),
    );
    expect((await run('set', 'commands', '--percent', '10')).code).toBe(4);
    expect((await run('set', 'commands')).stderr).toContain('either --percent or --shadow');
    expect((await run('set', 'commands', '--percent', '110', '--yes')).code).toBe(2);
    const nowhere = await run('set', 'nowhere', '--percent', '1', '--yes');
    expect([nowhere.code, nowhere.stderr.includes('there is no rollout "nowhere"')]).toEqual([
      3,
      true,
    ]);
    expect((await run('set', 'commands', '--percent', '12.5', '--yes')).stdout).toContain(
      'now sends 12.5 % to commands',
    );
    expect((await run('sent', 'commands', 'r', '{"n": 1}')).code).toBe(0);
    expect((await run('sent', 'commands', 'r', '{n: 1}')).stderr).toContain('is not JSON');
    const { rows } = await db.query(
      `SELECT reference, sent FROM ${db.quoted}.shadow_comparisons WHERE rollout = 'commands'`,
    );
    expect(rows).toEqual([{ reference: 'r', sent: { n: 1 } }]);
  });
});

async function startRelayOf(name: string, calls: string[]) {
  const server = await serve((request, response) => {
    calls.push(request.url ?? '');
    response.end();
  });
  return startRelay(db, {
    destinations: { [name]: webhook({ url: server.url, allowedNetworks: loopback }) },
    routes: [{ topic: `${name}.*`, to: name, rollout: name }],
  });
}
