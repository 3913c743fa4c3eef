// Search by the beginning of topics, by dedupe key and by the time of a failed try; and the suggestions of the search box.

import { randomUUID } from 'node:crypto';

import pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { listMessages } from '../../src/listing/message-list.js';
import type { MessageFilter } from '../../src/listing/message-ranges.js';
import { addRoute } from '../support/destinations.js';
import { makeDead, makeRetrying } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { databaseUrl, testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import { settleDelivered } from '../support/settling.js';

const db = testDatabase();
/** Between them, in the order of most collations, are topics with other beginnings. */
const fitting = ['shop.order.a', 'shop.order.b', 'shop.order.b.c', 'shop.order.z'];
const others = [
  'Shop.order.b',
  'shop.order',
  'shop.orders.a',
  'shop-order.b',
  'shoporder.b',
  'zoo',
];
let queue: Queue;

beforeAll(async () => {
  queue = await makeQueue(db);
  await db.query(`INSERT INTO ${db.quoted}.routes (destination_id, topic) VALUES ($1, '*')`, [
    queue.id,
  ]);
  for (const topic of [...fitting, ...others]) await queue.enqueue(3, { topic, tenantId: 'acme' });
});

function sorted(...ids: (string | undefined)[]): string[] {
  return ids.map(String).toSorted();
}

/** The range that a search goes on with. */
function rangeOf(next: string | null): unknown {
  const place = JSON.parse(Buffer.from(next ?? '', 'base64url').toString()) as unknown[];
  return place[0];
}

/** All pages of a search; asks for the next page until there is none. */
async function search(filter: MessageFilter, limit = 50) {
  const found = [];
  let requests = 0;
  for (let next: string | null | undefined; next !== null; requests += 1) {
    const page = await listMessages(openDatabase(db, 'test_auditor'), filter, {
      limit,
      budgetMs: 100,
      ...(next !== undefined && { next }),
    });
    found.push(...page.messages);
    next = page.next;
  }
  return { found, requests };
}

describe('W5 a search by the beginning of topics', () => {
  it.each<[string, MessageFilter]>([
    ['of all messages', {}],
    ['of pending ones', { status: 'pending' }],
    ['of a tenant', { tenantId: 'acme' }],
    ['at a destination', { destination: 'x' }],
    ['of a time', { from: new Date(Date.now() - 600_000), to: new Date(Date.now() + 600_000) }],
  ])('finds every topic with it and no other, %s', async (_name, more) => {
    const filter = { ...more, ...(more.destination && { destination: queue.name }) };
    const { found } = await search({ ...filter, topic: 'shop.order.*' });
    expect(found.map(({ topic }) => topic ?? '').toSorted()).toEqual(
      fitting.flatMap((topic) => [topic, topic, topic]),
    );
  });

  it('has the newest first, each once, over pages', async () => {
    const { found } = await search({ topic: 'shop.order.*' }, 5);
    const ids = found.map(({ messageId }) => messageId);
    expect(ids).toHaveLength(12);
    expect(ids).toEqual([...new Set(ids)].toSorted().toReversed());
  });

  it('finds rare topics behind many others in one request', async () => {
    await db.query(
      `SELECT count(*) FROM ${db.quoted}.enqueue_many((
         SELECT jsonb_agg(jsonb_build_object('topic', 'much.' || n % 3, 'payload', n)) FROM generate_series(1, 6000) n))`,
    );
    for (const more of [{}, { status: 'pending' as const }]) {
      const page = await listMessages(
        openDatabase(db),
        { ...more, topic: 'shop.order.*' },
        { limit: 50 },
      );
      expect(page.messages).toHaveLength(12);
      expect(page.searched).toBeLessThanOrEqual(100);
      expect(page.next).toBeNull();
    }
  });

  it('reads all messages if very many topics begin so, and finds all', async () => {
    await db.query(
      `SELECT count(*) FROM ${db.quoted}.enqueue_many((
         SELECT jsonb_agg(jsonb_build_object('topic', 'many.t' || n % 150, 'payload', n)) FROM generate_series(1, 6000) n))`,
    );
    const first = await listMessages(openDatabase(db), { topic: 'many.*' }, { limit: 50 });
    expect(first.messages).toHaveLength(50);
    expect(rangeOf(first.next)).toBe('all');
    const few = await listMessages(openDatabase(db), { topic: 'much.*' }, { limit: 50 });
    expect(rangeOf(few.next)).toBe('topics');
  });

  it('reads all messages if rare messages have very many topics, and finds all', async () => {
    await db.query(
      `SELECT count(*) FROM ${db.quoted}.enqueue_many((
         SELECT jsonb_agg(jsonb_build_object('topic', 'wide.t' || n, 'payload', n)) FROM generate_series(1, 400) n))`,
    );
    const first = await listMessages(openDatabase(db), { topic: 'wide.*' }, { limit: 50 });
    expect(rangeOf(first.next)).toBe('all');
    const { found } = await search({ topic: 'wide.*' });
    expect(new Set(found.map(({ topic }) => topic)).size).toBe(400);
    // a part of them
    const few = await listMessages(openDatabase(db), { topic: 'wide.t1.*' }, { limit: 50 });
    expect(few).toMatchObject({ messages: [], next: null });
    const walk = async (visited: number) => {
      const { rows } = await db.query<{ topic: string | null }>(
        `SELECT t AS topic FROM ${db.quoted}.topics_with('wide.', NULL, NULL, $1) t`,
        [visited],
      );
      return rows.map(({ topic }) => topic);
    };
    expect(await walk(400)).toHaveLength(400);
    expect(await walk(400)).not.toContain(null);
    expect(await walk(399)).toHaveLength(400);
    expect((await walk(399)).at(-1)).toBeNull();
  });

  it('does not start from a walk over topics that was ended', async () => {
    const estimate = async (topics: (string | null)[]) => {
      const { rows } = await db.query<{ rows: string }>(
        `SELECT ${db.quoted}.search_estimate('topics', $1) AS rows`,
        [JSON.stringify({ topic: 'wide.*', topics })],
      );
      return Number(rows[0]?.rows);
    };
    expect(await estimate(['wide.t1', null])).toBeGreaterThan(9e17);
    expect(await estimate(['wide.t1'])).toBeLessThan(1e9);
  });

  it('reads all dead letters if they have very many topics, and finds all', async () => {
    await db.query(
      `INSERT INTO ${db.quoted}.dead_letters
         (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, namespace, topic)
       SELECT ${db.quoted}.new_id(), $1, now() - n * interval '1 second', 1, 1, 'rejected', 'wide', 'default', 'tomb.t' || n
         FROM generate_series(1, 400) n`,
      [queue.id],
    );
    for (const more of [{}, { destination: queue.name }]) {
      const filter = { ...more, status: 'dead' as const, topic: 'tomb.*' };
      const first = await listMessages(openDatabase(db), filter, { limit: 50 });
      expect(rangeOf(first.next)).not.toBe('dead of topics');
      const { found } = await search(filter);
      expect(new Set(found.map(({ topic }) => topic)).size).toBe(400);
    }
  });

  it('finds dead letters', async () => {
    for (const topic of ['grave.a', 'grave.b', 'graves.a', 'Grave.a']) {
      await db.query(
        `INSERT INTO ${db.quoted}.dead_letters
           (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, namespace, topic)
         SELECT ${db.quoted}.new_id(), $1, now(), 1, 1, 'rejected', 'code', 'default', $2`,
        [queue.id, topic],
      );
    }
    const { found } = await search({ status: 'dead', topic: 'grave.*' }, 1);
    expect(found.map(({ topic }) => topic ?? '').toSorted()).toEqual(['grave.a', 'grave.b']);
  });

  it.each(['order*', '*.order', 'a.*.b', '.*', 'a.*.*'])(
    'refuses %s with a remedy',
    async (topic) => {
      await expect(search({ topic })).rejects.toThrow(
        `topic is "${topic}": give a whole topic, or the beginning of topics as in order.*`,
      );
    },
  );

  it('takes * as every topic', async () => {
    const { found } = await search({ topic: '*', tenantId: 'acme' });
    expect(found).toHaveLength(3 * (fitting.length + others.length));
  });
});

it('W5 the beginning of topics is found with a collation that compares case and punctuation last', async () => {
  const name = `topics_${randomUUID().replaceAll('-', '')}`;
  await db.query(
    `CREATE DATABASE ${name} TEMPLATE template0 LOCALE 'C' LOCALE_PROVIDER icu ICU_LOCALE 'en-US-u-ka-shifted'`,
  );
  const url = databaseUrl(db.url, name);
  await migrateUp({ url, schema: db.schema });
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    for (const topic of [...fitting, ...others])
      await client.query(`SELECT ${db.quoted}.enqueue($1)`, [topic]);
    const { rows } = await client.query<{ topic: string }>(
      `SELECT topic FROM ${db.quoted}.messages ORDER BY topic`,
    );
    const order = rows.map(({ topic }) => topic);
    const places = fitting.map((topic) => order.indexOf(topic));
    // other topics are between them
    expect(Math.max(...places) - Math.min(...places)).toBeGreaterThan(fitting.length - 1);
    const { rows: found } = await client.query<{ topic: string }>(
      `SELECT t AS topic FROM ${db.quoted}.topics_with('shop.order.', NULL, NULL, NULL) t`,
    );
    expect(new Set(found.map(({ topic }) => topic))).toEqual(new Set(fitting));
  } finally {
    await client.end();
    await db.query(`DROP DATABASE ${name} WITH (FORCE)`);
  }
});

describe('W5 a search by dedupe key', () => {
  it('finds it in every namespace, tenant and topic, or in one of them', async () => {
    const key = 'welcome:1';
    const ids = [];
    for (const fields of [
      { namespace: 'one', topic: 'd.a' },
      { namespace: 'one', topic: 'd.b', tenantId: 't1' },
      { namespace: 'two', topic: 'd.a', tenantId: 't1' },
      { namespace: 'two', topic: 'd.a', tenantId: 't2' },
    ])
      ids.push(
        await queue.enqueueOne({
          ...fields,
          dedupeKey: fields.tenantId === undefined ? key : `${fields.tenantId}/${key}`,
        }),
      );
    // groups without the key
    for (let n = 0; n < 5; n += 1)
      await queue.enqueue(1, { topic: `d.x${n}`, tenantId: `t${n}`, dedupeKey: `t${n}/other` });
    const of = async (filter: MessageFilter, limit = 50) =>
      (await search(filter, limit)).found.map(({ messageId }) => messageId).toSorted();
    expect(await of({ dedupeKey: key })).toEqual([ids[0]]);
    expect(await of({ dedupeKey: `t1/${key}` })).toEqual(sorted(ids[1], ids[2]));
    expect(await of({ dedupeKey: `t1/${key}` }, 1)).toEqual(sorted(ids[1], ids[2]));
    expect(await of({ dedupeKey: `t1/${key}`, tenantId: 't1' })).toEqual(sorted(ids[1], ids[2]));
    expect(await of({ dedupeKey: `t1/${key}`, tenantId: 't2' })).toEqual([]);
    expect(await of({ dedupeKey: `t1/${key}`, namespace: 'two' })).toEqual([ids[2]]);
    expect(await of({ dedupeKey: `t1/${key}`, topic: 'd.b' })).toEqual([ids[1]]);
    expect(await of({ dedupeKey: `t1/${key}`, status: 'dead' })).toEqual([]);
    expect(await of({ dedupeKey: 'none' })).toEqual([]);
  });
});

describe('W5 a search by the time of a failed try', () => {
  it('finds messages that failed in it, and dead letters that died in it', async () => {
    const failing = await makeQueue(db);
    const [retried, dead] = [await makeRetrying(failing, 2), await makeDead(failing, 2, 'gone')];
    await failing.enqueue(2);
    const failLater = async (ids: (string | undefined)[], minutes: number) => {
      await db.query(
        `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at, error_code)
         SELECT a.message_id, a.destination_id, 9, 9, a.state, a.ended_at + $2 * interval '1 minute', a.error_code
           FROM ${db.quoted}.attempts a WHERE a.message_id = ANY ($1)`,
        [ids, minutes],
      );
      await db.query(
        `UPDATE ${db.quoted}.dead_letters SET dead_at = dead_at + $2 * interval '1 minute' WHERE message_id = ANY ($1)`,
        [ids, minutes],
      );
    };
    const now = Date.now();
    const within = (from: number, to: number) => ({
      destination: failing.name,
      failedFrom: new Date(now + from * 60_000),
      failedTo: new Date(now + to * 60_000),
    });
    const of = async (filter: MessageFilter) =>
      (await search(filter)).found.map(({ messageId }) => messageId).toSorted();
    expect(await of(within(-10, 10))).toEqual([...retried, ...dead].toSorted());
    expect(await of(within(20, 40))).toEqual([]);
    await failLater([retried[0], dead[0]], 30);
    expect(await of(within(-10, 10))).toEqual([...retried, ...dead].toSorted());
    expect(await of(within(20, 40))).toEqual(sorted(retried[0], dead[0]));
    expect(await of({ ...within(20, 40), errorCode: 'busy' })).toEqual([retried[0]]);
    expect(await of({ ...within(20, 40), topic: failing.topic })).toEqual(
      sorted(retried[0], dead[0]),
    );
    expect(await of({ ...within(20, 40), status: 'dead' })).toEqual([dead[0]]);
    expect(await of({ ...within(-10, 10), status: 'dead' })).toEqual([dead[1]]);
    const { destination: _, ...anywhere } = within(20, 40);
    expect(await of({ ...anywhere, status: 'dead' })).toEqual([dead[0]]);
    const { destination: _here, ...before } = within(-10, 10);
    const earlier = await of({ ...before, status: 'dead' });
    expect(earlier).toContain(dead[1]);
    expect(earlier).not.toContain(dead[0]);
    expect(await of({ ...within(50, 60), status: 'dead' })).toEqual([]);
  });
});

describe('W5 deliveries that did not fail in the time', () => {
  it('are left out, although their message failed in it at another destination', async () => {
    const [failing, other] = [await makeQueue(db), await makeQueue(db)];
    await addRoute(db, other.id, failing.topic);
    const [id = ''] = await makeRetrying(failing, 1);
    await settleDelivered(db, await other.claim());
    const [from, to] = [new Date(Date.now() - 600_000), new Date(Date.now() + 600_000)];
    const places = async (filter: MessageFilter) =>
      (await search({ topic: failing.topic, ...filter })).found.map((message) => [
        message.messageId,
        message.destination,
      ]);
    expect(await places({})).toContainEqual([id, other.name]);
    expect(await places({ failedFrom: from, failedTo: to })).toEqual([[id, failing.name]]);
    expect(await places({ failedFrom: from })).toEqual([[id, failing.name]]);
    expect(await places({ failedTo: to, destination: other.name })).toEqual([]);
  });

  it('are left out, although an operator discarded them in it', async () => {
    const failing = await makeQueue(db);
    const [id = ''] = await makeDead(failing, 1, 'no');
    const { rows } = await db.query<{ now: Date }>('SELECT clock_timestamp() AS now');
    // a date has milliseconds
    const died = new Date(Number(rows[0]?.now) + 1);
    await db.query('SELECT pg_sleep_until($1)', [died]);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters(ids => $1)`, [[id]]);
    const idsOf = async (filter: MessageFilter) =>
      (await search({ topic: failing.topic, ...filter })).found.map(({ messageId }) => messageId);
    expect(await idsOf({ failedTo: died })).toEqual([id]);
    expect(await idsOf({ failedFrom: died })).toEqual([]);
  });
});

describe('W5 suggestions', () => {
  const nothing = { topics: [], destinations: [], tenants: [], payloadFields: [] };

  it('are topics, destinations and tenants that begin with the text', async () => {
    const ask = await (await serveDatabase(db)).as('read');
    const { body } = await ask('GET', '/api/suggestions?text=shop.order.');
    expect(body).toEqual({ ...nothing, topics: fitting });
    const named = await ask('GET', `/api/suggestions?text=${queue.name.slice(0, -1)}`);
    expect(named.body['destinations']).toContain(queue.name);
    const missing = await ask('GET', '/api/suggestions');
    expect([missing.status, missing.body['error']]).toEqual([
      400,
      'text is missing: the beginning of a topic, destination or tenant',
    ]);
  });

  it('of tenants are found between others of the same letters, each once, and at most eight', async () => {
    const tenants = ['shop-1', 'shop-1.eu', 'shop-2'];
    for (const tenantId of [...tenants, 'Shop-1', 'shop1', 'shop'])
      await queue.enqueue(2, { tenantId });
    const ask = await (await serveDatabase(db)).as('read');
    const { body } = await ask('GET', '/api/suggestions?text=shop-');
    expect(body['tenants']).toEqual(tenants);
    for (let i = 0; i < 10; i += 1) await queue.enqueue(1, { tenantId: `many-${i}` });
    const many = await ask('GET', '/api/suggestions?text=many');
    expect(many.body['tenants']).toHaveLength(8);
  });

  it('of a token for one tenant are topics of that tenant only, and no other tenant', async () => {
    await queue.enqueue(1, { topic: 'shop.order.secret', tenantId: 'globex' });
    await queue.enqueue(1, { tenantId: 'globex-2' });
    const server = await serveDatabase(db);
    const of = async (tenantId: string, text = 'shop.order.') =>
      (await (await server.as('read', tenantId))('GET', `/api/suggestions?text=${text}`)).body;
    expect(await of('globex')).toEqual({ ...nothing, topics: ['shop.order.secret'] });
    expect(await of('acme')).toEqual({ ...nothing, topics: fitting });
    expect(await of('globex', 'glo')).toEqual({ ...nothing, tenants: ['globex'] });
    expect(await of('acme', 'glo')).toEqual(nothing);
    expect(await of('acme', queue.name)).toEqual(nothing);
  });
});
