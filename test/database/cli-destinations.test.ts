// `waybill destinations`: lists, pauses, resumes and checks destinations for an operator.

import { describe, expect, it } from 'vitest';

import { cliOn, json, writeConfig } from '../support/cli.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { settle } from '../support/settling.js';

const db = testDatabase();

type Listed = { name: string; paused: boolean; pausedBy: string | null; waiting: number };

async function listed(name: string): Promise<Listed | undefined> {
  const all = json(await cliOn(db, ['destinations', 'list', '--json'])) as Listed[];
  return all.find((destination) => destination.name === name);
}

describe('waybill destinations', { timeout: 30_000 }, () => {
  it('M13 pauses with a reason, shows it, and resumes', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(2);
    const paused = await cliOn(db, ['destinations', 'pause', queue.name, '--reason', 'they move']);
    expect(paused).toMatchObject({ code: 0, stdout: `paused: ${queue.name}\n` });
    expect(await listed(queue.name)).toMatchObject({
      paused: true,
      pausedBy: expect.stringMatching(/^cli:/) as string,
      pausedReason: 'they move',
      waiting: 2,
    });
    const table = await cliOn(db, ['destinations']);
    expect(table.stdout).toMatch(new RegExp(`^${queue.name} .*cli:\\S+: they move`, 'm'));
    expect((await cliOn(db, ['status'])).stdout).toContain('they move');
    const resumed = await cliOn(db, ['destinations', 'resume', queue.name]);
    expect(resumed.stdout).toBe(`resumed: ${queue.name}, 2 waiting\n`);
    expect(await listed(queue.name)).toMatchObject({ paused: false, pausedReason: null });
  });

  it.each(['pause', 'resume', 'test'])(
    '%s of an unknown one lists the known ones',
    async (verb) => {
      // there may be thousands of endpoints, which are neither read nor listed
      await db.query(`UPDATE ${db.quoted}.destinations SET origin = 'database' WHERE id = $1`, [
        (await makeQueue(db)).id,
      ]);
      const { rows } = await db.query<{ name: string }>(
        `SELECT name FROM ${db.quoted}.destinations WHERE origin = 'database'`,
      );
      const { code, stderr } = await cliOn(db, ['destinations', verb, 'unknown']);
      expect(code).toBe(3);
      expect(stderr).toMatch(/no destination is named "unknown": there are .*queue-1/);
      const words = stderr.trimEnd().split(/[ ,]+/);
      for (const { name } of rows) expect(words).not.toContain(name);
    },
  );

  it('responses of other systems cannot control the terminal', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    await settle(db, await queue.claimOne(), [
      { id, outcome: 'pause', errorCode: 'gone', errorMessage: '\u001B]0;owned\u0007\u202Eevil' },
    ]);
    const { stdout } = await cliOn(db, ['destinations', 'list']);
    expect(stdout).toContain(String.raw`\u001b]0;owned\u0007\u202eevil`);
    // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
    expect(stdout).not.toMatch(/[\u001B\u0007\u202E]/);
  });

  it('M13 check opens each destination of the configuration and checks its health', async () => {
    const config = writeConfig(`{
      destinations: {
        good: { ...handler(() => {}), health: async () => ({ ok: true }) },
        bad: { ...handler(() => {}), health: async () => ({ ok: false, problem: 'no topic "a"' }) },
        slow: { ...handler(() => {}, { timeoutMs: 50 }), health: () => new Promise(() => {}) },
        closed: { ...handler(() => {}), open() { throw new Error('no library') } },
        silent: handler(() => {}),
      },
      routes: [],
    }`);
    const finished = await cliOn(db, ['destinations', 'check', '--config', config, '--json']);
    expect(finished.code).toBe(1);
    expect(json(finished)).toEqual([
      { name: 'good', kind: 'handler', health: 'ok', problem: null },
      { name: 'bad', kind: 'handler', health: 'failed', problem: 'no topic "a"' },
      { name: 'slow', kind: 'handler', health: 'failed', problem: 'no answer within 50 ms' },
      { name: 'closed', kind: 'handler', health: 'failed', problem: 'no library' },
      {
        name: 'silent',
        kind: 'handler',
        health: 'unknown',
        problem: 'this kind has nothing to ask',
      },
    ]);
    const one = await cliOn(db, ['destinations', 'check', 'good', '--config', config]);
    expect(one.code).toBe(0);
    expect(one.stdout).toMatch(/^good +handler +ok$/m);
    expect(one.stdout).not.toContain('bad');
    const none = await cliOn(db, ['destinations', 'check', 'unknown', '--config', config]);
    expect(none.code).toBe(3);
  });
});
