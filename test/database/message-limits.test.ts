// Size limits of messages: those of the producer, and those of the schema, which only its owner sets. Both measure the
// text that a relay will read, not the stored size.

import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';

import { createOutbox, MessageRefusedError } from '../../src/index.js';
import { measured } from '../../src/core/json-text.js';
import { defaultLimits, largestLimits, serializeMessage } from '../../src/core/message.js';
import { as } from '../support/logins.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
let queue: Queue;

beforeAll(async () => {
  queue = await makeQueue(db);
});

const mebibyte = 1024 * 1024;

/** Runs within a transaction that is rolled back. */
async function withLimits(
  limits: { payloadBytes?: number; headerBytes?: number },
  work: (query: (sql: string, values?: unknown[]) => Promise<unknown>) => Promise<void>,
): Promise<void> {
  const client = await db.connect();
  await client.query('BEGIN');
  const { payloadBytes = mebibyte, headerBytes = 65_536 } = limits;
  try {
    await client.query(
      `UPDATE ${db.quoted}.message_limits SET payload_bytes = ${payloadBytes}, header_bytes = ${headerBytes}`,
    );
    await work((sql, values) => client.query(sql, values));
  } finally {
    await client.query('ROLLBACK');
  }
}

describe('a producer', () => {
  const numbers = (count: number) => `[${Array.from({ length: count }, () => '1e131071').join()}]`;

  it('M2 cannot enqueue a payload whose numbers are short and whose text is long, whatever it passes', async () => {
    await as(db, 'test_producer', async (client) => {
      await client.query('SET waybill.max_payload_bytes = 900000000');
      for (const checked of ['', ', true', ', false'])
        await expect(
          client.query(
            `SELECT ${db.quoted}.enqueue_many('[{"topic": "${queue.topic}", "payload": ${numbers(40)}}]'${checked})`,
          ),
        ).rejects.toMatchObject({
          code: '22023',
          message: expect.stringMatching(
            /^payload has 5242\d{3} bytes, the limit is 1048576: .*owner of the schema raise payload_bytes in .+\.message_limits$/,
          ) as string,
          hint: 'Nothing was enqueued.',
        });
    });
  });

  it('M2 cannot enqueue headers whose text is long', async () => {
    await as(db, 'test_producer', async (client) => {
      for (const value of ['repeat(chr(1), 20000)', "repeat('x', 70000)"])
        await expect(
          client.query(
            `SELECT ${db.quoted}.enqueue('t', '1', headers => jsonb_build_object('a', ${value}))`,
          ),
        ).rejects.toMatchObject({
          code: '22023',
          message: expect.stringMatching(/^headers has \d+ bytes, the limit is 65536: /) as string,
        });
    });
  });

  it('M2 cannot nest a payload deeper than 200 levels by claiming that it was checked', async () => {
    const nested = `${'['.repeat(201)}${']'.repeat(201)}`;
    await expect(
      db.query(`SELECT ${db.quoted}.enqueue_many('[{"topic": "t", "payload": ${nested}}]', true)`),
    ).rejects.toThrow(/nested deeper than 200 levels/);
  });

  it.each(['producer', 'relay', 'operator', 'control', 'server'] as const)(
    'the login test_%s cannot change the limits',
    async (role) => {
      await as(db, `test_${role}`, async (client) => {
        await expect(
          client.query(`UPDATE ${db.quoted}.message_limits SET payload_bytes = 2000000`),
        ).rejects.toMatchObject({ code: '42501' });
      });
    },
  );
});

describe('the owner of the schema', () => {
  const payloadOf = (bytes: number) => `to_jsonb(repeat('x', ${bytes - 2}))`;

  it('M2 sets the limit of a payload: exactly the limit is accepted, one byte more is refused', async () => {
    for (const payloadBytes of [100, 3 * mebibyte])
      await withLimits({ payloadBytes }, async (query) => {
        const sql = `SELECT ${db.quoted}.enqueue('${queue.topic}', ${payloadOf(payloadBytes)})`;
        await query(sql);
        await expect(
          query(sql.replace(payloadOf(payloadBytes), payloadOf(payloadBytes + 1))),
        ).rejects.toThrow(`payload has ${payloadBytes + 1} bytes, the limit is ${payloadBytes}`);
      });
  });

  it('M2 sets the limit of headers, which the payload does not count towards', async () => {
    await withLimits({ payloadBytes: 10, headerBytes: 100 }, async (query) => {
      const sql = (bytes: number) =>
        `SELECT ${db.quoted}.enqueue('${queue.topic}', '[12345678]', headers => jsonb_build_object('a', repeat('x', ${bytes - 9})))`;
      await query(sql(100));
      await expect(query(sql(101))).rejects.toThrow('headers has 101 bytes, the limit is 100');
    });
  });

  it('M2 cannot set a limit that a relay could not read', async () => {
    const { maxPayloadBytes, maxHeaderBytes } = largestLimits;
    await withLimits({ payloadBytes: maxPayloadBytes, headerBytes: maxHeaderBytes }, () =>
      Promise.resolve(),
    );
    await expect(
      withLimits({ payloadBytes: maxPayloadBytes + 1 }, () => Promise.resolve()),
    ).rejects.toMatchObject({ code: '23514' });
    await expect(
      withLimits({ headerBytes: maxHeaderBytes + 1 }, () => Promise.resolve()),
    ).rejects.toMatchObject({ code: '23514' });
    const { rows } = await db.query<{ bytes: number }>(
      `SELECT ${db.quoted}.readable_bytes() AS bytes`,
    );
    expect(only(rows).bytes).toBe(maxPayloadBytes + maxHeaderBytes);
  });

  it('M2 cannot lift the limits by deleting them: every message is then refused', async () => {
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`DELETE FROM ${db.quoted}.message_limits`);
    try {
      await expect(client.query(`SELECT ${db.quoted}.enqueue('t')`)).rejects.toMatchObject({
        code: 'P0002',
      });
    } finally {
      await client.query('ROLLBACK');
    }
  });
});

describe('the TypeScript function', () => {
  const refusal = async (options: object, message: object): Promise<Error> =>
    db.inTransaction(async (client) => {
      const outbox = createOutbox({ schema: db.schema, ...options });
      const error: unknown = await outbox
        .enqueue(client, { topic: queue.topic, ...message })
        .catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(MessageRefusedError);
      // the transaction was not touched
      expect((await client.query('SELECT 1')).rowCount).toBe(1);
      return error as Error;
    });

  it('M2 accepts a payload of exactly its limit, and refuses one byte more', async () => {
    for (const [options, most] of [
      [{ maxPayloadBytes: 100 }, 100],
      [{}, mebibyte],
    ] as const) {
      const payload = 'x'.repeat(most - 2);
      await db.inTransaction(async (client) => {
        const outbox = createOutbox({ schema: db.schema, ...options });
        await outbox.enqueue(client, { topic: queue.topic, payload });
      });
      expect((await refusal(options, { payload: `${payload}x` })).message).toBe(
        `payload has ${most + 1} bytes, the limit is ${most}: store it elsewhere and send its address, or raise maxPayloadBytes of the outbox`,
      );
    }
  });

  it('M2 accepts headers of exactly its limit, and refuses one byte more', async () => {
    const headers = (bytes: number) => ({ a: 'x'.repeat(bytes - 9) });
    await db.inTransaction(async (client) => {
      const outbox = createOutbox({ schema: db.schema });
      await outbox.enqueue(client, { topic: queue.topic, headers: headers(65_536) });
    });
    expect((await refusal({}, { headers: headers(65_537) })).message).toBe(
      'headers has 65537 bytes, the limit is 65536: send less, or raise maxHeaderBytes of the outbox',
    );
  });

  it('M2 cannot exceed the limits of the schema', async () => {
    const outbox = createOutbox({ schema: db.schema, ...largestLimits });
    const payload = 'x'.repeat(mebibyte);
    await expect(
      db.inTransaction((client) => outbox.enqueue(client, { topic: queue.topic, payload })),
    ).rejects.toMatchObject({
      code: '22023',
      message: expect.stringContaining('message_limits') as string,
    });
    await withLimits({ payloadBytes: 2 * mebibyte }, async (query) => {
      await outbox.enqueue({ query }, { topic: queue.topic, payload });
    });
  });

  it('M2 measures every payload and every header as PostgreSQL does', async () => {
    const value = fc.jsonValue({ stringUnit: 'binary' });
    const headers = fc.dictionary(fc.string(), fc.string({ unit: 'binary' }), { maxKeys: 5 });
    await fc.assert(
      fc.asyncProperty(value, headers, async (payload, given) => {
        const text = JSON.stringify(payload);
        fc.pre(!`${text}${JSON.stringify(given)}`.includes('\\u0000'));
        const { rows } = await db.query<{ payload: number; headers: number }>(
          'SELECT octet_length($1::jsonb::text) AS payload, octet_length($2::jsonb::text) AS headers',
          [text, JSON.stringify(given)],
        );
        const { payload: bytes, headers: headerBytes } = only(rows);
        expect(measured('payload', text, 0).bytes).toBe(bytes);
        const message = { topic: 't', headers: given };
        serializeMessage(message, { ...defaultLimits, maxHeaderBytes: headerBytes });
        expect(() =>
          serializeMessage(message, { ...defaultLimits, maxHeaderBytes: headerBytes - 1 }),
        ).toThrow(`headers has ${headerBytes} bytes`);
      }),
      { numRuns: 300 },
    );
  });
});

it('M2 refuses more than a hundred headers, as does SQL', async () => {
  const headers = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, index) => [`h${index}`, '']));
  const outbox = createOutbox({ schema: db.schema });
  await db.inTransaction(async (client) => {
    await outbox.enqueue(client, { topic: queue.topic, headers: headers(100) });
    const refused = outbox.enqueue(client, { topic: queue.topic, headers: headers(101) });
    await expect(refused).rejects.toThrow(MessageRefusedError);
    await expect(refused).rejects.toThrow(
      'headers has more than 100 entries: put them into the payload',
    );
  });
  await expect(
    db.query(`SELECT ${db.quoted}.enqueue('t', headers => $1)`, [headers(101)]),
  ).rejects.toThrow('headers has more than 100 entries: put them into the payload');
});
