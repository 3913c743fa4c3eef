// Inbox: makes a consumer process each message once. Delivery is at least once, so duplicates arrive; the inbox records
// processed messages in the consumer's own transaction. If the transaction commits, duplicates are skipped; if it rolls
// back, the message counts as unprocessed.

import { quoteIdentifier } from '../core/identifier.js';
import { MessageRefusedError, SequenceGapError, shown } from '../core/errors.js';
import { checkOptions, schemaName } from '../core/options.js';
import { checkConsumer, checkReceived, serializeList } from '../core/received-message.js';
import type { ConsumerOptions, Received, ReceivedMessage } from '../core/received-message.js';
import { adaptInside } from '../producer/adapters/adapt.js';
import type { TransactionHandle } from '../producer/adapters/adapt.js';
import { explainingSchema } from '../producer/adapters/schema-failures.js';

export type InboxOptions = {
  /** Default: outbox. */
  schema?: string;
};

/** How a message is out of order: earlier messages are missing, or a later one was processed already. */
export type Gap = {
  kind: 'missing' | 'step_back';
  /** The sequence that should have been processed last. */
  expectedSequence: string;
  /** The highest sequence of the key that this consumer has processed; '0': none. */
  lastSequence: string;
};

export type Reception =
  | { processed: true; gap: Gap | null }
  | { processed: false; firstProcessedAt: Date };

export type Processed<Value> =
  | { processed: true; gap: Gap | null; value: Value }
  | { processed: false; firstProcessedAt: Date };

export type ManyProcessed<Value> = {
  /** The result of the work; undefined if no message was new and the work was skipped. */
  value: Value | undefined;
  /** One for each message, in their order. */
  messages: Reception[];
};

export type Inbox = {
  /** Does the work if this message is new to the consumer. Rethrows errors of the work: roll back then. */
  process<Value>(
    tx: TransactionHandle,
    received: Received,
    work: () => Value | PromiseLike<Value>,
  ): Promise<Processed<Value>>;
  /** Records any number of messages with one statement; the work gets the new ones, in their order. */
  processMany<Message extends ReceivedMessage, Value>(
    tx: TransactionHandle,
    consumer: ConsumerOptions,
    messages: readonly Message[],
    work: (messages: Message[]) => Value | PromiseLike<Value>,
  ): Promise<ManyProcessed<Value>>;
};

const demand = {
  because:
    'the inbox must work inside your transaction, or a message could count as processed without its effects',
};

export function createInbox(options: InboxOptions = {}): Inbox {
  const { schema } = checkOptions('inbox', options, { schema: schemaName });
  // Times and sequences in forms that every driver reads alike. The columns are single words, because applications
  // often configure their driver to rewrite snake_case.
  const sql = `SELECT is_new AS fresh, extract(epoch FROM first_processed_at)::float8 * 1000 AS since, gap,
    expected_sequence::text AS expected, last_sequence::text AS last
    FROM ${quoteIdentifier(schema)}.inbox_begin_many($1::text, $2::text::jsonb, $3::boolean)`;

  async function begin(
    tx: TransactionHandle,
    { consumer, onGap }: Required<ConsumerOptions>,
    serialized: readonly string[],
  ): Promise<Reception[]> {
    const transaction = explainingSchema(adaptInside(tx, demand), {
      schema,
      callee: 'inbox_begin_many',
      role: 'consumer',
    });
    if (serialized.length === 0) {
      await transaction.query('SELECT 1 AS nothing', []);
      return [];
    }
    const rows = await transaction.query(sql, [
      consumer,
      `[${serialized.join(',')}]`,
      onGap === 'throw',
    ]);
    return rows.map((row, index) => {
      const gap = gapOf(row);
      if (gap !== null && onGap === 'throw')
        throw new SequenceGapError(describe(gap, consumer, serialized[index] ?? '{}'));
      return row['fresh'] === true
        ? { processed: true, gap }
        : { processed: false, firstProcessedAt: new Date(Number(row['since'])) };
    });
  }

  return {
    async process(tx, received, work) {
      const { serialized, ...consumer } = checkReceived(received);
      const [reception] = await begin(tx, consumer, [serialized]);
      if (reception === undefined)
        throw new MessageRefusedError('message', 'was not answered for by the database');
      return reception.processed ? { ...reception, value: await work() } : reception;
    },

    async processMany(tx, consumer, messages, work) {
      const checked = checkConsumer(consumer);
      const receptions = await begin(tx, checked, serializeList(messages));
      const fresh = messages.filter((_message, index) => receptions[index]?.processed);
      return {
        value: fresh.length > 0 ? await work(fresh) : undefined,
        messages: receptions,
      };
    },
  };
}

function gapOf(row: Record<string, unknown>): Gap | null {
  if (row['gap'] === null) return null;
  return {
    kind: row['gap'] as Gap['kind'],
    expectedSequence: row['expected'] as string,
    lastSequence: row['last'] as string,
  };
}

function describe(gap: Gap, consumer: string, serialized: string): string {
  const { messageId, dedupeKey, key, sequence } = JSON.parse(serialized) as Record<string, string>;
  const follows = gap.kind === 'missing' ? `, after ${gap.expectedSequence}` : '';
  return (
    `message ${messageId ?? shown(dedupeKey)} has the sequence ${sequence} of key ${shown(key)}${follows}, ` +
    `but consumer ${shown(consumer)} has processed that key up to ${gap.lastSequence}`
  );
}
