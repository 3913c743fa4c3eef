// Invalid arguments of the SQL functions: the error names the argument, the value and what is allowed, and nothing
// changes.

import { randomUUID } from 'node:crypto';

import { beforeAll, describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { makeQueue, misplaced } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
let queue: Queue;

beforeAll(async () => {
  queue = await makeQueue(db);
  await queue.enqueue(3);
});

async function expectRefused(call: string, says: string): Promise<void> {
  const token = randomUUID();
  const sql = call.replaceAll('QUEUE', `'${queue.name}'`).replaceAll('TOKEN', `'${token}'`);
  await expect(db.query(`SELECT * FROM ${db.quoted}.${sql}`), call).rejects.toMatchObject({
    code: '22023',
    message: says,
  });
}

const count = (argument: string, given: string, highest = 1_000_000) =>
  `${argument} is ${given}: give a whole number from 1 to ${highest}`;
const tenYearsMs = 315_360_000_000;

describe('claim', () => {
  it.each([
    ['max_messages => -1', count('max_messages', '-1', 10_000)],
    ['max_messages => 0', count('max_messages', '0', 10_000)],
    ['max_messages => NULL', count('max_messages', 'null', 10_000)],
    ['max_messages => 10001', count('max_messages', '10001', 10_000)],
    ["lease => '60 days'", 'lease is 60 days: give an interval from 00:00:00.001 to 7 days'],
    ["lease => '-1 s'", 'lease is -00:00:01: give an interval from 00:00:00.001 to 7 days'],
    ["lease => '0'", 'lease is 00:00:00: give an interval from 00:00:00.001 to 7 days'],
    ['lease => NULL', 'lease is null: give an interval from 00:00:00.001 to 7 days'],
  ])('C1 refuses %s, and claims nothing', async (argument, says) => {
    await expectRefused(`claim(QUEUE, TOKEN, ${argument})`, says);
    expect(await queue.waiting()).toHaveLength(3);
  });

  it('C1 accepts the smallest and the largest allowed values', async () => {
    const own = await makeQueue(db);
    await own.enqueue(2);
    const claim = async (lease: string): Promise<number> => {
      const { rowCount } = await db.query(
        `SELECT * FROM ${db.quoted}.claim($1, $2, 1, lease => $3)`,
        [own.name, randomUUID(), lease],
      );
      return rowCount ?? 0;
    };
    expect([await claim('7 days'), await claim('1 ms')]).toEqual([1, 1]);
    const { rows } = await db.query<{ duration: string }>(
      `SELECT duration::text FROM ${db.quoted}.leases WHERE destination_id = $1 ORDER BY duration`,
      [own.id],
    );
    expect(rows.map((row) => row.duration)).toEqual(['00:00:00.001', '168:00:00']);
  });
});

describe('nack', () => {
  it.each([
    ['-1 s', '-00:00:01'],
    ['11 years', '11 years'],
  ])('M10 refuses to retry after %s, and the message stays leased', async (given, shown) => {
    const own = await makeQueue(db);
    const id = await own.enqueueOne();
    const claim = await own.claimOne();
    await expect(
      db.query(`SELECT ${db.quoted}.nack($1, $2, retry_after => $3)`, [claim.relayId, id, given]),
    ).rejects.toMatchObject({
      code: '22023',
      message: `retry_after is ${shown}: give an interval from 00:00:00 to 10 years`,
    });
    expect(await own.status(id)).toMatchObject({ status: 'processing' });
    const { rows } = await db.query<{ done: boolean }>(
      `SELECT ${db.quoted}.nack($1, $2, retry_after => '10 years') AS done`,
      [claim.relayId, id],
    );
    expect(only(rows).done).toBe(true);
  });
});

describe('define_destination', () => {
  const name = 'letters, digits, _ - and ., at most 63';
  it.each([
    ['p_max_attempts => 0', count('p_max_attempts', '0', 1000)],
    ['p_max_attempts => NULL', count('p_max_attempts', 'null', 1000)],
    ['p_max_attempts => 1001', count('p_max_attempts', '1001', 1000)],
    ['p_retry_base_ms => -1', `p_retry_base_ms is -1: give a whole number from 0 to ${tenYearsMs}`],
    [
      'p_retry_base_ms => 500, p_retry_max_ms => 499',
      `p_retry_max_ms is 499: give a whole number from 500 to ${tenYearsMs}`,
    ],
    [
      `p_retry_max_ms => ${tenYearsMs + 1}`,
      `p_retry_max_ms is ${tenYearsMs + 1}: give a whole number from 1000 to ${tenYearsMs}`,
    ],
    ["p_retry_delays_ms => '{}'", count('the length of p_retry_delays_ms', '0', 100)],
    [
      "p_retry_delays_ms => '{1,-1}'",
      `p_retry_delays_ms[2] is -1: give a whole number from 0 to ${tenYearsMs}`,
    ],
    [
      "p_retry_delays_ms => '{1,NULL}'",
      `p_retry_delays_ms[2] is null: give a whole number from 0 to ${tenYearsMs}`,
    ],
    ['p_kind => NULL', 'p_kind is null: say what serves it, for example worker'],
  ])('M10 refuses %s', async (argument, says) => {
    await expectRefused(`define_destination('refused', ${argument})`, says);
  });

  it.each([
    ["'a b'", `p_name is "a b": use ${name}`],
    ["''", `p_name is "": use ${name}`],
    ['NULL', `p_name is null: use ${name}`],
  ])('refuses the name %s', async (given, says) => {
    await expectRefused(`define_destination(${given})`, says);
  });

  it('stores nothing of a refused definition', async () => {
    const { rows } = await db.query(
      `SELECT FROM ${db.quoted}.destinations WHERE name = 'refused' OR kind <> 'test'`,
    );
    expect(rows).toEqual([]);
  });
});

describe('apply_definitions', () => {
  it.each(['{}', '[]', '{"destinations": []}', '{"routes": [], "destinations": {}}'])(
    'refuses %s instead of treating it as "none"',
    async (given) => {
      await expectRefused(
        `apply_definitions('${given}')`,
        `p_definitions is ${given}: give {"destinations": [...], "routes": [...]}`,
      );
      const { rows } = await db.query(`SELECT FROM ${db.quoted}.routes WHERE destination_id = $1`, [
        queue.id,
      ]);
      expect(rows).toHaveLength(1);
    },
  );
});

describe('functions for operators and maintenance', () => {
  it.each([
    ['find_dead_letters(max_count => -1)', count('max_count', '-1')],
    ['retry_dead_letters(max_count => -1)', count('max_count', '-1')],
    ['discard_dead_letters(max_count => NULL)', count('max_count', 'null')],
    ['retry_now(max_count => 0)', count('max_count', '0')],
    ['route_unrouted(max_count => -1)', count('max_count', '-1')],
    ['discard_unrouted(max_count => -1)', count('max_count', '-1')],
    ['unrouted_groups(max_count => 0)', count('max_count', '0')],
    ["move_deliveries(QUEUE, 'elsewhere', max_count => -1)", count('max_count', '-1')],
    [
      'move_deliveries(QUEUE, QUEUE)',
      'to_destination is queue-1, and so is destination: give another one',
    ],
    ['discard_deliveries(QUEUE, max_count => NULL)', count('max_count', 'null')],
    ['set_paused(QUEUE, NULL)', 'paused is null: give true or false'],
    ['reap(-1)', count('p_max_leases', '-1')],
    ["prune_dedupe_keys('30 days', -1)", count('p_batch', '-1')],
    [
      "prune_dedupe_keys('29 days')",
      'p_older_than is 29 days: give an interval from 30 days to 100 years',
    ],
    ["prune_dead_letters('1 day', 0)", count('p_batch', '0')],
    [
      "prune_dead_letters('-1 day')",
      'p_older_than is -1 days: give an interval from 00:00:00 to 100 years',
    ],
    ...['forget_keys', 'forget_positions'].flatMap((name): [string, string][] => [
      [`${name}('30 days', 0)`, count('p_batch', '0')],
      [`${name}(NULL, -1)`, count('p_batch', '-1')],
      ...['29 days', '10000 years'].map((given): [string, string] => [
        `${name}('${given}')`,
        `p_older_than is ${given}: give an interval from 30 days to 100 years`,
      ]),
    ]),
    [
      "expired_partitions('-1 day', NULL)",
      'p_messages_for is -1 days: give an interval from 1 day to 100 years',
    ],
    [
      "expired_partitions(NULL, '-1 day')",
      'p_attempts_for is -1 days: give an interval from 1 day to 100 years',
    ],
  ])('N7 W5 refuse %s', async (call, says) => {
    await makeQueueNamedElsewhere();
    await expectRefused(call, says);
    expect(await queue.waiting()).toHaveLength(3);
    expect(await misplaced(db)).toEqual([]);
  });
});

async function makeQueueNamedElsewhere(): Promise<void> {
  await db.query(`SELECT ${db.quoted}.define_destination('elsewhere', 'test')`);
}

describe('enqueue', () => {
  const hint = 'Nothing was enqueued.';
  it.each([
    ["'[1]'", 'messages[0] 1 is not an object: give {"topic": ..., "payload": ...}'],
    [
      `'[{"topic": "a"}, ["b"]]'`,
      'messages[1] ["b"] is not an object: give {"topic": ..., "payload": ...}',
    ],
    [
      `'{"topic": "a"}'`,
      'messages {"topic": "a"} is not a list: give a JSON array such as [{"topic": "user.registered"}]',
    ],
    [
      'NULL',
      'messages null is not a list: give a JSON array such as [{"topic": "user.registered"}]',
    ],
  ])(
    'M2 refuses the messages %s, whether their names are checked or not',
    async (messages, message) => {
      for (const checked of ['', ', true'])
        await expect(
          db.query(`SELECT ${db.quoted}.enqueue_many(${messages}${checked})`),
        ).rejects.toMatchObject({ code: '22023', message, hint });
    },
  );

  it.each([
    ["delay => '-1 day'", 'delay is -1 days: give an interval from 00:00:00 to 10 years'],
    ["delay => '11 years'", 'delay is 11 years: give an interval from 00:00:00 to 10 years'],
    ["available_at => 'infinity'", 'availableAt infinity is not a date: give an ISO 8601 text'],
  ])('M2 refuses %s', async (argument, says) => {
    await expectRefused(`enqueue(QUEUE, ${argument})`, says);
  });
});
