// Attempts can be read alone: after their message has expired, the topics that ask for it keep the fields that identify
// it, for as long as the attempt is kept.

import { beforeEach, describe, expect, it } from 'vitest';

import { as } from '../support/logins.js';
import { only } from '../support/only.js';
import { enqueueMany, makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { ageMessage, partitionDays, pruneNow } from '../support/retention.js';
import { settleDelivered } from '../support/settling.js';

const db = testDatabase({ eachTestFrom: () => Promise.resolve() });
let queue: Queue;

const message = {
  namespace: 'payments',
  tenantId: 'acme',
  key: 'participant-7',
  dedupeKey: 'acme/instruction-1/a',
  aggregateType: 'instruction',
  aggregateId: 'instruction-1',
};

/** Which fields an attempt has after its message is gone. */
const identity = {
  namespace: 'payments',
  topic: '',
  tenant_id: 'acme',
  key: 'participant-7',
  sequence: '1',
  dedupe_key: 'acme/instruction-1/a',
  aggregate_type: 'instruction',
  aggregate_id: 'instruction-1',
};
const nothing = Object.fromEntries(Object.keys(identity).map((name) => [name, null]));

async function setFloor(topic: string, attemptsDays: number): Promise<void> {
  await db.query(
    `INSERT INTO ${db.quoted}.retention_floors (topic, attempts_days, keeps_identity) VALUES ($1, $2, true)`,
    [topic, attemptsDays],
  );
}

/** A delivered message of 50 days ago. */
async function delivered(): Promise<string> {
  const { id } = only(await enqueueMany(db, db.pool, [{ topic: queue.topic, ...message }]));
  await settleDelivered(db, await queue.claimOne());
  return ageMessage(db, id, 50);
}

async function logged(
  id: string,
  login: 'test_auditor' | 'test_tenant_reader',
  tenant = 'acme',
): Promise<object[]> {
  return as(db, login, async (client) => {
    await client.query(`SET waybill.tenant_id = '${tenant}'`);
    const { rows } = await client.query<object>(
      `SELECT destination, state, ${Object.keys(identity).join(', ')} FROM ${db.quoted}.attempt_log WHERE message_id = $1`,
      [id],
    );
    return rows;
  });
}

async function identities(): Promise<number[]> {
  const { rows } = await db.query<{ ago: number }>(
    `SELECT (now() AT TIME ZONE 'UTC')::date - day AS ago FROM ${db.quoted}.partition_bounds($1::regclass)`,
    [`${db.quoted}.message_identities`],
  );
  return rows.map(({ ago }) => ago);
}

beforeEach(async () => {
  queue = await makeQueue(db);
  identity.topic = queue.topic;
});

describe.each([
  ['the role maintenance', 'test_maintenance'],
  ['the owner', undefined],
] as const)('retention by %s', (_who, login) => {
  const prune = () => pruneNow(db, { messagesDays: 1, attemptsDays: 1 }, login);

  it('P17 keeps what identifies an attempt when its message goes, and removes it with the attempt', async () => {
    await setFloor(queue.topic, 60);
    const id = await delivered();
    const attempt = { destination: queue.name, state: 'dispatched' };
    expect(await logged(id, 'test_auditor')).toEqual([{ ...attempt, ...identity }]);
    await prune();
    expect((await db.query(`SELECT FROM ${db.quoted}.messages`)).rows).toEqual([]);
    expect(await logged(id, 'test_auditor')).toEqual([{ ...attempt, ...identity }]);
    expect(await logged(id, 'test_tenant_reader')).toEqual([{ ...attempt, ...identity }]);
    expect(await logged(id, 'test_tenant_reader', 'globex')).toEqual([]);
    expect(await identities()).toEqual([50]);

    await db.query(`UPDATE ${db.quoted}.retention_floors SET attempts_days = 1`);
    await prune();
    expect((await partitionDays(db, 'attempts')).filter((ago) => ago > 8)).toEqual([]);
    expect(await identities()).toEqual([]);
    expect(await logged(id, 'test_auditor')).toEqual([]);
  });

  it('P17 copies nothing of topics that do not ask for it', async () => {
    await setFloor('other.*', 60);
    await db.query(
      `INSERT INTO ${db.quoted}.retention_floors (topic, attempts_days) VALUES ($1, 60)`,
      [queue.topic],
    );
    const id = await delivered();
    await prune();
    expect(await logged(id, 'test_auditor')).toEqual([
      { destination: queue.name, state: 'dispatched', ...nothing },
    ]);
    expect(await logged(id, 'test_tenant_reader'), 'whose they are is unknown').toEqual([]);
    expect(await identities()).toEqual([]);
  });
});

it('P17 P5 identities are a record: no role changes them, and the owner cannot either', async () => {
  await setFloor(queue.topic, 60);
  await delivered();
  await pruneNow(db, { messagesDays: 1, attemptsDays: 1 }, 'test_maintenance');
  const { rows } = await db.query<{ name: string }>(
    `SELECT partition::text AS name FROM ${db.quoted}.partition_bounds($1::regclass)`,
    [`${db.quoted}.message_identities`],
  );
  const partition = only(rows).name;
  const table = partition.includes('.') ? partition : `${db.quoted}.${partition}`;
  for (const name of [`${db.quoted}.message_identities`, table])
    for (const statement of [
      `DELETE FROM ${name}`,
      `UPDATE ${name} SET key = ''`,
      `TRUNCATE ${name}`,
    ]) {
      await expect(db.query(statement), statement).rejects.toMatchObject({ code: 'P0001' });
      await as(db, 'test_maintenance', async (client) => {
        await expect(client.query(statement), statement).rejects.toMatchObject({ code: '42501' });
      });
    }
});
