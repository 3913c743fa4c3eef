// Drains of relays with destinations in stream mode: from code, over HTTP and from the command line.

import { describe, expect, it } from 'vitest';

import { createDrainHandler } from '../../src/index.js';
import { batchHandler, handler } from '../../src/destinations/handler.js';
import { cli, environmentOf, writeConfig } from '../support/cli.js';
import { testDatabase } from '../support/postgres.js';
import { Gate, configOf, makeRelay, numbered, send, startRelay } from '../support/relay.js';
import type { RelaySettings } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const token = 'a-token-of-the-tests-that-is-long-enough';
const stream = { mode: 'stream', from: 'beginning' } as const;

function settings(name: string, handle: (n: number) => Promise<void> | void): RelaySettings {
  return {
    destinations: {
      [name]: batchHandler(
        async (messages) => {
          for (const { payload } of messages) await handle((payload as { n: number }).n);
        },
        { ...stream, batchSize: 2, retry: { delaysMs: [3_600_000] } },
      ),
      [`${name}.deliveries`]: handler(() => undefined),
    },
  };
}

async function isFree(name: string): Promise<boolean> {
  const { rows } = await db.query<{ free: boolean }>(
    `SELECT NOT ${db.quoted}.is_taken('cursor ' || name) AS free FROM ${db.quoted}.cursors WHERE name = $1`,
    [name],
  );
  return rows[0]?.free ?? false;
}

describe('a drain of a relay', () => {
  it('N16 C7 reads its streams beside its deliveries, and counts both', async () => {
    const got: number[] = [];
    const both = settings('both', (n) => void got.push(n));
    const drain = () => makeRelay(db, both).relay.drain();
    expect(await drain()).toMatchObject({ processed: 0, finished: true });
    await send(db, [...numbered('both', 5), ...numbered('both.deliveries', 3)]);
    expect(await drain()).toEqual({
      processed: 8,
      succeeded: 8,
      failed: 0,
      released: 0,
      finished: true,
      unrouted: 0,
      heldCursors: [],
    });
    expect(got).toEqual([1, 2, 3, 4, 5]);
    expect(await isFree('both')).toBe(true);
    expect(await drain()).toMatchObject({ processed: 0, finished: true });
  });

  it('N16 C7 applies the limit of messages to a stream', async () => {
    const got: number[] = [];
    const limited = settings('limited', (n) => void got.push(n));
    await makeRelay(db, limited).relay.drain();
    await send(db, numbered('limited', 5));
    const drain = (maxMessages: number) => makeRelay(db, limited).relay.drain({ maxMessages });
    expect(await drain(3)).toMatchObject({ processed: 3, finished: false, heldCursors: [] });
    expect(await drain(2)).toMatchObject({ processed: 2, finished: true });
    expect(got).toEqual([1, 2, 3, 4, 5]);
  });

  it('N16 leaves a failed message of a stream to a later one, with the messages behind it', async () => {
    const got: number[] = [];
    const failing = settings('failing', (n) => {
      if (n === 2) throw new Error('not now');
      got.push(n);
    });
    await send(db, numbered('failing', 4));
    const drain = () => makeRelay(db, failing).relay.drain();
    expect(await drain()).toMatchObject({ failed: 1, finished: true });
    expect(await drain()).toMatchObject({ processed: 0, finished: true });
    await db.query(`UPDATE ${db.quoted}.cursors SET retry_at = now() WHERE name = 'failing'`);
    expect(await drain()).toMatchObject({ succeeded: 2, failed: 1, finished: true });
    expect([...new Set(got)]).toEqual([1, 3, 4]);
  });

  it('N16 names the streams that another relay reads, and is not finished', async () => {
    const gate = new Gate();
    const held = settings('held', () => gate.pass());
    await send(db, numbered('held', 1));
    const { relay } = await startRelay(db, held);
    await waitFor(() => gate.waiting === 1, { what: 'the relay to read' });
    expect(await makeRelay(db, held).relay.drain()).toMatchObject({
      processed: 0,
      finished: false,
      heldCursors: ['held'],
    });
    gate.open();
    await relay.stop();
    expect(await makeRelay(db, held).relay.drain()).toMatchObject({ finished: true });
  });

  it('N16 stops reading when its time is over', async () => {
    const got: number[] = [];
    const maxMs = 1000;
    let startedMs = Number.POSITIVE_INFINITY;
    const timed = settings('timed', async (n) => {
      got.push(n);
      startedMs = Math.min(startedMs, performance.now());
      await waitFor(() => performance.now() > startedMs + maxMs, { what: 'the end of its time' });
    });
    await makeRelay(db, timed).relay.drain();
    await send(db, numbered('timed', 6));
    const first = await makeRelay(db, timed).relay.drain({ maxMs });
    expect(first.finished).toBe(false);
    expect(got.length).toBeLessThan(6);
    expect(await makeRelay(db, timed).relay.drain()).toMatchObject({ finished: true });
    expect(got).toEqual([1, 2, 3, 4, 5, 6]);
  });
});

it('N16 C7 the drain handler reads streams', async () => {
  const got: number[] = [];
  const config = configOf(
    db,
    settings('mounted', (n) => void got.push(n)),
  );
  await send(db, numbered('mounted', 3));
  const request = new Request('http://localhost/', {
    method: 'POST',
    headers: { authorization: `Bearer ${token}` },
  });
  const response = await createDrainHandler({ config, token })(request);
  expect(response.status).toBe(200);
  expect(await response.json()).toMatchObject({ succeeded: 3, finished: true, heldCursors: [] });
  expect(got).toEqual([1, 2, 3]);
});

it('N16 C7 waybill drain reads streams, and says when another process does', async () => {
  const name = 'command';
  const config = writeConfig(
    `{ destinations: { ${name}: batchHandler(() => {}, { mode: 'stream', from: 'beginning' }) }, routes: [{ topic: '${name}', to: '${name}' }] }`,
  );
  const drain = () =>
    cli(['drain', '--config', config, '--json'], { environment: environmentOf(db) });
  await send(db, numbered(name, 3));
  const read = await drain();
  expect(read.code).toBe(0);
  expect(JSON.parse(read.stdout)).toMatchObject({ succeeded: 3, finished: true, heldCursors: [] });
  await db.query(
    `SELECT FROM ${db.quoted}.take_cursor($1, gen_random_uuid(), 'another:1', 600000)`,
    [name],
  );
  const refused = await drain();
  expect(refused.code).toBe(5);
  expect(JSON.parse(refused.stdout)).toMatchObject({ finished: false, heldCursors: [name] });
  expect(refused.stderr).toContain('another process reads command; see: waybill cursors\n');
  expect(refused.stderr).not.toContain('limit');
});
