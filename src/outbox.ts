// The producer's side: enqueue a message inside the application's own transaction. If the transaction
// commits, the message will be delivered; if it rolls back, the message never existed.

import { quoteIdentifier } from './database/connection.js';
import { MessageRefusedError, NoTransactionError, shown } from './errors.js';
import { defaultMaxPayloadBytes, serializeMessage } from './model/message.js';
import type { Enqueued, Message } from './model/message.js';
import { checkOptions, integer, schemaName } from './model/options.js';
import { isNodePostgresClient, nodePostgresTransaction } from './transactions/node-postgres.js';
import type { NodePostgresClient } from './transactions/node-postgres.js';
import type { Transaction } from './transactions/transaction.js';

export type OutboxOptions = {
  /** Default: outbox. */
  schema?: string;
  /** Default: 1 MiB. */
  maxPayloadBytes?: number;
};

export type EnqueueOptions = {
  /** Send it on its own, outside any transaction of yours. Default: false. */
  autonomous?: boolean;
};

export type Outbox = {
  enqueue(tx: NodePostgresClient, message: Message, options?: EnqueueOptions): Promise<Enqueued>;
  /** Any number of messages in one statement; the answers are in the order of the messages. */
  enqueueMany(
    tx: NodePostgresClient,
    messages: readonly Message[],
    options?: EnqueueOptions,
  ): Promise<Enqueued[]>;
};

export function createOutbox(options: OutboxOptions = {}): Outbox {
  const { schema, maxPayloadBytes } = checkOptions('outbox', options, {
    schema: schemaName,
    maxPayloadBytes: integer({ min: 1, max: 256 * 1024 * 1024, default: defaultMaxPayloadBytes }),
  });
  // JSON is bound as text: drivers differ in how they encode objects. Sequences are read as text for the
  // same reason: some drivers would round a bigint. 0: the payloads have been measured here.
  const sql = `SELECT id::text AS id, sequence::text AS sequence, duplicate FROM ${quoteIdentifier(schema)}.enqueue_many($1::text::jsonb, 0)`;

  async function enqueueMany(
    tx: NodePostgresClient,
    messages: readonly Message[],
    { autonomous = false }: EnqueueOptions = {},
  ): Promise<Enqueued[]> {
    if (!Array.isArray(messages)) {
      throw new MessageRefusedError(
        'messages',
        `${shown(messages)} is not a list: give [{ topic, payload }, …]`,
      );
    }
    const serialized = (messages as readonly Message[]).map((message) =>
      serializeMessage(message, maxPayloadBytes),
    );
    const transaction = adapt(tx);
    if (!autonomous) {
      const reason = await transaction.outsideBecause();
      if (reason !== null) throw new NoTransactionError(reason);
    }
    if (serialized.length === 0) return [];
    const rows = await transaction.query(sql, [`[${serialized.join(',')}]`]);
    return rows.map((row) => ({
      id: row['id'] as string,
      sequence: row['sequence'] === null ? null : BigInt(row['sequence'] as string),
      duplicate: row['duplicate'] as boolean,
    }));
  }

  return {
    enqueueMany,
    async enqueue(tx, message, enqueueOptions) {
      const [enqueued] = await enqueueMany(tx, [message], enqueueOptions);
      if (enqueued === undefined)
        throw new MessageRefusedError('message', 'was not confirmed by the database');
      return enqueued;
    },
  };
}

function adapt(handle: unknown): Transaction {
  if (isNodePostgresClient(handle)) return nodePostgresTransaction(handle);
  throw new NoTransactionError(`${shown(handle)} is not a database client that Waybill knows`);
}
