// The producer's side: enqueue a message inside the application's own transaction. If the transaction
// commits, the message will be delivered; if it rolls back, the message never existed.

import { quoteIdentifier } from './database/connection.js';
import { MessageRefusedError, shown } from './errors.js';
import { checkEvent, eventsKind } from './model/event-definitions.js';
import type { DefinedEvents, EventMessage } from './model/event-definitions.js';
import { defaultMaxPayloadBytes, serializeMessage } from './model/message.js';
import type { Enqueued, Message } from './model/message.js';
import { checkOptions, integer, schemaName } from './model/options.js';
import { ownShardKind, refuseForeign } from './model/shard-map.js';
import type { OwnShard } from './model/shard-map.js';
import { traceCreation } from './telemetry/tracing.js';
import { adapt, adaptInside } from './transactions/adapt.js';
import type { TransactionHandle } from './transactions/adapt.js';

const demand = {
  because:
    'enqueue must run inside your transaction, or the message could be kept without its effects',
  otherwise: 'pass { autonomous: true } to send it on its own',
};

const decisionDemand = {
  because: 'a decision holds until the end of its transaction, so that both systems decide alike',
};

export type OutboxOptions = {
  /** Default: outbox. */
  schema?: string;
  /** Default: 1 MiB. */
  maxPayloadBytes?: number;
  /** The events of `defineEvents`: only these are taken, each with a payload that its schema allows. Default: any message. */
  events?: DefinedEvents;
  /** The map of `defineShards`, and which of its shards this outbox writes to: messages of tenants of others are refused. Default: any tenant. */
  shard?: OwnShard;
};

export type EnqueueOptions = {
  /** Send it on its own, outside any transaction of yours. Default: false. */
  autonomous?: boolean;
};

export type Outbox<M = Message> = {
  enqueue(tx: TransactionHandle, message: M, options?: EnqueueOptions): Promise<Enqueued>;
  /** Any number of messages in one statement; the answers are in the order of the messages. */
  enqueueMany(
    tx: TransactionHandle,
    messages: readonly M[],
    options?: EnqueueOptions,
  ): Promise<Enqueued[]>;
  /**
   * Who sends the messages of a key while a rollout is under way: `new`, which is Waybill, or `old`, the system that
   * sent them before. Ask in the transaction that enqueues; for a message without a key, with its id.
   */
  rolloutDecision(tx: TransactionHandle, rollout: string, key: string): Promise<'new' | 'old'>;
};

export function createOutbox<E extends DefinedEvents>(
  options: OutboxOptions & { events: E },
): Outbox<EventMessage<E>>;
export function createOutbox(options?: OutboxOptions): Outbox;
export function createOutbox(options: OutboxOptions = {}): Outbox {
  const { schema, maxPayloadBytes, events, shard } = checkOptions('outbox', options, {
    schema: schemaName,
    maxPayloadBytes: integer({ min: 1, max: 256 * 1024 * 1024, default: defaultMaxPayloadBytes }),
    events: eventsKind,
    shard: ownShardKind,
  });
  // JSON is bound as text: drivers differ in how they encode objects. Sequences are read as text for the
  // same reason: some drivers would round a bigint. 0: the payloads have been measured here.
  const sql = `SELECT id::text AS id, sequence::text AS sequence, duplicate FROM ${quoteIdentifier(schema)}.enqueue_many($1::text::jsonb, 0)`;

  const decisionSql = `SELECT ${quoteIdentifier(schema)}.rollout_decision($1, $2) AS decision`;

  async function enqueueMany(
    tx: TransactionHandle,
    messages: readonly Message[],
    { autonomous = false }: EnqueueOptions = {},
  ): Promise<Enqueued[]> {
    if (!Array.isArray(messages)) {
      throw new MessageRefusedError(
        'messages',
        `${shown(messages)} is not a list: give [{ topic, payload }, …]`,
      );
    }
    return traceCreation(messages, (traced) => insert(tx, traced, autonomous));
  }

  async function insert(
    tx: TransactionHandle,
    messages: readonly Message[],
    autonomous: boolean,
  ): Promise<Enqueued[]> {
    // before anything is asked of the database, so that a refusal leaves the transaction as it is
    if (shard !== undefined) refuseForeign(shard, messages);
    const serialized: string[] = [];
    for (const [index, message] of messages.entries()) {
      try {
        const checked = events === undefined ? message : await checkEvent(events, message);
        serialized.push(serializeMessage(checked, maxPayloadBytes));
      } catch (error) {
        throw error instanceof MessageRefusedError && messages.length > 1 ? error.at(index) : error;
      }
    }
    const transaction = autonomous ? adapt(tx, demand) : adaptInside(tx, demand);
    if (serialized.length === 0) {
      if (!autonomous) await transaction.query('SELECT 1 AS nothing', []);
      return [];
    }
    const rows = await transaction.query(sql, [`[${serialized.join(',')}]`]);
    return rows.map((row) => ({
      id: row['id'] as string,
      sequence: row['sequence'] === null ? null : BigInt(row['sequence'] as string),
      duplicate: row['duplicate'] as boolean,
    }));
  }

  return {
    enqueueMany,
    async rolloutDecision(tx, rollout, key) {
      const transaction = adaptInside(tx, decisionDemand);
      const [row] = await transaction.query(decisionSql, [rollout, key]);
      return row?.['decision'] === 'new' ? 'new' : 'old';
    },
    async enqueue(tx, message, enqueueOptions) {
      const [enqueued] = await enqueueMany(tx, [message], enqueueOptions);
      if (enqueued === undefined)
        throw new MessageRefusedError('message', 'was not confirmed by the database');
      return enqueued;
    },
  };
}
