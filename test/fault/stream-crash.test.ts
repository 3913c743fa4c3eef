// Readers of the log that are killed between the end of a batch and the move of the cursor: the next one goes on
// where the cursor stands, nothing is lost, and only what was in flight comes twice.

import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { afterAll, beforeAll, expect, test } from 'vitest';

import { createOutbox } from '../../src/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';
import { Child } from './crash/child-process.js';

const db = testDatabase();
const outbox = createOutbox();
const batchSize = 20;
let directory: string;

beforeAll(() => {
  directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-stream-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

test('N4 readers killed between the end of a batch and the move of the cursor lose nothing', async () => {
  const file = path.join(directory, 'received');
  const log = path.join(directory, 'log');
  const received = () => (existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []);
  const enqueued: string[] = [];
  const produce = async (count: number) => {
    const messages = Array.from({ length: count }, (_, n) => ({ topic: 'a.b', payload: { n } }));
    const rows = await outbox.enqueueMany(await client(), messages, { autonomous: true });
    enqueued.push(...rows.map(({ id }) => id));
  };
  const connection = db.connect();
  const client = async () => connection;

  const deaths = 4;
  for (let death = 0; death < deaths; death += 1) {
    await produce(150);
    const reader = new Child(
      'stream.mjs',
      { databaseUrl: db.url, file, batchesUntilDeath: 2 + death },
      log,
      () => {},
    );
    await produce(50);
    expect(await reader.ended).toMatchObject({ signal: 'SIGKILL' });
  }
  const last = new Child(
    'stream.mjs',
    { databaseUrl: db.url, file, batchesUntilDeath: 0 },
    log,
    () => {},
  );
  await waitFor(() => new Set(received()).size === enqueued.length, {
    what: 'everything',
    timeoutMs: 30_000,
  });
  last.signal('SIGTERM');
  expect(await last.ended).toMatchObject({ code: 0 });

  expect(new Set(received())).toEqual(new Set(enqueued));
  // the batch that was just handed over, and one whose move had not arrived
  const repeated = received().length - enqueued.length;
  expect(repeated).toBeGreaterThan(0);
  expect(repeated).toBeLessThanOrEqual(deaths * 2 * batchSize);
}, 120_000);
