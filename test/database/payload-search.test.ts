// Search by fields of payloads: which values match, together with all other filters, for each kind of client. A search
// reads a bounded number of bytes at a time, and says that there is more until it has read everything.

import { afterAll, describe, expect, it } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { listMessages } from '../../src/listing/message-list.js';
import type { MessagePage } from '../../src/listing/message-list.js';
import type { MessageFilter } from '../../src/listing/message-ranges.js';
import { cliAs, json } from '../support/cli.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import { settle } from '../support/settling.js';

const db = testDatabase();
const opened = new Database(resolveDatabaseOptions({ url: db.url, schema: db.schema }), {
  connections: 2,
  applicationName: 'test',
});
afterAll(() => opened.close());

const config = { server: { searchablePayloadFields: ['orderId', 'customer.email'] } };

/** Enqueues a message with this payload, as text. */
async function enqueueText(queue: Queue, payload: string): Promise<string> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT (${db.quoted}.enqueue($1, $2::text::jsonb)).id`,
    [queue.topic, payload],
  );
  return rows[0]?.id ?? '';
}

/** All pages of a search. */
async function searched(
  filter: MessageFilter,
  { limit = 50, budgetMs }: { limit?: number; budgetMs?: number } = {},
): Promise<{ ids: string[]; pages: MessagePage[] }> {
  const pages: MessagePage[] = [];
  for (let next: string | null | undefined; next !== null;) {
    const page = await listMessages(opened, filter, {
      limit,
      ...(budgetMs !== undefined && { budgetMs }),
      ...(next !== undefined && { next }),
    });
    pages.push(page);
    next = page.next;
  }
  return { ids: pages.flatMap(({ messages }) => messages.map((each) => each.messageId)), pages };
}

const idsOf = ({ body }: { body: Record<string, unknown> }): string[] =>
  (body['messages'] as { messageId: string }[]).map(({ messageId }) => messageId);

describe('W5 a value of a payload matches', () => {
  it.each([
    ['a text', '{"f": "4711"}', 'f', '4711', '471'],
    ['a number', '{"f": 4711}', 'f', '4711', '47110'],
    ['a number with a fraction', '{"f": 1.50}', 'f', '1.5', '1.51'],
    [
      'an integer of 20 digits, exactly',
      '{"f": 12345678901234567891}',
      'f',
      '12345678901234567891',
      '12345678901234567890',
    ],
    ['a negative number', '{"f": -5}', 'f', '-5', '5'],
    ['true', '{"f": true}', 'f', 'true', 'false'],
    ['null', '{"f": null}', 'f', 'null', 'nul'],
    ['a text with leading zeros', '{"f": "007"}', 'f', '007', '7'],
    ['a text with quotes', String.raw`{"f": "a\"b\\c"}`, 'f', String.raw`a"b\c`, 'a'],
    ['a text of other letters', '{"f": "größe 😀"}', 'f', 'größe 😀', 'größe'],
    ['a field in an object', '{"a": {"b": {"c": "x"}}}', 'a.b.c', 'x', 'y'],
    ['an element of a list', '{"f": [{"x": 1}, [4711], "a", 4712]}', 'f', '4712', '4711'],
    ['a field of objects in a list', '{"a": [{"b": 1}, {"b": 2}]}', 'a.b', '2', '3'],
    ['a name with letters that need quotes', '{"$größe-1": 1}', '$größe-1', '1', '2'],
  ])('that is %s', async (_what, payload, field, value, other) => {
    const queue = await makeQueue(db);
    const id = await enqueueText(queue, payload);
    await enqueueText(queue, '{}');
    const at = { topic: queue.topic };
    expect((await searched({ ...at, payload: { [field]: value } })).ids).toEqual([id]);
    expect((await searched({ ...at, payload: { [field]: other } })).ids).toEqual([]);
  });

  it('only if all of several fields match', async () => {
    const queue = await makeQueue(db);
    const [both = ''] = await queue.enqueueAll([
      { payload: { a: 1, b: 2 } },
      { payload: { a: 1, b: 3 } },
      { payload: { a: 2, b: 2 } },
    ]);
    const filter = { topic: queue.topic, payload: { a: '1', b: '2' } };
    expect((await searched(filter)).ids).toEqual([both]);
  });

  it('beside payloads of every other form', async () => {
    const queue = await makeQueue(db);
    const others = [
      '"text"',
      '4711',
      'null',
      '[]',
      '{}',
      '{"orderId": {"x": 4711}}',
      '{"orderId": [[[4711]]]}',
      '{"orderId": 1e131071}',
      `${'['.repeat(199)}${']'.repeat(199)}`,
      `{"orderId": ${'{"orderId":'.repeat(150)}1${'}'.repeat(150)}}`,
      `{"orderId": "${'x'.repeat(500_000)}"}`,
      String.raw`{"orderId": "\u0001 4711"}`,
      JSON.stringify({ ciphertext: Buffer.alloc(300, 7).toString('base64') }),
    ];
    for (const payload of others) await enqueueText(queue, payload);
    const id = await enqueueText(queue, '{"orderId": 4711}');
    const filter = { topic: queue.topic, payload: { orderId: '4711' } };
    expect((await searched(filter)).ids).toEqual([id]);
  });
});

describe('W5 a search by payload combines with', () => {
  it('status, destination, tenant, key and time', async () => {
    const queue = await makeQueue(db);
    const payload = { orderId: 4711 };
    const [own = '', other = '', late = ''] = await queue.enqueueAll([
      { payload, tenantId: 'acme', key: 'k' },
      { payload, tenantId: 'globex' },
      { payload: { orderId: 4712 }, tenantId: 'acme' },
    ]);
    const find = async (filter: MessageFilter) =>
      (
        await searched({ destination: queue.name, payload: { orderId: '4711' }, ...filter })
      ).ids.toSorted();
    const both = [own, other].toSorted();
    expect(await find({})).toEqual(both);
    expect(await find({ tenantId: 'acme' })).toEqual([own]);
    expect(await find({ key: 'k' })).toEqual([own]);
    expect(await find({ status: 'pending' })).toEqual(both);
    expect(await find({ status: 'pending', tenantId: 'globex' })).toEqual([other]);
    expect(await find({ id: other })).toEqual([other]);
    expect(await find({ id: late })).toEqual([]);
    expect(await find({ to: new Date(0) })).toEqual([]);
    expect(await find({ from: new Date(0) })).toEqual(both);
    expect(await find({ status: 'delivered' })).toEqual([]);
    const claim = await queue.claim();
    expect(await find({ status: 'processing' })).toEqual(both);
    await settle(
      db,
      claim,
      [own, other].map((id) => ({ id, outcome: id === own ? 'delivered' : 'retry' }) as const),
    );
    expect(await find({ status: 'delivered' })).toEqual([own]);
    expect(await find({ status: 'retrying' })).toEqual([other]);
  });

  it('dead letters, also when retention has removed their messages', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne({ payload: { orderId: 4711 } });
    await queue.kill(id);
    const gone = await queue.enqueueOne({ payload: { orderId: 4711 } });
    await queue.kill(gone);
    await db.query(`DELETE FROM ${db.quoted}.messages WHERE id = $1`, [gone]);
    const of = async (orderId: string) =>
      (await searched({ status: 'dead', destination: queue.name, payload: { orderId } })).ids;
    expect(await of('4711')).toEqual([gone, id]);
    expect(await of('4712')).toEqual([]);
  });
});

describe('W5 a long search by payload', () => {
  it('finds every message over many requests, and has a next until the end', async () => {
    const queue = await makeQueue(db);
    const wanted = (n: number) => n % 1000 === 7;
    const ids = await queue.enqueueAll(
      Array.from({ length: 5000 }, (_, n) => ({ payload: { orderId: wanted(n) ? 'wanted' : n } })),
    );
    const filter = { topic: queue.topic, payload: { orderId: 'wanted' } };
    // no time: each request ends after its first step
    const { ids: found, pages } = await searched(filter, { budgetMs: 0 });
    expect(found).toEqual(ids.filter((_, n) => wanted(n)).toReversed());
    expect(pages.length).toBeGreaterThan(10);
    expect(pages.at(-1)?.searchedInAll).toBe(5000);
    // a full page does not skip what is behind it
    expect((await searched(filter, { limit: 2 })).ids).toEqual(found);
  });

  it('ends after some megabytes of payload if its time is up', async () => {
    const queue = await makeQueue(db);
    // texts that cannot be compressed, so that their size in the database is their size
    const fill = await db.query<{ fill: string }>(
      `SELECT string_agg(md5(n::text), '') AS fill FROM generate_series(1, 30000) n`,
    );
    const payload = { fill: fill.rows[0]?.fill };
    const first = await queue.enqueueOne({ payload: { orderId: 4711 } });
    for (let n = 0; n < 12; n += 1) await queue.enqueueOne({ payload });
    const filter = { topic: queue.topic, payload: { orderId: '4711' } };
    const { ids, pages } = await searched(filter, { budgetMs: 0 });
    expect(ids).toEqual([first]);
    expect(pages.length).toBeGreaterThanOrEqual(3);
    expect(pages[0]?.searched).toBeLessThanOrEqual(5);
  });
});

describe('W5 the HTTP API', () => {
  it('searches the declared fields, for every token that may read payloads', async () => {
    const queue = await makeQueue(db);
    const [own = '', other = ''] = await queue.enqueueAll([
      { payload: { orderId: 4711, customer: { email: 'ada@example.com' } }, tenantId: 'acme' },
      { payload: { orderId: '4711' }, tenantId: 'globex' },
    ]);
    const server = await serveDatabase(db, { config });
    const read = await server.as('read');
    const path = `/api/messages?topic=${queue.topic}&payload.orderId=4711`;
    const found = await read('GET', path);
    expect(idsOf(found)).toEqual([other, own]);
    expect(found.body).toMatchObject({ next: null });
    expect(idsOf(await read('GET', `${path}&payload.customer.email=ada%40example.com`))).toEqual([
      own,
    ]);
    const { body } = await read('GET', '/api/suggestions?text=x');
    expect(body['payloadFields']).toEqual(['orderId', 'customer.email']);
  });

  it('never finds messages of another tenant', async () => {
    const queue = await makeQueue(db);
    const [own = ''] = await queue.enqueueAll([
      { payload: { orderId: 815 }, tenantId: 'acme' },
      { payload: { orderId: 815 }, tenantId: 'globex' },
      { payload: { orderId: 816 }, tenantId: 'globex' },
    ]);
    const ask = await (await serveDatabase(db, { config })).as('read', 'acme');
    const of = async (query: string) => idsOf(await ask('GET', `/api/messages?${query}`));
    expect(await of('payload.orderId=815')).toEqual([own]);
    expect(await of('payload.orderId=816')).toEqual([]);
    const foreign = await ask('GET', '/api/messages?payload.orderId=815&tenantId=globex');
    expect(foreign.status).toBe(403);
  });

  it('refuses other fields and wrong values with the remedy', async () => {
    const ask = await (await serveDatabase(db, { config })).as('read');
    const none = await (await serveDatabase(db)).as('read');
    const refused = async (asking: typeof ask, query: string) => {
      const { status, body } = await asking('GET', `/api/messages?${query}`);
      return [status, body['error']];
    };
    expect(await refused(ask, 'payload.card=1')).toEqual([
      400,
      'payload.card is not a parameter here: use payload.orderId, payload.customer.email, or add the field to server.searchablePayloadFields of the configuration',
    ]);
    expect(await refused(none, 'payload.orderId=1')).toEqual([
      400,
      'payload.orderId is not a parameter here: add the field to server.searchablePayloadFields of the configuration',
    ]);
    expect(await refused(ask, 'payload.orderId=')).toEqual([
      400,
      'payload.orderId is "": give text of 1 to 1024 characters',
    ]);
    expect((await refused(ask, 'payload.orderId=%00'))[0]).toBe(400);
    for (const orderId of ['1e999999', '9'.repeat(1024), '"', '$', '\ufffd', '?(@ == 1)']) {
      const path = `/api/messages?payload.orderId=${encodeURIComponent(orderId)}`;
      expect((await ask('GET', path)).status, orderId).toBe(200);
    }
  });

  it('retries only the deliveries that match', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueueAll([{ payload: { orderId: 1 } }, { payload: { orderId: 2 } }]);
    const claim = await queue.claim();
    await settle(
      db,
      claim,
      ids.map((id) => ({ id, outcome: 'retry', retryAfterMs: 3_600_000 }) as const),
    );
    const ask = await (await serveDatabase(db, { config })).as('operate');
    const filter = { destination: queue.name, 'payload.orderId': '2' };
    expect((await ask('POST', '/api/retrying/retry', filter)).body).toEqual({ madeDue: 1 });
    const other = { destination: queue.name, 'payload.card': '2' };
    expect((await ask('POST', '/api/retrying/retry', other)).status).toBe(400);
    const { rows } = await db.query<{ message_id: string }>(
      `SELECT message_id FROM ${db.quoted}.deliveries WHERE destination_id = $1 AND available_at <= now()`,
      [queue.id],
    );
    expect(rows).toEqual([{ message_id: ids[1] }]);
  });

  it('describes the parameters of the declared fields', async () => {
    const ask = (await serveDatabase(db, { config })).with({});
    const { body } = await ask('GET', '/api/openapi.json');
    const paths = body['paths'] as Record<string, { get: { parameters: { name: string }[] } }>;
    const names = paths['/api/messages']?.get.parameters.map(({ name }) => name);
    expect(names).toContain('payload.customer.email');
  });
});

describe('W5 waybill messages list --payload', () => {
  it('finds messages by any field, with a login that reads', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await queue.enqueueAll([
      { payload: { orderId: 4711, items: [{ sku: 'a' }] } },
      { payload: { orderId: 4711, items: [{ sku: 'b' }] } },
    ]);
    const list = ['messages', 'list', '--topic', queue.topic];
    const flags = ['--payload', 'orderId=4711', '--payload', 'items.sku=a', '--json'];
    const found = json(await cliAs('test_control')(db, [...list, ...flags]));
    expect(found).toMatchObject({ messages: [{ messageId: id }], next: null });
    const wrong = await cliAs('test_control')(db, [...list, '--payload', 'orderId']);
    expect(wrong.code).not.toBe(0);
    expect(wrong.stderr).toContain('give FIELD=VALUE, for example orderId=4711');
  });
});
