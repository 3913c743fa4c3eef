// Blocked keys from the command line: listed, and unblocked by an action on their dead heads.

import { describe, expect, it } from 'vitest';

import { listBlockedKeys } from '../../src/features/keys/database.js';
import { cliAs, json } from '../support/cli.js';
import { addRoute, defineDestination } from '../support/destinations.js';
import { makeBlocked } from '../support/letters.js';
import { makeQueue, misplaced, Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { deliverAll } from '../support/replays.js';
import { settle } from '../support/settling.js';

const db = testDatabase();
const cliOn = cliAs('test_server');

type Lane = { destination: string; key: string; messageId: string; waiting: number };

async function listed(...args: string[]): Promise<Lane[]> {
  return (json(await cliOn(db, ['keys', 'list', '--json', ...args])) as { keys: Lane[] }).keys;
}

describe('waybill keys', () => {
  it('M13 lists blocked keys with their heads, by destination, tenant and key', async () => {
    const queue = await makeQueue(db, { whenDead: 'block' });
    const [a = ''] = await makeBlocked(queue, 'a');
    const [b = ''] = await makeBlocked(queue, 'b', 1);
    const at = ['--destination', queue.name];
    expect(await listed(...at)).toMatchObject([
      {
        destination: queue.name,
        key: 'a',
        tenantId: 'acme',
        messageId: a,
        errorCode: 'no',
        waiting: 2,
      },
      {
        destination: queue.name,
        key: 'b',
        tenantId: 'acme',
        messageId: b,
        errorCode: 'no',
        waiting: 1,
      },
    ]);
    expect((await listed(...at, '--key', 'b')).map(({ messageId }) => messageId)).toEqual([b]);
    expect(await listed(...at, '--tenant', 'other')).toEqual([]);
    expect(await listed(...at, '--namespace', 'other')).toEqual([]);
    const table = await cliOn(db, ['keys', ...at, '--limit', '1']);
    expect(table.stdout).toContain(a);
    expect(table.stdout).not.toContain(b);
    const [, next = ''] = /more: --next (\S+)/.exec(table.stderr) ?? [];
    expect((await listed(...at, '--next', next)).map(({ messageId }) => messageId)).toEqual([b]);
  });

  it('a message that blocks its key at two destinations is listed for both, page by page', async () => {
    const one = await makeQueue(db, { whenDead: 'block' });
    const two = await makeQueue(db, { whenDead: 'block' });
    await addRoute(db, two.id, one.topic);
    const id = await one.enqueueOne({ key: 'both', namespace: one.name });
    for (const queue of [one, two]) {
      const claim = await queue.claimOne();
      await settle(db, claim, [{ id, outcome: 'reject', errorCode: 'no' }]);
    }
    const database = openDatabase(db);
    const first = await listBlockedKeys(database, { namespace: one.name }, { limit: 1 });
    const second = await listBlockedKeys(
      database,
      { namespace: one.name },
      { limit: 1, next: first.next ?? '' },
    );
    expect([...first.keys, ...second.keys].map(({ destination }) => destination)).toEqual([
      one.name,
      two.name,
    ]);
    // ids of destinations have up to ten digits
    const late = { limit: 1, next: `${id}.2147483647` };
    expect((await listBlockedKeys(database, { namespace: one.name }, late)).keys).toEqual([]);
    await expect(
      listBlockedKeys(database, {}, { limit: 1, next: `${id}.2147483648` }),
    ).rejects.toThrow('pass next from the previous page');
    await expect(listBlockedKeys(database, {}, { limit: 1, next: 'x' })).rejects.toThrow(
      'next is "x": pass next from the previous page',
    );
    expect(
      json(await cliOn(db, ['keys', 'discard', '--namespace', one.name, '--yes', '--json'])),
    ).toEqual({ discard: 2 });
  });

  it.each([
    ['retry', 0, [0, 1, 2]],
    ['skip', 1, [1, 2]],
    ['discard', 0, [1, 2]],
  ] as const)('M13 %s unblocks the keys that match and no other', async (action, dead, sent) => {
    const queue = await makeQueue(db, { whenDead: 'block' });
    const ids = await makeBlocked(queue, 'mine');
    const others = await makeBlocked(queue, 'other');
    const args = ['keys', action, '--destination', queue.name, '--key', 'mine'];
    const dry = json(await cliOn(db, [...args, '--dry-run', '--json'])) as Lane[];
    expect(dry.map(({ key }) => key)).toEqual(['mine']);
    const unasked = await cliOn(db, args);
    expect([unasked.code, unasked.stdout]).toEqual([4, '']);
    expect(unasked.stderr).toContain(`${action} the dead letters that block 1 keys? Add --yes`);
    expect((await queue.claim()).ids).toEqual([]);

    expect(await cliOn(db, [...args, '--yes'])).toMatchObject({
      code: 0,
      stdout: `${action}: 1\n`,
    });
    expect(await deliverAll(db, queue)).toEqual(sent.map((n) => ids[n]));
    expect((await listed('--destination', queue.name)).map(({ messageId }) => messageId)).toEqual([
      others[0],
    ]);
    expect(await queue.deadLetters()).toHaveLength(dead + 1);
    expect(await misplaced(db)).toEqual([]);
  });

  it('wrong usage is exit code 2, an unknown destination is exit code 3', async () => {
    const queue = new Queue(db, 'quiet', await defineDestination(db, 'quiet'));
    for (const action of ['retry', 'skip', 'discard']) {
      const { code, stderr } = await cliOn(db, ['keys', action, '--yes']);
      expect([code, stderr]).toEqual([2, expect.stringContaining('Give a filter, or --all')]);
      const none = await cliOn(db, ['keys', action, '--destination', queue.name, '--yes']);
      expect([none.code, none.stderr]).toEqual([
        3,
        expect.stringContaining('no blocked key matches'),
      ]);
    }
    const unknown = await cliOn(db, ['keys', 'list', '--destination', 'nope']);
    expect([unknown.code, unknown.stdout]).toEqual([3, '']);
    expect(unknown.stderr).toMatch(/no destination is named "nope": there are /);
  });
});
