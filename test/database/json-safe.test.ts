// Results of enqueue and the inbox are plain JSON, so an HTTP handler can return them. Sequences are text everywhere,
// because a JSON number would round large ones.

import { randomUUID } from 'node:crypto';

import { expect, it } from 'vitest';

import { createInbox, createOutbox } from '../../src/index.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

it('P2 the result of enqueue passes through JSON unchanged, with the sequence that a handler gets', async () => {
  const outbox = createOutbox({ schema: db.schema });
  const queue = await makeQueue(db);
  const enqueued = await db.inTransaction((client) =>
    outbox.enqueueMany(client, [
      { topic: queue.topic, key: 'ada' },
      { topic: queue.topic, key: 'ada' },
      { topic: queue.topic },
    ]),
  );
  expect(JSON.parse(JSON.stringify(enqueued))).toEqual(enqueued);
  expect(enqueued.map(({ sequence }) => sequence)).toEqual(['1', '2', null]);
  const { rows } = await queue.claim();
  const handed = new Map(rows.map(({ message_id: id, sequence }) => [id, sequence]));
  for (const { id, sequence } of enqueued) expect(handed.get(id)).toBe(sequence);
});

it('M11 a gap that the inbox reports passes through JSON unchanged', async () => {
  const inbox = createInbox({ schema: db.schema });
  const message = {
    id: randomUUID(),
    key: 'ada',
    sequence: '9007199254740995',
    previousSequence: '9007199254740993',
  };
  const answer = await db.inTransaction((client) =>
    inbox.process(client, { consumer: 'bank', message }, () => 'done'),
  );
  expect(JSON.parse(JSON.stringify(answer))).toEqual(answer);
  expect(answer).toMatchObject({
    gap: { kind: 'missing', expectedSequence: '9007199254740993', lastSequence: '0' },
  });
});
