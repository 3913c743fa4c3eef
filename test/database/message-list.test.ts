// Finding messages: every filter returns exactly what the status view has, page by page, with any index. A filter that
// matches nothing ends after a bounded search, with a cursor to continue.

import { afterAll, describe, expect, it } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { readMessage } from '../../src/listing/message-detail.js';
import { listMessages } from '../../src/listing/message-list.js';
import type { ListedMessage } from '../../src/listing/message-list.js';
import type { MessageFilter } from '../../src/listing/message-ranges.js';
import { cliOn, json } from '../support/cli.js';
import { defineDestination } from '../support/destinations.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();
const opened = new Database(resolveDatabaseOptions({ url: db.url, schema: db.schema }), {
  connections: 2,
  applicationName: 'test',
});

afterAll(() => opened.close());

/** All pages. */
async function list(filter: MessageFilter, limit = 3): Promise<ListedMessage[]> {
  const found: ListedMessage[] = [];
  for (let next: string | null | undefined; next !== null;) {
    const page = await listMessages(opened, filter, { limit, ...(next && { next }) });
    expect(page.messages.length).toBeLessThanOrEqual(limit + 1);
    found.push(...page.messages);
    next = page.next;
  }
  return found;
}

function ids(messages: readonly { messageId: string }[]): string[] {
  return messages.map(({ messageId }) => messageId);
}

async function fail(queue: Queue, count: number, outcome: 'retry' | 'reject'): Promise<string[]> {
  const claim = await queue.claim({ limit: count });
  await settle(
    db,
    claim,
    claim.ids.map((id) => ({
      id,
      outcome,
      retryAfterMs: 3_600_000,
      errorCode: `${outcome}-code`,
      errorMessage: 'no',
    })),
  );
  return claim.ids;
}

/** Twenty messages, some in every state. */
async function scene() {
  const queue = await makeQueue(db);
  const other = await makeQueue(db);
  await db.query(`INSERT INTO ${db.quoted}.routes (destination_id, topic) VALUES ($1, $2)`, [
    other.id,
    queue.topic,
  ]);
  const tenantId = `tenant of ${queue.name}`;
  const aggregate = { aggregateType: 'order', aggregateId: queue.name };
  const all = [
    ...(await queue.enqueue(14)),
    ...(await queue.enqueue(3, { tenantId })),
    ...(await queue.enqueue(3, aggregate)),
  ];
  const delivered = await queue.claim({ limit: 5 });
  await settleDelivered(db, delivered);
  const retrying = await fail(queue, 4, 'retry');
  const dead = await fail(queue, 3, 'reject');
  const held = await queue.claim({ limit: 2 });
  return { queue, other, tenantId, aggregate, all, delivered: delivered.ids, retrying, dead, held };
}

describe('a list of messages', () => {
  it('W5 has every delivery of every message, newest first, and no message is split by a page', async () => {
    const { queue, other, all } = await scene();
    const found = await list({ topic: queue.topic });
    expect(ids(found)).toEqual(all.toReversed().flatMap((id) => [id, id]));
    for (let index = 0; index < found.length; index += 2) {
      const pair = found.slice(index, index + 2).map(({ destination }) => destination);
      expect(new Set(pair)).toEqual(new Set([queue.name, other.name]));
    }
    const { rows } = await db.query(
      `SELECT message_id, destination, status FROM ${db.quoted}.message_status WHERE topic = $1`,
      [queue.topic],
    );
    expect(rows).toHaveLength(found.length);
  });

  it('W5 agrees with the status view for each message', async () => {
    const { queue, other, all, dead } = await scene();
    await db.query(`SELECT ${db.quoted}.cancel($1, $2)`, [all[19], other.name]);
    const columns =
      'message_id, destination, status, retrying, namespace, topic, tenant_id, key, sequence, aggregate_type, aggregate_id, tries, next_try_at, created_at, changed_at';
    const { rows: viewed } = await db.query(
      `SELECT ${columns}, last_error_code AS error_code, last_error AS error FROM ${db.quoted}.message_status
        WHERE topic = $1 ORDER BY message_id, destination`,
      [queue.topic],
    );
    const { rows: described } = await db.query(
      `SELECT ${columns}, error_code, error FROM ${db.quoted}.describe_messages($1) ORDER BY message_id, destination`,
      [all],
    );
    expect(new Set(viewed.map(({ status }) => status as string)).size).toBe(5);
    expect(described).toEqual(viewed);
    // a dead letter outlives its message
    await db.query(`DELETE FROM ${db.quoted}.messages WHERE id = $1`, [dead[0]]);
    expect(await list({ id: dead[0] ?? '', destination: queue.name })).toMatchObject([
      { status: 'dead', topic: queue.topic },
    ]);
  });

  it('W5 the status failed has the dead, then those that wait for a retry, page by page', async () => {
    const { queue, retrying, dead } = await scene();
    const both = { destination: queue.name, status: 'failed' } as const;
    for (const limit of [1, 2, 3, 5, 50]) {
      const found = await list(both, limit);
      expect(ids(found.slice(0, 3)).toSorted()).toEqual(dead.toSorted());
      expect(ids(found.slice(3)).toSorted()).toEqual(retrying.toSorted());
    }
    expect(ids(await list({ ...both, errorCode: 'retry-code' })).toSorted()).toEqual(
      retrying.toSorted(),
    );
    expect(await list({ ...both, id: dead[0] ?? '' })).toMatchObject([{ status: 'dead' }]);
    const first = await listMessages(opened, both, { limit: 1 });
    const second = await listMessages(opened, both, { limit: 50, next: first.next ?? '' });
    expect(second.searchedInAll).toBe(first.searched + second.searched);
    for (const next of ['dead', 'delivered.0.', 'dead.x.'])
      await expect(listMessages(opened, both, { limit: 1, next })).rejects.toThrow(
        'pass next from the previous page',
      );
  });

  it.each(['pending', 'retrying', 'processing'] as const)(
    'W5 a page that ends between the deliveries of a message loses none of them: %s',
    async (status) => {
      const queue = await makeQueue(db);
      const other = await makeQueue(db);
      await db.query(`INSERT INTO ${db.quoted}.routes (destination_id, topic) VALUES ($1, $2)`, [
        other.id,
        queue.topic,
      ]);
      const enqueued = await queue.enqueue(3);
      if (status !== 'pending') {
        for (const each of [queue, other]) {
          const claim = await each.claim({ limit: 3 });
          if (status === 'processing') continue;
          await settle(
            db,
            claim,
            claim.ids.map((id) => ({ id, outcome: 'retry', retryAfterMs: 3_600_000 })),
          );
        }
        // as an operator who makes them due together
        await db.query(
          `UPDATE ${db.quoted}.deliveries SET available_at = now() + interval '1 hour' WHERE message_id = ANY ($1)`,
          [enqueued],
        );
      }
      const found = await list({ status, topic: queue.topic }, 1);
      expect(ids(found).toSorted()).toEqual(enqueued.flatMap((id) => [id, id]).toSorted());
    },
  );

  it('W5 filters by id, whatever the status', async () => {
    const { queue, dead, retrying } = await scene();
    const [id = ''] = dead;
    const destination = queue.name;
    expect(ids(await list({ id, destination, status: 'dead' }))).toEqual([id]);
    expect(await list({ id, destination, status: 'pending' })).toEqual([]);
    expect(ids(await list({ id: retrying[0] ?? '', destination, status: 'retrying' }))).toEqual([
      retrying[0],
    ]);
  });

  it('W5 filters by id and dedupe key together', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne({ dedupeKey: 'its own' });
    await queue.enqueueOne({ dedupeKey: 'of another' });
    expect(ids(await list({ id, dedupeKey: 'its own' }))).toEqual([id]);
    expect(ids(await list({ id, dedupeKey: 'its own', status: 'pending' }))).toEqual([id]);
    expect(await list({ id, dedupeKey: 'of another' })).toEqual([]);
    expect(await list({ id, dedupeKey: 'unknown', status: 'pending' })).toEqual([]);
  });

  it('W5 filters the dead letters of one message by cause and time at each destination', async () => {
    const queue = await makeQueue(db);
    const other = await makeQueue(db);
    await db.query(`INSERT INTO ${db.quoted}.routes (destination_id, topic) VALUES ($1, $2)`, [
      other.id,
      queue.topic,
    ]);
    const id = await queue.enqueueOne({ dedupeKey: 'dead at two' });
    const [refused, ended] = ['2026-01-01T10:00:00Z', '2026-01-01T12:00:00Z'];
    for (const [at, errorCode, remoteCode, diedAt] of [
      [queue, 'http_status', '422', refused],
      [other, 'timeout', undefined, ended],
    ] as const) {
      const claim = await at.claim();
      await settle(db, claim, [
        { id, outcome: 'reject', errorCode, ...(remoteCode && { remoteCode }) },
      ]);
      await db.query(
        `UPDATE ${db.quoted}.dead_letters SET dead_at = $1 WHERE destination_id = $2`,
        [diedAt, at.id],
      );
    }
    const found = async (filter: MessageFilter) => {
      const byId = await list({ ...filter, id, status: 'dead' });
      const byKey = await list({ ...filter, dedupeKey: 'dead at two', status: 'dead' });
      expect(byKey).toEqual(byId);
      return byId.map(({ destination }) => destination);
    };
    expect(await found({})).toEqual([queue.name, other.name]);
    expect(await found({ cause: 'http_status 422' })).toEqual([queue.name]);
    expect(await found({ cause: 'timeout' })).toEqual([other.name]);
    expect(await found({ failedTo: new Date(ended) })).toEqual([queue.name]);
    expect(await found({ failedFrom: new Date(ended) })).toEqual([other.name]);
    expect(await found({ failedFrom: new Date(ended), cause: 'http_status 422' })).toEqual([]);
  });

  it('W5 a code of the other side is found if it is an HTTP status, with whatever other filters', async () => {
    const queue = await makeQueue(db);
    const sent = [
      { key: 'a', dedupeKey: 'with status', errorCode: 'http_status', remoteCode: '418' },
      { key: 'b', dedupeKey: 'with text', errorCode: 'thrown', remoteCode: 'strange' },
    ];
    for (const { key, dedupeKey, errorCode, remoteCode } of sent) {
      const id = await queue.enqueueOne({ key, dedupeKey });
      await settle(db, await queue.claim(), [{ id, outcome: 'reject', errorCode, remoteCode }]);
    }
    for (const { key, dedupeKey, errorCode, remoteCode } of sent) {
      const searches: MessageFilter[] = [
        { destination: queue.name },
        { destination: queue.name, status: 'dead' },
        { key },
        { dedupeKey },
        { dedupeKey, status: 'dead' },
        { topic: queue.topic, status: 'failed' },
      ];
      for (const search of searches) {
        expect(await list({ ...search, errorCode }), JSON.stringify(search)).toHaveLength(1);
        const byRemoteCode = await list({ ...search, errorCode: remoteCode });
        expect(byRemoteCode, JSON.stringify(search)).toHaveLength(remoteCode === '418' ? 1 : 0);
      }
    }
  });

  it('W5 filters by status at one destination', async () => {
    const { queue, all, delivered, retrying, dead, held } = await scene();
    const at = (status: MessageFilter['status']) =>
      list({ ...(status && { status }), destination: queue.name });
    const pending = all.filter((id) => ![...delivered, ...dead, ...held.ids].includes(id));
    expect(ids(await at('delivered'))).toEqual(delivered.toReversed());
    expect(ids(await at('retrying')).toSorted()).toEqual(retrying.toSorted());
    expect(ids(await at('dead')).toSorted()).toEqual(dead.toSorted());
    expect(ids(await at('processing'))).toEqual(held.ids.toReversed());
    expect(ids(await at('pending')).toSorted()).toEqual(pending.toSorted());
    // the next due one comes first: those that wait for their retry are last
    expect(
      ids(await at('pending'))
        .slice(-4)
        .toSorted(),
    ).toEqual(retrying.toSorted());
    expect(ids(await at(undefined))).toEqual(all.toReversed());
  });

  it('W5 filters by status at all destinations together', async () => {
    const { other, all, dead } = await scene();
    expect(ids(await list({ status: 'dead' }))).toEqual(expect.arrayContaining(dead));
    const pending = await list({ status: 'pending' }, 50);
    const atOther = pending.filter(({ destination }) => destination === other.name);
    expect(ids(atOther).toSorted()).toEqual(all.toSorted());
  });

  it('W1 W5 filters by tenant, by aggregate, by key, by code', async () => {
    const { queue, tenantId, aggregate, all, dead, retrying } = await scene();
    const destination = queue.name;
    expect(ids(await list({ destination, tenantId }))).toEqual(all.slice(14, 17).toReversed());
    expect(ids(await list({ destination, ...aggregate }))).toEqual(all.slice(17).toReversed());
    expect(ids(await list({ destination, errorCode: 'reject-code' }))).toEqual(dead.toReversed());
    expect(ids(await list({ destination, errorCode: 'retry-code' }))).toEqual(
      retrying.toReversed(),
    );
    expect(
      ids(await list({ destination, status: 'dead', errorCode: 'reject-code' })).toSorted(),
    ).toEqual(dead.toSorted());
    expect(await list({ destination, status: 'dead', errorCode: 'retry-code' })).toEqual([]);
    const key = `key of ${queue.name}`;
    const keyed = await queue.enqueue(7, { key, tenantId });
    expect(ids(await list({ key, destination }))).toEqual(keyed.toReversed());
    expect(ids(await list({ key, destination, status: 'pending' }))).toEqual(keyed);
    expect(ids(await list({ tenantId, destination, status: 'pending' })).toSorted()).toEqual(
      [...keyed, ...all.slice(14, 17)].toSorted(),
    );
    expect(await list({ key, destination, tenantId: 'another' })).toEqual([]);
  });

  it('W5 filters dead letters by their code, also if no attempt failed with it', async () => {
    const queue = await makeQueue(db, { whenDead: 'park' });
    const letters = [await queue.enqueueOne({ key: 'k' }), await queue.enqueueOne({ key: 'k' })];
    const destination = queue.name;
    await fail(queue, 1, 'reject');
    await queue.claim();
    const parked = { destination, status: 'dead', errorCode: 'parked' } as const;
    expect(await list(parked)).toMatchObject([{ messageId: letters[1], errorCode: 'parked' }]);
    expect(await list({ ...parked, id: letters[1] ?? '' })).toHaveLength(1);
    expect(await list({ ...parked, status: 'failed' })).toHaveLength(1);
    await queue.enqueue(1);
    const [id = ''] = await fail(queue, 1, 'retry');
    await defineDestination(db, queue.name, { maxAttempts: 1 });
    expect(
      await list({ destination, status: 'dead', errorCode: 'max_attempts_lowered' }),
    ).toMatchObject([{ messageId: id, errorCode: 'max_attempts_lowered', error: null }]);
    const { rows } = await db.query(
      `SELECT last_error_code FROM ${db.quoted}.message_status
        WHERE destination = $1 AND status = 'dead' ORDER BY message_id`,
      [queue.name],
    );
    expect(rows).toEqual(
      ['reject-code', 'parked', 'max_attempts_lowered'].map((code) => ({ last_error_code: code })),
    );
  });

  it('W5 filters by time', async () => {
    const { queue, all } = await scene();
    const { rows } = await db.query<{ at: Date }>(
      `SELECT ${db.quoted}.id_time($1) + interval '1 ms' AS at`,
      [all[13]],
    );
    const at = rows[0]?.at ?? new Date();
    const destination = queue.name;
    const older = await list({ destination, to: at });
    const newer = await list({ destination, from: at });
    expect([...ids(newer), ...ids(older)]).toEqual(all.toReversed());
    expect(ids(older)).toContain(all[0]);
    expect(ids(newer)).toContain(all[19]);
    expect(await list({ destination, from: at, to: at })).toEqual([]);
  });

  it('W5 filters unrouted messages', async () => {
    const { rows } = await db.query<{ id: string }>(
      `SELECT id FROM ${db.quoted}.enqueue(topic => 'not.routed')`,
    );
    expect(await list({ status: 'unrouted', topic: 'not.routed' })).toMatchObject([
      { messageId: rows[0]?.id, destination: null, status: 'unrouted' },
    ]);
  });

  it('W5 a filter that matches nothing searches a bounded number, and returns a cursor', async () => {
    const queue = await makeQueue(db);
    const [first = ''] = await queue.enqueue(1);
    await queue.enqueue(21_000);
    const filter = { destination: queue.name, topic: queue.topic, tenantId: undefined };
    const rare: MessageFilter = { topic: queue.topic, status: 'dead' as const };
    expect(await list(rare)).toEqual([]);
    const page = await listMessages(
      opened,
      { topic: filter.topic, status: 'delivered' },
      { limit: 10 },
    );
    expect(page).toMatchObject({ messages: [], searched: 20_000 });
    expect(page.next).not.toBeNull();
    const hurried = await listMessages(
      opened,
      { topic: filter.topic, status: 'delivered' },
      { limit: 10, budgetMs: 0 },
    );
    expect(hurried).toMatchObject({ messages: [], searched: 100 });
    expect(hurried.next).not.toBeNull();
    await db.query(
      `UPDATE ${db.quoted}.deliveries SET available_at = available_at - interval '1 hour' WHERE message_id = $1`,
      [first],
    );
    await settleDelivered(db, await queue.claimOne());
    expect(ids(await list({ topic: filter.topic, status: 'delivered' }, 10))).toEqual([first]);
  });

  it('W5 a cursor of another list is refused, as is an invalid one', async () => {
    const page = await listMessages(opened, {}, { limit: 1 });
    await expect(
      listMessages(opened, { status: 'dead' }, { limit: 1, next: page.next ?? '' }),
    ).rejects.toThrow('next belongs to another filter');
    await expect(listMessages(opened, {}, { limit: 1, next: 'x' })).rejects.toThrow('next is "x"');
  });
});

describe('one message', () => {
  it('W8 is shown with its fields, every attempt, and why it is not delivered yet', async () => {
    const { retrying } = await scene();
    const [id = ''] = retrying;
    const message = await readMessage(opened, id);
    expect(message).toMatchObject({
      id,
      payloadText: expect.stringMatching(/^\{"n": \d+\}$/) as string,
      attempts: [{ claimNo: 1, state: 'retryable', errorCode: 'retry-code', errorMessage: 'no' }],
    });
    expect(message?.explanations.map(({ reason }) => reason).toSorted()).toEqual([
      'no_relay',
      'retrying',
    ]);
  });

  it('W5 has a long payload cut, with its size', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne({ payload: 'ä'.repeat(500) });
    expect(await readMessage(opened, id, 10)).toMatchObject({
      payloadBytes: 1002,
      payloadText: `"${'ä'.repeat(9)}`,
    });
  });

  it('W5 is shown on the command line', async () => {
    const { queue, dead } = await scene();
    const page = json(
      await cliOn(db, [
        'messages',
        'list',
        '--status',
        'dead',
        '--destination',
        queue.name,
        '--json',
      ]),
    ) as { messages: { messageId: string }[] };
    expect(ids(page.messages).toSorted()).toEqual(dead.toSorted());
    const shown = await cliOn(db, ['messages', 'show', dead[0] ?? '']);
    expect(shown.stdout).toContain(`topic          ${queue.topic}`);
    expect(shown.stdout).toContain('reject-code');
    expect(
      await cliOn(db, ['messages', 'show', '019a8f2e-7a31-7c55-9a3b-6f1f2a9d0c11']),
    ).toMatchObject({ code: 3 });
    expect(await cliOn(db, ['messages', 'list', '--aggregate', 'order'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('give TYPE/ID') as string,
    });
    expect(await cliOn(db, ['messages', 'list', '--since', 'soon'])).toMatchObject({ code: 2 });
  });
});
