// Outbox: enqueues messages inside the application's own transaction. If the transaction commits, the message is
// delivered; if it rolls back, the message never existed.

import { quoteIdentifier } from '../core/identifier.js';
import { MessageRefusedError, shown, UnroutedMessageError } from '../core/errors.js';
import { checkEvent, eventsKind } from './events/event-definitions.js';
import type { DefinedEvents, EventMessage } from './events/event-definitions.js';
import { defaultLimits, largestLimits, serializeMessage } from '../core/message.js';
import type { Enqueued, Message } from '../core/message.js';
import { checkOptions, choice, integer, optional, schemaName } from '../core/options.js';
import { ownShardKind, refuseForeign } from '../features/shards/shard-map.js';
import type { OwnShard } from '../features/shards/shard-map.js';
import { traceCreation } from '../telemetry/tracing.js';
import { adapt, adaptInside } from './adapters/adapt.js';
import type { TransactionHandle } from './adapters/adapt.js';
import { explainingSchema } from './adapters/schema-failures.js';
import type { Transaction } from './adapters/transaction.js';
import { wakeSleepingRelays } from '../core/sleeping-relays.js';
import { wakeKind, nudge } from './nudge.js';
import type { WakeOptions } from './nudge.js';

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
  /** Larger payloads are refused before the database is called; the schema has its own limit. Default: 1,048,576. */
  maxPayloadBytes?: number;
  /** Larger headers are refused before the database is called; the schema has its own limit. Default: 65,536. */
  maxHeaderBytes?: number;
  /** The events of `defineEvents`: only these are accepted, each with a payload that its schema allows. Default: any message. */
  events?: DefinedEvents;
  /** `keep` messages that no route and no cursor matches until they are routed, or `refuse` them with an `UnroutedMessageError`. Default: the setting `waybill.unrouted`, or `keep`; a refusal by the setting is a database error, which aborts the transaction. */
  unrouted?: 'keep' | 'refuse';
  /** The map of `defineShards`, and the shard that this outbox writes to: messages of tenants of other shards are refused. Default: any tenant. */
  shard?: OwnShard;
  /** How `nudge` reaches a relay that may sleep (`relay.sleep`). Default: the variables WAYBILL_WAKE_URL and WAYBILL_WAKE_TOKEN. */
  wake?: WakeOptions;
};

export type EnqueueOptions = {
  /** Enqueues outside any transaction of the application. Default: false. */
  autonomous?: boolean;
};

export type Outbox<M = Message> = {
  enqueue(tx: TransactionHandle, message: M, options?: EnqueueOptions): Promise<Enqueued>;
  /** Enqueues any number of messages with one statement; the results are in the order of the messages. */
  enqueueMany(
    tx: TransactionHandle,
    messages: readonly M[],
    options?: EnqueueOptions,
  ): Promise<Enqueued[]>;
  /**
   * Which system sends the messages of a key during a rollout: `new` is Waybill, `old` the system that sent them
   * before. Call it in the transaction that enqueues; for a message without a key, pass its id.
   */
  rolloutDecision(tx: TransactionHandle, rollout: string, key: string): Promise<'new' | 'old'>;
  /**
   * Wakes a relay that may sleep. Call it after the commit; it need not be awaited, or give it to `waitUntil`. It never
   * rejects. False: no relay was reached, and the message waits for the relay's next look.
   */
  nudge(): Promise<boolean>;
};

export function createOutbox<E extends DefinedEvents>(
  options: OutboxOptions & { events: E },
): Outbox<EventMessage<E>>;
export function createOutbox(options?: OutboxOptions): Outbox;
export function createOutbox(options: OutboxOptions = {}): Outbox {
  const { schema, events, unrouted, shard, wake, ...limits } = checkOptions('outbox', options, {
    schema: schemaName,
    maxPayloadBytes: integer({
      min: 1,
      max: largestLimits.maxPayloadBytes,
      default: defaultLimits.maxPayloadBytes,
    }),
    maxHeaderBytes: integer({
      min: 1,
      max: largestLimits.maxHeaderBytes,
      default: defaultLimits.maxHeaderBytes,
    }),
    events: eventsKind,
    unrouted: optional(choice('keep', 'refuse')),
    shard: ownShardKind,
    wake: wakeKind,
  });
  const quoted = quoteIdentifier(schema);
  const rule = unrouted === undefined ? '' : `, '${unrouted}'`;
  const sql = `SELECT ${quoted}.enqueue_text($1${rule}) AS answer`;
  const decisionSql = `SELECT ${quoted}.rollout_decision($1, $2) AS decision`;
  const explaining = (transaction: Transaction, callee: string) =>
    explainingSchema(transaction, { schema, callee, role: 'producer' });

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
    // before any query, so that an error leaves the transaction usable
    if (shard !== undefined) refuseForeign(shard, messages);
    const serialized: string[] = [];
    for (const [index, message] of messages.entries()) {
      try {
        const checked = events === undefined ? message : await checkEvent(events, message);
        serialized.push(serializeMessage(checked, limits));
      } catch (error) {
        throw error instanceof MessageRefusedError && messages.length > 1 ? error.at(index) : error;
      }
    }
    const transaction = explaining(
      autonomous ? adapt(tx, demand) : adaptInside(tx, demand),
      'enqueue_text',
    );
    if (serialized.length === 0) {
      if (!autonomous) await transaction.query('SELECT 1 AS nothing', []);
      return [];
    }
    const [row] = await transaction.query(sql, [`[${serialized.join(',')}]`]);
    const answer = JSON.parse(String(row?.['answer'])) as Answer;
    if (answer.unrouted !== undefined) throw unroutedError(answer.unrouted, messages.length);
    // the database is awake anyway: a relay of this process wakes up now, so that it is awake at the commit
    wakeSleepingRelays(schema);
    return answer.ids.map((id, index) => ({
      id,
      sequence: answer.sequences?.[index] ?? null,
      duplicate: answer.duplicates?.[index] ?? false,
    }));
  }

  return {
    enqueueMany,
    nudge: () => nudge(schema, wake),
    async rolloutDecision(tx, rollout, key) {
      const transaction = explaining(adaptInside(tx, decisionDemand), 'rollout_decision');
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

/** What `enqueue_text` answers. */
type Answer = {
  ids: string[];
  sequences?: (string | null)[];
  duplicates?: boolean[];
  unrouted?: Unrouted;
};

type Unrouted = { position: number; topic: string; namespace: string; tenant: string | null };

function unroutedError(
  { position, topic, namespace, tenant }: Unrouted,
  messages: number,
): UnroutedMessageError {
  const whose = tenant === null ? 'no tenant' : `tenant ${shown(tenant)}`;
  return new UnroutedMessageError(
    topic,
    `namespace ${namespace}, ${whose}`,
    messages > 1 ? position : undefined,
  );
}
