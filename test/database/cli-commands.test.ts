// The command line as scripts use it: its output and its exit codes.

import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it } from 'vitest';

import { cli, cliAs, cliOn, json, temporaryDirectory, writeConfig } from '../support/cli.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { places, untilPlaces } from '../support/relay.js';

const db = testDatabase();

describe('enqueue and status', () => {
  it('enqueue sends one message and prints its id', async () => {
    const queue = await makeQueue(db);
    const { code, stdout } = await cliOn(db, [
      'enqueue',
      queue.topic,
      '{"userId": 42}',
      '--tenant',
      'acme',
    ]);
    expect(code).toBe(0);
    const { rows } = await db.query(
      `SELECT id, payload, tenant_id FROM ${db.quoted}.messages WHERE topic = $1`,
      [queue.topic],
    );
    expect(rows).toEqual([{ id: stdout.trim(), payload: { userId: 42 }, tenant_id: 'acme' }]);
  });

  it('M2 enqueue reads the payload from standard input and does not round its numbers', async () => {
    const queue = await makeQueue(db);
    const payload = '{"amount": 12345678901234567890.10}';
    expect(await cliOn(db, ['enqueue', queue.topic, '-'], payload)).toMatchObject({ code: 0 });
    const { rows } = await db.query<{ payload: string }>(
      `SELECT payload::text FROM ${db.quoted}.messages WHERE topic = $1`,
      [queue.topic],
    );
    expect(only(rows).payload).toBe(payload);
  });

  it('M3 enqueue reports a duplicate, and returns the first message', async () => {
    const queue = await makeQueue(db);
    const send = () =>
      cliOn(db, ['enqueue', queue.topic, '1', '--dedupe-key', 'order-1', '--json']);
    const first = json(await send());
    expect(first).toMatchObject({ duplicate: false, sequence: null });
    expect(json(await send())).toEqual({ ...(first as object), duplicate: true });
  });

  it('a payload that is not JSON is wrong usage, and nothing is sent', async () => {
    const queue = await makeQueue(db);
    const { code, stdout, stderr } = await cliOn(db, ['enqueue', queue.topic, '{userId: 42}']);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(/payload(Text)? "\{.* is not JSON \(.*\): give text such as/);
    expect(await places(db, queue.name)).toMatchObject({ waiting: 0 });
  });

  it('a message that is refused is not sent, and the reason is shown', async () => {
    const { code, stderr } = await cliOn(db, ['enqueue', 'not a topic', '{}']);
    expect(code).not.toBe(0);
    expect(stderr).toMatch(/topic .*"not a topic"/);
  });

  it('N13 M13 status shows health, destinations and relays, as a table and as JSON', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    await queue.kill(id);
    await queue.enqueue(2);
    const table = await cliOn(db, ['status']);
    expect(table.code).toBe(0);
    expect(table.stdout).toMatch(/^metric +value +description$/m);
    expect(table.stdout).toMatch(/^dead +\d/m);
    const report = json(await cliOn(db, ['status', '--json'])) as {
      health: { metric: string; value: number; description: string }[];
      destinations: { name: string }[];
      relays: unknown[];
    };
    expect(report.health.find(({ metric }) => metric === 'dead')?.value).toBeGreaterThan(0);
    expect(report.destinations.find(({ name }) => name === queue.name)).toMatchObject({
      waiting: 2,
      dead: 1,
      processing: 0,
      paused: false,
    });
    expect(report.relays).toEqual([]);
  });

  it('status warns of deliveries whose destination left the configuration', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(3);
    await db.query(`UPDATE ${db.quoted}.destinations SET configured = false WHERE name = $1`, [
      queue.name,
    ]);
    const { stderr } = await cliOn(db, ['status']);
    expect(stderr).toContain(`${queue.name} is no longer configured and 3 deliveries wait`);
  });
});

describe('maintain', () => {
  it('C9 N7 maintain reports what it created and removed', async () => {
    const report = json(await cliOn(db, ['maintain', '--json'])) as {
      partitions: { daysAhead: number };
      watches: { mended: number };
      pruned: { what: string; rows: number; ms: number }[];
    };
    expect(report.partitions.daysAhead).toBeGreaterThanOrEqual(60);
    expect(report.watches).toEqual({ mended: 0 });
    expect(report.pruned.map(({ what }) => what)).toEqual([
      'dedupe keys',
      'inbox',
      'shadow comparisons',
      'jobs',
      'discarded letters',
      'removed endpoints',
      'reports',
      'partitions',
      'statistics',
    ]);
  });

  it('P13 maintain names the role that a login lacks', async () => {
    const { code, stderr } = await cliAs('test_relay')(db, ['maintain']);
    expect(code).toBe(1);
    expect(stderr).toContain('grant it the role maintenance');
  });
});

describe('the database address', () => {
  it('C7 comes from a file that DATABASE_URL_FILE names, so that no process list shows it', async () => {
    const file = path.join(temporaryDirectory(), 'url');
    writeFileSync(file, `${db.url}\n`);
    const finished = await cli(['status', '--json'], {
      environment: { DATABASE_URL_FILE: file, WAYBILL_SCHEMA: db.schema },
    });
    expect(finished.code).toBe(0);
    expect(json(finished)).toHaveProperty('health');
  });

  it('comes from the configuration file if the environment has none; a flag takes precedence over both', async () => {
    const file = writeConfig(
      `{ database: { url: ${JSON.stringify(db.url)}, schema: 'wrong' }, destinations: {}, routes: [] }`,
    );
    const finished = await cli(['status', '--json', '--config', file, '--schema', db.schema]);
    expect(finished.code).toBe(0);
    const found = await cli(['status', '--json', '--schema', db.schema], {
      cwd: path.dirname(file),
    });
    expect(found.code, 'the file of this directory').toBe(0);
  });

  it('that is missing is wrong usage, and the error says how to set it', async () => {
    const directory = temporaryDirectory();
    mkdirSync(path.join(directory, 'empty'));
    const { code, stderr } = await cli(['status'], { cwd: path.join(directory, 'empty') });
    expect(code).toBe(2);
    expect(stderr).toMatch(/no database is configured: set DATABASE_URL/);
  });
});

describe('output', () => {
  it('data goes to stdout and everything else to stderr, so that pipes stay clean', async () => {
    const config = writeConfig(
      "{ destinations: { piped: handler(() => {}) }, routes: [{ topic: 'piped', to: 'piped' }] }",
    );
    const drain = () => cliOn(db, ['drain', '--config', config, '--json']);
    await drain();
    await cliOn(db, ['enqueue', 'piped']);
    const finished = await drain();
    expect(json(finished)).toMatchObject({ processed: 1 });
    await untilPlaces(db, 'piped', { delivered: 1 });
  });
});
