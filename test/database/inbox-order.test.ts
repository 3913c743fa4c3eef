// The inbox checks the order of keyed messages, per consumer and key. A gap or a step back is part of the result, or
// refused if the consumer asks for that. A duplicate is a duplicate, however old.

import { randomUUID } from 'node:crypto';

import type pg from 'pg';
import { describe, expect, it } from 'vitest';

import { createInbox, SequenceGapError } from '../../src/index.js';
import type { ReceivedMessage, Reception } from '../../src/index.js';
import { backendId, waitUntilBlocked } from '../support/locks.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
const inbox = createInbox({ schema: db.schema });

type Stream = { consumer: string; key: string; namespace?: string; tenantId?: string };
type Step = [sequence: number | bigint | string, previousSequence?: number | null];

const newStream = (): Stream => ({ consumer: 'ledger', key: `account-${randomUUID()}` });

function message({ consumer: _consumer, ...stream }: Stream, [sequence, previousSequence]: Step) {
  return { id: randomUUID(), ...stream, sequence, previousSequence };
}

/** Processes messages of a key one by one, each in its own transaction. */
async function receive(stream: Stream, ...steps: Step[]): Promise<Reception[]> {
  const receptions: Reception[] = [];
  for (const step of steps) receptions.push(await receiveOne(stream, message(stream, step)));
  return receptions;
}

async function receiveOne(
  { consumer }: Stream,
  received: ReceivedMessage,
  onGap?: 'report' | 'throw',
): Promise<Reception> {
  const what = { consumer, message: received, ...(onGap && { onGap }) };
  return db.inTransaction((client) => inbox.process(client, what, () => undefined));
}

async function receiveBatch(stream: Stream, messages: ReceivedMessage[], onGap?: 'throw') {
  const options = { consumer: stream.consumer, ...(onGap && { onGap }) };
  return db.inTransaction((client) =>
    inbox.processMany(client, options, messages, (fresh) => fresh.length),
  );
}

/** What the inbox reports about the order: null if it was kept. */
const gaps = (receptions: Reception[]) =>
  receptions.map((reception) => {
    if (!reception.processed) return 'duplicate';
    if (reception.gap === null) return null;
    const { kind, expectedSequence, lastSequence } = reception.gap;
    return `${kind}: ${lastSequence} instead of ${expectedSequence}`;
  });

describe('the order of a key', () => {
  it('M11 consecutive messages are in order', async () => {
    expect(gaps(await receive(newStream(), [1, 0], [2, 1], ['3', 2], [4n, 3]))).toEqual([
      null,
      null,
      null,
      null,
    ]);
  });

  it('M11 a missing message is reported once, by the one after it', async () => {
    const answers = await receive(newStream(), [1, 0], [3, 2], [4, 3]);
    expect(gaps(answers)).toEqual([null, 'missing: 1 instead of 2', null]);
  });

  it('M11 a missing message is also reported when it is the first of the key', async () => {
    expect(gaps(await receive(newStream(), [2, 1], [3, 2]))).toEqual([
      'missing: 0 instead of 1',
      null,
    ]);
  });

  it('M11 a message for another destination is no gap: the previous sequence of this destination counts', async () => {
    const answers = await receive(newStream(), [5, 0], [9, 5], [12, 9], [20, 15]);
    expect(gaps(answers)).toEqual([null, null, null, 'missing: 12 instead of 15']);
  });

  it('M11 without a previous sequence, each sequence is expected', async () => {
    const answers = await receive(newStream(), [1], [2, null], [4], [5, 0], [7, 0]);
    expect(gaps(answers)).toEqual([
      null,
      null,
      'missing: 2 instead of 3',
      null,
      'missing: 5 instead of 6',
    ]);
    expect(gaps(await receive(newStream(), [3]))).toEqual(['missing: 0 instead of 2']);
  });

  it('M11 a step back is reported and processed, and the position stays', async () => {
    const answers = await receive(newStream(), [1, 0], [3, 2], [2, 1], [4, 3]);
    expect(gaps(answers)).toEqual([
      null,
      'missing: 1 instead of 2',
      'step_back: 3 instead of 1',
      null,
    ]);
  });

  it('M11 a replayed message is a duplicate and no step back', async () => {
    const stream = newStream();
    const first = message(stream, [1, 0]);
    await receiveOne(stream, first);
    await receive(stream, [2, 1], [3, 2]);
    expect(gaps([await receiveOne(stream, first, 'throw')])).toEqual(['duplicate']);
  });

  it('M11 a sequence beyond the precision of a double is kept exactly', async () => {
    const stream = newStream();
    const [, last] = await receive(stream, ['9223372036854775806', null], [9223372036854775807n]);
    expect(last).toEqual({ processed: true, gap: null });
  });

  it('M11 a rollback forgets the position too', async () => {
    const stream = newStream();
    await receive(stream, [1, 0]);
    const failing = db.inTransaction(async (client) => {
      const what = { consumer: stream.consumer, message: message(stream, [2, 1]) };
      await inbox.process(client, what, () => Promise.reject(new Error('no')));
    });
    await expect(failing).rejects.toThrow('no');
    expect(gaps(await receive(stream, [3, 2], [4, 3]))).toEqual(['missing: 1 instead of 2', null]);
  });

  it('M11 consumers, namespaces, tenants and keys are separate', async () => {
    const stream = newStream();
    await receive(stream, [1, 0], [2, 1]);
    const others = [
      { ...stream, consumer: 'mailing' },
      { ...stream, namespace: 'shop' },
      { ...stream, tenantId: 'acme' },
      { ...stream, key: `${stream.key}0` },
    ];
    for (const other of others)
      expect(gaps(await receive(other, [1, 0], [2, 1]))).toEqual([null, null]);
    expect(gaps(await receive({ ...stream, namespace: 'default' }, [3, 2]))).toEqual([null]);
  });
});

describe('a batch', () => {
  it('M11 compares each message with those before it in the batch', async () => {
    const [a, b] = [newStream(), newStream()];
    await receive(a, [1, 0]);
    const { messages } = await receiveBatch(a, [
      message(a, [2, 1]),
      message(b, [1, 0]),
      message(a, [4, 3]),
      { id: randomUUID() },
      message(a, [3, 2]),
      message(b, [2, 1]),
      message(a, [5, 4]),
    ]);
    expect(gaps(messages)).toEqual([
      null,
      null,
      'missing: 2 instead of 3',
      null,
      'step_back: 4 instead of 2',
      null,
      null,
    ]);
    expect(gaps(await receive(a, [6, 5]))).toEqual([null]);
  });

  it('M11 ignores its duplicates', async () => {
    const stream = newStream();
    const [first, second] = [message(stream, [1, 0]), message(stream, [2, 1])];
    await receiveOne(stream, first);
    await receiveOne(stream, second);
    const { messages } = await receiveBatch(stream, [
      first,
      message(stream, [3, 2]),
      first,
      second,
    ]);
    expect(gaps(messages)).toEqual(['duplicate', null, 'duplicate', 'duplicate']);
  });
});

describe("onGap: 'throw'", () => {
  it('M11 refuses a gap with a clear error; nothing is recorded, and the transaction is usable', async () => {
    const stream = newStream();
    await receive(stream, [1, 0]);
    const late = message(stream, [4, 3]);
    const what = { consumer: 'ledger', message: late, onGap: 'throw' } as const;
    await db.inTransaction(async (client) => {
      const refused = inbox.process(client, what, () => Promise.reject(new Error('it ran')));
      await expect(refused).rejects.toThrow(SequenceGapError);
      await expect(inbox.process(client, what, () => 1)).rejects.toThrow(
        `message ${late.id} has the sequence 4 of key "${stream.key}", after 3, ` +
          'but consumer "ledger" has processed that key up to 1',
      );
      await client.query('SELECT 1');
    });
    // the missing message arrives, and then the refused one is new and in order
    expect(gaps(await receive(stream, [2, 1], [3, 2]))).toEqual([null, null]);
    expect(gaps([await receiveOne(stream, late, 'throw')])).toEqual([null]);
  });

  it('M11 refuses a step back too', async () => {
    const stream = newStream();
    await receive(stream, [1, 0], [3, 1]);
    const older = receiveOne(stream, message(stream, [2, 1]), 'throw');
    await expect(older).rejects.toThrow(/sequence 2 of key .* up to 3\. Nothing was processed/);
    await expect(older).rejects.toMatchObject({ code: 'sequence_gap' });
  });

  it('M11 refuses the whole batch for one of its messages', async () => {
    const [good, bad] = [newStream(), newStream()];
    const batch = [message(good, [1, 0]), message(bad, [3, 2]), { id: randomUUID() }];
    await db.inTransaction(async (client) => {
      const refused = inbox.processMany(client, { consumer: 'ledger', onGap: 'throw' }, batch, () =>
        Promise.reject(new Error('it ran')),
      );
      await expect(refused).rejects.toThrow(SequenceGapError);
    });
    const { messages } = await receiveBatch(good, batch);
    expect(gaps(messages)).toEqual([null, 'missing: 0 instead of 2', null]);
  });

  it('M11 SQL returns a row that is not new and has a gap', async () => {
    const begin = (refuse: string) =>
      db.query(
        `SELECT * FROM ${db.quoted}.inbox_begin('sql', message_id => '00000000-0000-7000-8000-000000000001',
           key => 'k', sequence => 3, previous_sequence => 2, refuse_gaps => ${refuse})`,
      );
    const gap = { gap: 'missing', expected_sequence: '2', last_sequence: '0' };
    expect((await begin('true')).rows).toEqual([
      { is_new: false, first_processed_at: null, ...gap },
    ]);
    expect((await begin('NULL')).rows).toEqual([
      { is_new: true, first_processed_at: null, ...gap },
    ]);
  });
});

describe('concurrent messages', () => {
  /** A client in a transaction that has processed a message of the key and not committed yet. */
  async function holding(stream: Stream, step: Step) {
    const client = await db.connect();
    await client.query('BEGIN');
    await process(client, stream, message(stream, step));
    return client;
  }

  const process = (client: pg.Client, { consumer }: Stream, received: ReceivedMessage) =>
    inbox.process(client, { consumer, message: received }, () => undefined);

  it('M11 the later message waits for the earlier one, and sees its position', async () => {
    const stream = newStream();
    await receive(stream, [1, 0]);
    const first = await holding(stream, [2, 1]);
    const second = await db.connect();
    await second.query('BEGIN');
    const backend = await backendId(second);
    const pending = process(second, stream, message(stream, [3, 2]));
    await waitUntilBlocked(db, backend);
    await first.query('COMMIT');
    expect(await pending).toMatchObject({ processed: true, gap: null });
    await second.query('COMMIT');
    expect(gaps(await receive(stream, [4, 3]))).toEqual([null]);
  });

  it('M11 a duplicate does not wait for its key', async () => {
    const stream = newStream();
    const old = message(stream, [1, 0]);
    await receiveOne(stream, old);
    const first = await holding(stream, [2, 1]);
    const second = await db.connect();
    await second.query("BEGIN; SET LOCAL lock_timeout = '1s'");
    expect(await process(second, stream, old)).toMatchObject({ processed: false });
    await second.query('COMMIT');
    await first.query('COMMIT');
  });

  it('M11 two concurrent checks are serialized', async () => {
    const stream = newStream();
    await receive(stream, [1, 0]);
    // holds the first one between its check of the position and its change
    const gate = await db.connect();
    await gate.query(`
      CREATE FUNCTION pass_gate() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END $$;
      CREATE TRIGGER gate BEFORE UPDATE ON ${db.quoted}.inbox_positions FOR EACH ROW EXECUTE FUNCTION pass_gate();
      SELECT pg_advisory_lock(7)`);
    const [first, second] = await Promise.all([db.connect(), db.connect()]);
    const begin = async (client: pg.Client, step: Step) => {
      await client.query('BEGIN');
      const backend = await backendId(client);
      const pending = process(client, stream, message(stream, step));
      await waitUntilBlocked(db, backend);
      return { pending };
    };
    const { pending: earlier } = await begin(first, [2, 1]);
    const { pending: later } = await begin(second, [3, 2]);
    await gate.query(`SELECT pg_advisory_unlock(7)`);
    expect(await earlier).toMatchObject({ gap: null });
    await first.query('COMMIT');
    expect(await later).toMatchObject({ gap: null });
    await second.query('COMMIT');
    await gate.query(`DROP FUNCTION pass_gate CASCADE`);
  });

  it('M11 batches over the same keys in opposite order never deadlock', async () => {
    const [a, b, c] = Array.from({ length: 3 }, (_, n) => ({
      consumer: 'ledger',
      key: `crossing-${n}`,
    })) as [Stream, Stream, Stream];
    const blocker = await holding(b, [1, 0]);
    const begin = async (streams: Stream[]) => {
      const client = await db.connect();
      await client.query('BEGIN');
      const backend = await backendId(client);
      const batch = streams.map((stream) => message(stream, [1]));
      const processAll = async () => {
        const options = { consumer: 'ledger' };
        const answer = await inbox.processMany(client, options, batch, (fresh) => fresh.length);
        await client.query('COMMIT');
        return answer;
      };
      const ended = processAll();
      await waitUntilBlocked(db, backend);
      return { ended };
    };
    // in the given order, each would lock its first key and then wait for the other's
    const forwards = await begin([a, b, c]);
    const backwards = await begin([c, b, a]);
    await blocker.query('ROLLBACK');
    const answers = await Promise.all([forwards.ended, backwards.ended]);
    expect(answers.map(({ value }) => value)).toEqual([3, 3]);
  });
});

describe('a key that was forgotten and has come back', () => {
  /** Ids as the database makes them, of this many days ago. */
  const madeAt = async (stream: Stream, daysAgo: number, step: Step): Promise<ReceivedMessage> => {
    const { rows } = await db.query<{ id: string }>(
      `SELECT overlay(overlay(${db.quoted}.id_at(now() - $1 * interval '1 day')::text PLACING '7' FROM 15) PLACING $2 FROM 20) AS id`,
      [daysAgo, `8${randomUUID().slice(20)}`],
    );
    return { ...message(stream, step), id: rows[0]?.id ?? '' };
  };

  it('M11 starts again: its first message is no step back, and its position follows it', async () => {
    const stream = newStream();
    await receiveOne(stream, await madeAt(stream, 100, [57]));
    const come = async (daysAgo: number, step: Step) =>
      gaps([await receiveOne(stream, await madeAt(stream, daysAgo, step), 'report')])[0];
    expect(await come(60, [1, 0])).toBeNull();
    expect(await come(59, [2, 1])).toBeNull();
    expect(await come(58, [4, 3]), 'and misses nothing').toBe('missing: 2 instead of 3');
    expect(await come(20, [3, 1]), 'made 38 days after the one at the position').toBe(
      'missing: 0 instead of 1',
    );
  });

  it('M11 a late message of the same numbering is a step back, however late', async () => {
    const stream = newStream();
    await receiveOne(stream, await madeAt(stream, 100, [57]));
    expect(gaps([await receiveOne(stream, await madeAt(stream, 101, [40]))])).toEqual([
      'step_back: 57 instead of 39',
    ]);
    expect(gaps([await receiveOne(stream, await madeAt(stream, 71, [41]))])).toEqual([
      'step_back: 57 instead of 40',
    ]);
    expect(gaps([await receiveOne(stream, await madeAt(stream, 60, [58, 57]))])).toEqual([null]);
  });

  it('M11 works the same within a batch, where the new numbering is compared with itself', async () => {
    const stream = newStream();
    const batch = [
      await madeAt(stream, 100, [1, 0]),
      await madeAt(stream, 99, [2, 1]),
      await madeAt(stream, 60, [1, 0]),
      await madeAt(stream, 20, [2, 1]),
      await madeAt(stream, 19, [3, 2]),
    ];
    const { messages } = await receiveBatch(stream, batch, 'throw');
    expect(gaps(messages)).toEqual([null, null, null, null, null]);
    expect(gaps([await receiveOne(stream, await madeAt(stream, 18, [4, 3]))])).toEqual([null]);
  });
});
