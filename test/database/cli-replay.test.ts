// Replays from the command line: planned, confirmed, killed in the middle and resumed.

import { describe, expect, it } from 'vitest';

import { cliAs, environmentOf, json, startCli } from '../support/cli.js';
import { only } from '../support/only.js';
import { makeQueue, misplaced } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { deliverAll } from '../support/replays.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const cliOn = cliAs('test_server');
const long = '2020-01-01T00:00:00Z';

async function history(count: number, fields = {}): Promise<{ queue: Queue; ids: string[] }> {
  const queue = await makeQueue(db);
  const ids = await queue.enqueue(count, fields);
  await deliverAll(db, queue);
  return { queue, ids };
}

async function countReplays(queue: Queue): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM ${db.quoted}.replays WHERE destination_id = $1`,
    [queue.id],
  );
  return only(rows).count;
}

describe('waybill replay', () => {
  it('M5 plans, and changes nothing', async () => {
    const { queue, ids } = await history(7);
    const args = [
      'replay',
      '--destination',
      queue.name,
      '--topic',
      queue.topic,
      '--rate',
      '2',
      '--plan',
    ];
    const text = await cliOn(db, args);
    expect(text).toMatchObject({ code: 0, stderr: '' });
    expect(text.stdout).toContain(`7 messages to ${queue.name}, at 2 a second: 4 s`);
    for (const id of ids.slice(0, 5)) expect(text.stdout).toContain(id);
    expect(json(await cliOn(db, [...args, '--json']))).toMatchObject({
      messages: 7,
      isExact: true,
      seconds: 4,
      sample: ids.slice(0, 5).map((messageId) => ({ messageId, status: 'delivered' })),
      keptSince: null,
      unfinished: null,
    });
    expect(await countReplays(queue)).toBe(0);
    expect(await queue.waiting()).toEqual([]);
  });

  it('M5 replays what matches, reports what it skipped, and is recorded with the actor and the number', async () => {
    const { queue, ids } = await history(4);
    const waiting = await queue.enqueueOne();
    const args = [
      'replay',
      '--destination',
      queue.name,
      '--since',
      long,
      '--topic',
      queue.topic,
      '--yes',
    ];
    const { code, stdout, stderr } = await cliOn(db, args);
    expect(code).toBe(0);
    expect(stderr).toMatch(
      /retention has removed messages from before \S+: they cannot be replayed/,
    );
    expect(stdout).toMatch(
      /^replay \d+ done: replayed 4, passed over 1 \(waiting 1, in flight 0\)\n$/,
    );
    expect(await deliverAll(db, queue)).toEqual([waiting, ...ids]);
    const { rows } = await db.query(
      `SELECT actor, action, subject, count::int FROM ${db.quoted}.operator_actions ORDER BY id DESC LIMIT 1`,
    );
    expect(only(rows)).toMatchObject({
      actor: expect.stringMatching(/^cli:/) as unknown,
      action: 'replay',
      subject: {
        destination: queue.name,
        topic: queue.topic,
        since: '2020-01-01T00:00:00+00:00',
        waiting: 1,
      },
      count: 4,
    });
  });

  it('M5 a killed replay is resumed by the same command or by its number, without duplicates or losses', async () => {
    const queue = await makeQueue(db);
    const keys = ['a', 'b', 'c'];
    const ids = await queue.enqueueAll(
      Array.from({ length: 60 }, (_, n) => ({
        key: keys[n % 3] ?? '',
        namespace: queue.name,
        payload: { n },
      })),
    );
    await deliverAll(db, queue);
    const args = [
      'replay',
      '--destination',
      queue.name,
      '--since',
      long,
      '--namespace',
      queue.name,
      '--rate',
      '5',
      '--yes',
    ];
    const environment = environmentOf(db, 'test_server');
    const sent: string[] = [];
    // each time it has replayed a few, these are delivered, and the process is killed
    const killAfter = async (command: readonly string[], count: number) => {
      const running = startCli(command, { environment });
      await waitFor(async () => (await queue.waiting()).length > 0, {
        what: 'something to be replayed',
        timeoutMs: 20_000,
      });
      while (sent.length < count) sent.push(...(await deliverAll(db, queue)));
      running.process.kill('SIGKILL');
      await running.ended();
      expect(running.process.signalCode).toBe('SIGKILL');
    };
    await killAfter(args, 3);
    const number = /waybill replay resume (\d+)/;
    const again = startCli(args, { environment });
    await again.says(number);
    expect(again.stderr).toMatch(/replay \d+ resumed;/);
    const [, id = ''] = number.exec(again.stderr) ?? [];
    again.process.kill('SIGKILL');
    await again.ended();
    await killAfter(['replay', 'resume', id, '--rate', '6'], 8);
    const last = await cliOn(db, ['replay', 'resume', id, '--rate', '10000', '--json']);
    expect(last.code).toBe(0);
    expect(json(last)).toMatchObject({
      id,
      state: 'done',
      replayed: 60,
      waiting: 0,
      processing: 0,
    });
    sent.push(...(await deliverAll(db, queue)));
    expect(sent).toHaveLength(60);
    expect(sent.toSorted()).toEqual(ids.toSorted());
    // and each key in its order
    for (const [n] of keys.entries()) {
      const ofKey = ids.filter((_id, index) => index % 3 === n);
      expect(sent.filter((messageId) => ofKey.includes(messageId))).toEqual(ofKey);
    }
    expect(await misplaced(db)).toEqual([]);
    expect(await countReplays(queue)).toBe(1);
  }, 60_000);

  it('M5 a replay that a signal stops prints how to resume, ends with exit code 5, and can be cancelled', async () => {
    const { queue } = await history(50);
    const running = startCli(
      [
        'replay',
        '--destination',
        queue.name,
        '--since',
        long,
        '--topic',
        queue.topic,
        '--rate',
        '4',
        '--yes',
      ],
      { environment: environmentOf(db) },
    );
    await waitFor(async () => (await queue.waiting()).length > 0, {
      what: 'it to begin',
      timeoutMs: 20_000,
    });
    running.process.kill('SIGINT');
    const { code, stdout, stderr } = await running.ended();
    expect(code).toBe(5);
    const [, id = ''] = /^replay (\d+) unfinished: replayed \d+/.exec(stdout) ?? [];
    expect(stderr).toContain(`resume it with: waybill replay resume ${id}`);
    const listed = json(await cliOn(db, ['replay', 'list', '--json'])) as {
      id: string;
      state: string;
    }[];
    expect(listed.find((replay) => replay.id === id)).toMatchObject({
      state: 'unfinished',
      destination: queue.name,
    });
    expect(await cliOn(db, ['replay', 'cancel', id])).toMatchObject({
      code: 0,
      stdout: `cancelled: replay ${id}\n`,
    });
    const refused = await cliOn(db, ['replay', 'resume', id]);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain('is cancelled: start a new one');
  });

  it('asks before it begins: exit code 4 without --yes, and nothing changes', async () => {
    const { queue, ids } = await history(1);
    const { code, stdout, stderr } = await cliOn(db, [
      'replay',
      '--destination',
      queue.name,
      '--id',
      ids[0] ?? '',
    ]);
    expect({ code, stdout }).toEqual({ code: 4, stdout: '' });
    expect(stderr).toContain(`Replay 1 messages to ${queue.name}?`);
    expect(stderr).toContain('--yes');
    expect(await countReplays(queue)).toBe(0);
  });

  it('wrong usage is exit code 2, an unknown replay is exit code 3', async () => {
    const { queue } = await history(1);
    const exit = async (...args: string[]) => {
      const { code, stdout, stderr } = await cliOn(db, ['replay', ...args]);
      expect(stdout).toBe('');
      return [code, stderr];
    };
    const at = ['--destination', queue.name];
    expect(await exit(...at)).toEqual([
      2,
      expect.stringContaining('Give a filter or ids, or --all'),
    ]);
    expect(await exit('--topic', 'a')).toEqual([2, expect.stringContaining('--destination')]);
    expect(await exit(...at, '--since', 'today')).toEqual([
      2,
      expect.stringContaining('2026-01-31'),
    ]);
    expect(await exit(...at, '--id', '17')).toEqual([2, expect.stringContaining('UUID')]);
    expect(await exit(...at, '--topic', 'none', '--yes')).toEqual([
      3,
      expect.stringContaining('nothing matches'),
    ]);
    expect(await exit('--destination', 'nope', '--all')).toEqual([
      3,
      expect.stringContaining('Known destinations'),
    ]);
    expect(await exit('resume', '999999')).toEqual([3, expect.stringContaining('does not exist')]);
    const { stdout } = await cliOn(db, ['replay', '--help']);
    expect(stdout).toContain('Examples:');
  });
});
