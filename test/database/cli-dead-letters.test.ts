// Dead letters from the command line: listed, retried, discarded, and nothing without a confirmation.

import { describe, expect, it } from 'vitest';

import { cliOn, json } from '../support/cli.js';
import { defineDestination } from '../support/destinations.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { places } from '../support/relay.js';

const db = testDatabase();

describe('dead letters', () => {
  it('M5 M13 N5 are listed, retried by id, and by filter', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(3);
    for (const id of ids.slice(0, 2)) await queue.kill(id, 'refused');
    await queue.kill(ids[2] ?? '', 'other');
    const filter = ['--destination', queue.name];
    const listed = json(await cliOn(db, ['dead-letters', 'list', ...filter, '--json'])) as {
      messageId: string;
      errorCode: string;
    }[];
    expect(listed.map(({ messageId, errorCode }) => [messageId, errorCode])).toEqual([
      [ids[0], 'refused'],
      [ids[1], 'refused'],
      [ids[2], 'other'],
    ]);
    const table = await cliOn(db, ['dead-letters', 'list', ...filter, '--error-code', 'other']);
    expect(table.stdout.trimEnd().split('\n')).toHaveLength(2);
    expect(table.stdout).toContain(ids[2]);

    expect(await cliOn(db, ['dead-letters', 'retry', ids[2] ?? '', '--yes'])).toMatchObject({
      code: 0,
      stdout: 'retry: 1\n',
    });
    expect(await places(db, queue.name)).toMatchObject({ dead: 2, waiting: 1 });
    const dry = await cliOn(db, ['dead-letters', 'retry', ...filter, '--dry-run', '--json']);
    expect(json(dry)).toHaveLength(2);
    expect(await places(db, queue.name)).toMatchObject({ dead: 2, waiting: 1 });
    expect(json(await cliOn(db, ['dead-letters', 'retry', ...filter, '--yes', '--json']))).toEqual({
      retry: 2,
    });
    expect(await places(db, queue.name)).toMatchObject({ dead: 0, waiting: 3 });
    const { rows } = await db.query<{ actor: string; action: string }>(
      `SELECT DISTINCT actor, action FROM ${db.quoted}.operator_actions WHERE subject ->> 'destination' = $1 AND action <> 'define_destination'`,
      [queue.name],
    );
    expect(only(rows)).toMatchObject({
      action: 'retry_dead_letters',
      actor: expect.stringMatching(/^cli:/) as unknown,
    });
  });

  it('M5 a discard ends a dead letter for good, and its record stays', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    await queue.kill(id);
    expect(await cliOn(db, ['dead-letters', 'discard', id, '--yes'])).toMatchObject({
      code: 0,
      stdout: 'discard: 1\n',
    });
    expect(await places(db, queue.name)).toMatchObject({ dead: 0, waiting: 0 });
    expect((await queue.attempts(id)).map(({ state }) => state)).toEqual(['failed', 'discarded']);
  });

  it('without a terminal a change needs --yes: exit code 4, and nothing changes', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    await queue.kill(id);
    for (const action of ['retry', 'discard']) {
      const { code, stdout, stderr } = await cliOn(db, ['dead-letters', action, id]);
      expect({ code, stdout }).toEqual({ code: 4, stdout: '' });
      expect(stderr).toContain('--yes');
    }
    expect(await places(db, queue.name)).toMatchObject({ dead: 1, waiting: 0 });
  });

  it('an unknown id is not found: exit code 3', async () => {
    const destination = 'quiet-place';
    await defineDestination(db, destination);
    for (const args of [
      ['retry', '01a1de5f-b731-742f-8845-6c60ca5acb12', '--yes'],
      ['discard', '--destination', destination, '--yes'],
    ]) {
      const { code, stderr } = await cliOn(db, ['dead-letters', ...args]);
      expect(code).toBe(3);
      expect(stderr).toContain('no dead letter matches');
    }
  });

  it.each([['list'], ['retry'], ['skip'], ['discard']])(
    '%s at an unknown destination is not found: exit code 3, with the known destinations',
    async (action) => {
      await defineDestination(db, 'known-place');
      const yes = action === 'list' ? [] : ['--yes'];
      const args = ['dead-letters', action, '--destination', 'nope', ...yes];
      const { code, stdout, stderr } = await cliOn(db, args);
      expect({ code, stdout }).toEqual({ code: 3, stdout: '' });
      expect(stderr).toMatch(
        /destination "nope" does not exist\n +Known destinations: .*known-place/,
      );
    },
  );
});
