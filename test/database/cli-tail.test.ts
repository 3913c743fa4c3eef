// `waybill tail` as users run it: lines and objects, an end by Ctrl-C, and a database that comes back.

import { describe, expect, it } from 'vitest';

import { cli, environmentOf, startCli } from '../support/cli.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { deliverAll } from '../support/replays.js';
import { settle } from '../support/settling.js';

const db = testDatabase();
const environment = environmentOf(db, 'test_auditor');

describe('waybill tail', () => {
  it('prints a line for each event, without colours if there is no terminal, and ends by Ctrl-C with 0', async () => {
    const queue = await makeQueue(db);
    const tail = startCli(['tail', '--destination', queue.name], { environment });
    await tail.says('following');
    const [id = '', bad = ''] = await queue.enqueueAll([{ key: 'k', tenantId: 'acme' }, {}]);
    await settle(db, await queue.claim(), [
      { id, outcome: 'delivered', latencyMs: 7 },
      { id: bad, outcome: 'reject', errorCode: 'bad', errorMessage: 'no\n\u001B[31mway' },
    ]);
    await tail.says(`dead       ${bad}`);
    await tail.says(`delivered  ${id}`);
    tail.process.kill('SIGINT');
    const { code, stdout } = await tail.ended();
    expect(code).toBe(0);
    const lines = stdout
      .trimEnd()
      .split('\n')
      .map((text) => text.replace(/^\S+Z {2}/, ''));
    expect(lines.toSorted()).toEqual(
      [
        `enqueued   ${id}  ${queue.topic}  key k #1  tenant acme`,
        `enqueued   ${bad}  ${queue.topic}`,
        `delivered  ${id}  ${queue.topic}  → ${queue.name}  key k #1  tenant acme  try 1  7 ms`,
        `dead       ${bad}  ${queue.topic}  → ${queue.name}  try 1  bad  no \\u001b[31mway`,
      ].toSorted(),
    );
  });

  it('with --json each line is an object; --since begins in the past', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(2);
    await deliverAll(db, queue);
    const tail = startCli(
      [
        'tail',
        '--topic',
        queue.topic,
        '--json',
        '--since',
        new Date(Date.now() - 3_600_000).toISOString(),
      ],
      { environment },
    );
    await tail.says(/"delivered"[^\n]*\n[^\n]*"delivered"/);
    tail.process.kill('SIGTERM');
    const { code, stdout } = await tail.ended();
    expect(code).toBe(0);
    const events = stdout
      .trimEnd()
      .split('\n')
      .map(
        (text) =>
          JSON.parse(text) as { event: string; messageId: string; destination: string | null },
      );
    expect(
      events.map((event) => `${event.event} ${event.messageId} ${event.destination}`).toSorted(),
    ).toEqual(
      ids.flatMap((id) => [`delivered ${id} ${queue.name}`, `enqueued ${id} null`]).toSorted(),
    );
  });

  it('reports how much it left out', async () => {
    const queue = await makeQueue(db);
    const tail = startCli(['tail', '--topic', queue.topic], { environment });
    await tail.says('following');
    await queue.enqueue(700);
    await tail.says('… 200 more');
    tail.process.kill('SIGINT');
    expect((await tail.ended()).stdout.trimEnd().split('\n')).toHaveLength(501);
  });

  it('continues after its connection was cut, and misses nothing', async () => {
    const queue = await makeQueue(db);
    const tail = startCli(['tail', '--topic', queue.topic], { environment });
    await tail.says('following');
    const before = await queue.enqueueOne();
    await tail.says(before);
    await db.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'waybill cli'`,
    );
    const after = await queue.enqueueOne();
    await tail.says(after);
    tail.process.kill('SIGINT');
    const { stdout } = await tail.ended();
    expect(stdout.match(/enqueued/g)).toHaveLength(2);
  });

  it('an unknown destination is not found: exit code 3', async () => {
    const { code, stdout, stderr } = await cli(['tail', '--destination', 'nope'], { environment });
    expect([code, stdout]).toEqual([3, '']);
    expect(stderr).toContain('no destination is named "nope"');
  });

  it('refuses unknown options: exit code 2', async () => {
    for (const args of [
      ['--event', 'lost'],
      ['--aggregate', 'x'],
      ['--since', 'today'],
    ]) {
      const { code, stdout } = await cli(['tail', ...args], { environment });
      expect([code, stdout]).toEqual([2, '']);
    }
  });
});
