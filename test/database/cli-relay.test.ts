// Relays from the command line: start until a signal, and drain once for cron.

import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';

import { describe, expect, it, onTestFinished } from 'vitest';

import { cli, environmentOf, startCli, writeConfig } from '../support/cli.js';
import type { Finished } from '../support/cli.js';
import { testDatabase } from '../support/postgres.js';
import { attemptsOf, numbered, places, send, sendOne, untilPlaces } from '../support/relay.js';

const db = testDatabase();
const environment = environmentOf(db);

/** A configuration with one destination for the topic of the same name. */
function configWith(name: string, destination: string, more = ''): string {
  return writeConfig(
    `{ destinations: { ${JSON.stringify(name)}: ${destination} }, routes: [{ topic: ${JSON.stringify(name)}, to: ${JSON.stringify(name)} }], ${more} }`,
  );
}

async function drain(config: string, ...flags: string[]): Promise<Finished> {
  return cli(['drain', '--config', config, ...flags], { environment });
}

it('a port that is taken ends waybill start, and leaves nothing running', async () => {
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void taken.close());
  const { port } = taken.address() as AddressInfo;
  const config = writeConfig(`{ destinations: { busy: handler(() => {}) }, routes: [] }`);
  const ended = await cli(['start', '--config', config, '--port', String(port)], {
    environment: environmentOf(db),
  });
  expect(ended.code).toBe(2);
  expect(ended.stderr).toContain(`server.port is ${port}, and something listens there already`);
  const { rows } = await db.query(
    `SELECT FROM ${db.quoted}.relays WHERE 'busy' = ANY (destinations)`,
  );
  expect(rows).toEqual([]);
});

describe('start', () => {
  it.each(['SIGTERM', 'SIGINT'] as const)(
    'M12 delivers until %s arrives, then ends cleanly with exit code 0',
    async (signal) => {
      const name = `started-${signal.toLowerCase()}`;
      const child = startCli(['start', '--config', configWith(name, 'handler(() => {})')], {
        environment,
      });
      await child.says('relay_started');
      await send(db, numbered(name, 3));
      await untilPlaces(db, name, { delivered: 3, waiting: 0, leased: 0 });
      child.process.kill(signal);
      const { code, stdout, stderr } = await child.ended(12_000);
      expect({ code, stdout }).toEqual({ code: 0, stdout: '' });
      expect(stderr).toContain('relay_stopped');
      for (const line of stderr.trimEnd().split('\n'))
        expect(() => JSON.parse(line) as unknown, line).not.toThrow();
      const { rows } = await db.query(`SELECT FROM ${db.quoted}.relays`);
      expect(rows).toEqual([]);
    },
  );

  it('M12 releases what it holds when it is told to stop, and a second signal ends it at once', async () => {
    const name = 'stuck-child';
    const config = configWith(
      name,
      "handler(() => new Promise(() => setTimeout(() => {}, 100000, console.error('in flight'))), { concurrency: 1 })",
      'relay: { stopDeadlineMs: 60000 }',
    );
    const child = startCli(['start', '--config', config], { environment });
    await child.says('relay_started');
    const ids = await send(db, numbered(name, 4));
    await untilPlaces(db, name, { leased: 4 });
    await child.says('in flight');
    child.process.kill('SIGTERM');
    await untilPlaces(db, name, { waiting: 3, leased: 1 });
    child.process.kill('SIGTERM');
    expect(await child.ended(5000)).toMatchObject({ code: 130 });
    const states = await Promise.all(
      ids.map(async (id) => (await attemptsOf(db, id, name)).map(({ state }) => state)),
    );
    expect(states.filter((list) => list.includes('released'))).toHaveLength(3);
  });

  it('M12 ends within its deadline although a handler ignores its abort', async () => {
    const name = 'deaf-child';
    const config = configWith(
      name,
      "handler(() => new Promise((done) => setTimeout(done, 100000, console.error('in flight'))))",
      'relay: { stopDeadlineMs: 500 }',
    );
    const child = startCli(['start', '--config', config], { environment });
    await child.says('relay_started');
    const id = await sendOne(db, { topic: name });
    await child.says('in flight');
    child.process.kill('SIGTERM');
    expect(await child.ended(8000)).toMatchObject({ code: 0 });
    expect(await attemptsOf(db, id, name)).toMatchObject([
      { state: 'retryable', error_code: 'stopped' },
    ]);
  });

  it('C10 --tenant and --namespace limit what is served', async () => {
    const name = 'limited-child';
    const config = configWith(name, 'handler(() => {})');
    await drain(config);
    await send(db, [
      { topic: name, tenantId: 'a', namespace: 'x' },
      { topic: name, tenantId: 'b', namespace: 'x' },
      { topic: name, tenantId: 'c', namespace: 'x' },
      { topic: name, tenantId: 'a', namespace: 'y' },
    ]);
    const child = startCli(
      ['start', '--config', config, '--tenant', 'a', 'b', '--namespace', 'x'],
      { environment },
    );
    await untilPlaces(db, name, { delivered: 2, waiting: 2, leased: 0 });
    child.process.kill('SIGTERM');
    expect(await child.ended(12_000)).toMatchObject({ code: 0 });
    expect(await places(db, name)).toMatchObject({ delivered: 2, waiting: 2 });
  });

  it('M12 an invalid configuration ends it at once with exit code 2', async () => {
    const config = configWith('wrong', 'handler(() => {})', 'relay: { pollMs: 60000 }');
    const { code, stdout, stderr } = await cli(['start', '--config', config], { environment });
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('relay.pollMs is 60000: give at most a third of relay.leaseMs');
  });
});

describe('drain', () => {
  it('C7 delivers what is due and ends with exit code 0 when the queue is empty', async () => {
    const name = 'drained';
    const config = configWith(
      name,
      "handler((m) => m.payload.n === 2 ? reject({ code: 'no' }) : m.payload.n === 3 && m.tries === 1 ? retry({ code: 'later', afterMs: 3600000 }) : undefined)",
    );
    expect(await drain(config, '--json')).toMatchObject({
      code: 0,
      stdout:
        '{"processed":0,"succeeded":0,"failed":0,"released":0,"finished":true,"unrouted":0,"heldCursors":[]}\n',
    });
    await send(db, numbered(name, 5));
    await sendOne(db, { topic: name, delayMs: 3_600_000 });
    const finished = await drain(config, '--json');
    expect(finished.code).toBe(0);
    expect(JSON.parse(finished.stdout)).toEqual({
      processed: 5,
      succeeded: 3,
      failed: 2,
      released: 0,
      finished: true,
      unrouted: 0,
      heldCursors: [],
    });
    expect(await places(db, name)).toEqual({ delivered: 3, dead: 1, waiting: 2, leased: 0 });
  });

  it('C7 ends with exit code 5 when it reaches its message limit first', async () => {
    const name = 'limited';
    const config = configWith(name, 'handler(() => {})');
    await drain(config);
    await send(db, numbered(name, 10));
    const finished = await drain(config, '--max-messages', '4', '--json');
    expect(finished.code).toBe(5);
    expect(JSON.parse(finished.stdout)).toMatchObject({ processed: 4, finished: false });
    expect(finished.stderr).toContain('limit');
    expect(await places(db, name)).toMatchObject({ delivered: 4, waiting: 6, leased: 0 });
  });

  it('C7 ends with exit code 5 when its time is up first, and releases what it holds', async () => {
    const name = 'timed-out';
    const slow = 'handler(() => new Promise((done) => setTimeout(done, 400)), { concurrency: 1 })';
    const config = configWith(name, slow);
    await drain(config);
    await send(db, numbered(name, 10));
    const finished = await drain(config, '--max-ms', '300', '--json');
    expect(finished.code).toBe(5);
    const report = JSON.parse(finished.stdout) as { succeeded: number; released: number };
    expect(report).toMatchObject({ failed: 0, finished: false });
    expect(report.released).toBeGreaterThan(0);
    expect(await places(db, name)).toMatchObject({
      delivered: report.succeeded,
      waiting: 10 - report.succeeded,
      leased: 0,
    });
  });

  it('C7 M12 a drain that is told to stop releases what it holds and reports its progress', async () => {
    const name = 'stopped-drain';
    const config = configWith(
      name,
      "handler(() => new Promise((done) => setTimeout(done, 100000, console.error('in flight'))), { concurrency: 1 })",
      'relay: { stopDeadlineMs: 500 }',
    );
    await drain(config);
    const ids = await send(db, numbered(name, 3));
    const child = startCli(['drain', '--config', config, '--json'], { environment });
    await child.says('in flight');
    child.process.kill('SIGTERM');
    const { code, stdout } = await child.ended(8000);
    expect(code).toBe(5);
    expect(JSON.parse(stdout)).toMatchObject({ released: 2, failed: 1, finished: false });
    await untilPlaces(db, name, { waiting: 3, leased: 0 });
    expect(ids).toHaveLength(3);
  });

  it('C7 ends with exit code 0 when its message limit was just enough, and with 5 when it was not', async () => {
    const name = 'just-enough';
    const config = configWith(name, 'handler(() => {})');
    await drain(config);
    await send(db, numbered(name, 3));
    expect(await drain(config, '--max-messages', '2')).toMatchObject({
      code: 5,
      stdout: 'processed 2, succeeded 2, failed 0, released 0, unrouted 0\n',
      stderr: expect.stringContaining('a limit was reached before the queue was empty') as string,
    });
    expect(await drain(config, '--max-messages', '1')).toMatchObject({
      code: 0,
      stdout: 'processed 1, succeeded 1, failed 0, released 0, unrouted 0\n',
      stderr: expect.not.stringContaining('a limit was reached') as string,
    });
  });

  it('C7 C10 --tenant limits a drain', async () => {
    const name = 'sharded';
    const config = configWith(name, 'handler(() => {})');
    await drain(config);
    await send(db, [
      { topic: name, tenantId: 'a' },
      { topic: name, tenantId: 'b' },
    ]);
    expect(await drain(config, '--tenant', 'b')).toMatchObject({
      code: 0,
      stdout: 'processed 1, succeeded 1, failed 0, released 0, unrouted 0\n',
    });
    expect(await places(db, name)).toMatchObject({ delivered: 1, waiting: 1 });
  });

  it('C7 a drain without a database ends with exit code 1 and the reason', async () => {
    const config = configWith('away', 'handler(() => {})');
    const { code, stdout, stderr } = await cli(['drain', '--config', config], {
      environment: { DATABASE_URL: 'postgresql://127.0.0.1:1/none' },
    });
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toContain('ECONNREFUSED');
  });
});
