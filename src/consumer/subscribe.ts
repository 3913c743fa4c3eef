// Subscription: reads the log in order, batch by batch, at least once, and resumes at its cursor. Any number of
// processes may subscribe under one name: they share the partitions of the cursor. With one partition, one process
// reads at a time, and another takes over when it is gone. Dead letters that an operator retries go to the same
// function.

import { randomUUID } from 'node:crypto';
import os from 'node:os';

import { StartupWait } from '../database/startup-wait.js';
import { reap } from '../database/claims.js';
import { Database, resolveDatabaseOptions } from '../database/connection.js';
import type { DatabaseOptions } from '../database/connection.js';
import { defineSubscription } from '../database/cursors.js';
import { signOff } from '../database/definitions.js';
import { schemaMissingOr } from '../database/versions.js';
import { errorText } from '../core/errors.js';
import { batchHandler } from '../destinations/handler.js';
import { partitionsKind } from '../destinations/destination.js';
import type { DeliveryContext } from '../destinations/destination.js';
import type { ClaimedMessage } from '../core/claimed-message.js';
import {
  anything,
  checkOptions,
  choice,
  integer,
  list,
  optional,
  refuse,
  text,
} from '../core/options.js';
import type { RetryPolicy } from '../core/retry-policy.js';
import { resolveRetryPolicy } from '../core/retry-policy.js';
import { topicKind } from '../core/route.js';
import { LeaseKeeper } from '../relay/delivery/lease-keeper.js';
import { WakeUp } from '../relay/wakeup/wake-up.js';
import { misdatedMs, misdatedTask } from '../relay/upkeep/misdated.js';
import { resolveRelayOptions } from '../relay/options.js';
import { Pipeline } from '../relay/delivery/pipeline.js';
import { ConcurrencyLimit } from '../relay/delivery/concurrency-limit.js';
import { DeliveredLeases } from '../relay/delivery/delivered-leases.js';
import { addDrained, noneDrained } from '../relay/drains.js';
import type { Drained } from '../relay/drains.js';
import { StreamReader } from '../relay/log/stream-reader.js';
import type { StreamDrained } from '../relay/log/stream-reader.js';
import { StreamSender } from '../relay/log/stream-sender.js';
import { IntervalTask } from '../relay/upkeep/interval-task.js';
import type { Emit } from '../telemetry/events.js';

export type SubscribeOptions = {
  /** The name of the cursor. A new subscription with this name continues at the cursor's position. */
  name: string;
  database?: DatabaseOptions;
  /** Exact (`user.registered`), all topics below (`user.*`), or all topics (`*`). Default: all. */
  topics?: readonly string[];
  /** Only this namespace. Default: all. */
  namespace?: string;
  /** Only this tenant. Default: all. */
  tenantId?: string;
  /** Where a new cursor starts: `now`, with messages from now on, or at the `beginning` of the log. Default `now`. */
  from?: 'now' | 'beginning';
  /** How many processes can read at the same time: the log is divided by key into so many partitions. Default 1. */
  partitions?: number;
  /** The most messages in one call. Default 1,000. */
  batchSize?: number;
  /** The most bytes of payloads and headers in one call, as text. Default 8 MiB. */
  batchBytes?: number;
  /** A call that takes longer is aborted and counts as failed. Default 30,000. */
  timeoutMs?: number;
  retry?: RetryPolicy;
  /** What happens to a message whose tries are used up: `park` makes it a dead letter and continues, `block` stops at it. Default `park`. */
  whenExhausted?: 'park' | 'block';
  /** How long a reader that died keeps others from taking over. Default 30,000. */
  leaseMs?: number;
  /** The longest pause between two checks of an idle log. Default 100. */
  pollMs?: number;
  /** How long a stop may take. Default 8,000. */
  stopDeadlineMs?: number;
  /** How long the start waits for a database that is down or read-only, or for a lock; 0: no wait. Default 300,000. */
  startupWaitMs?: number;
  /** Stops the subscription, also while it waits for the database. */
  signal?: AbortSignal;
  onEvent?: Emit;
};

/** Returns nothing on success. If it throws, the messages are delivered again. */
export type StreamHandler = (
  messages: readonly ClaimedMessage[],
  context: DeliveryContext,
) => Promise<void> | void;

export type Subscription = {
  /** True while this process reads, and not only others under the same name. */
  readonly reading: boolean;
  /** The numbers of the partitions that this process reads, from 0. */
  readonly partitions: readonly number[];
  /** Lets the batch in flight finish, within the deadline, and releases the cursor. */
  stop(): Promise<void>;
};

const namePattern = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$/;

function abortSignal(name: string, value: unknown): AbortSignal {
  return value instanceof AbortSignal ? value : refuse(name, value, 'give an AbortSignal');
}

export function resolveSubscribeOptions(options: SubscribeOptions, where = 'subscribe') {
  return checkOptions(where, options, {
    name: text({ pattern: namePattern, meaning: 'letters, digits, _ - and ., at most 63' }),
    database: anything<DatabaseOptions | undefined>(),
    topics: (name: string, value: unknown) =>
      list(topicKind, { min: 1, max: 1000 })(name, value ?? ['*']),
    namespace: optional(text({ meaning: 'a namespace' })),
    tenantId: optional(text({ meaning: 'a tenant id' })),
    from: choice('now', 'beginning'),
    partitions: partitionsKind,
    batchSize: integer({ min: 1, max: 10_000, default: 1000 }),
    batchBytes: integer({ min: 1024, max: 256 * 1024 * 1024, default: 8 * 1024 * 1024 }),
    timeoutMs: integer({ min: 1, max: 3_600_000, default: 30_000 }),
    retry: (name: string, value: unknown) => resolveRetryPolicy(name, value as RetryPolicy),
    whenExhausted: choice('park', 'block'),
    leaseMs: integer({ min: 1000, max: 3_600_000, default: 30_000 }),
    pollMs: integer({ min: 5, max: 60_000, default: 100 }),
    stopDeadlineMs: integer({ min: 0, max: 3_600_000, default: 8000 }),
    startupWaitMs: integer({ min: 0, max: 86_400_000, default: 300_000 }),
    signal: optional(abortSignal),
    onEvent: anything<Emit | undefined>(),
  });
}

export function checkHandler(where: string, handle: unknown): void {
  if (typeof handle !== 'function')
    refuse(where, handle, 'give a function async (messages, context) => …');
}

type Resolved = ReturnType<typeof resolveSubscribeOptions>;

/** Starts reading. Resolves once it reads, or stands by because other processes read. */
export async function subscribe(
  options: SubscribeOptions,
  handle: StreamHandler,
): Promise<Subscription> {
  const resolved = resolveSubscribeOptions(options);
  checkHandler('subscribe', handle);
  const running = new RunningSubscription(resolved, handle);
  const { signal } = resolved;
  signal?.addEventListener('abort', () => void running.stop().catch(() => {}), { once: true });
  try {
    signal?.throwIfAborted();
    await running.start();
    signal?.throwIfAborted();
  } catch (error) {
    await running.stop();
    throw signal?.aborted ? signal.reason : error;
  }
  return running;
}

export class RunningSubscription implements Subscription {
  readonly #options: Resolved;
  readonly #handle: StreamHandler;
  readonly #id = randomUUID();
  readonly #emit: Emit;
  readonly #work: Database;
  readonly #control: Database;
  /** Not null for a drain, which ends by itself. */
  readonly #drain: { maxMessages: number } | null;
  /** Outcomes of retried dead letters. */
  readonly #counts: Drained = { ...noneDrained };
  #reader: StreamReader | undefined;
  #pipeline: Pipeline | undefined;
  #tasks: IntervalTask[] = [];
  readonly #stopping = new AbortController();
  #stopped: Promise<void> | undefined;

  constructor(
    options: Resolved,
    handle: StreamHandler,
    drain: { maxMessages: number } | null = null,
  ) {
    this.#options = options;
    this.#handle = handle;
    this.#drain = drain;
    this.#emit = (event) => {
      if (event.name === 'settled') addDrained(this.#counts, event.counts);
      try {
        options.onEvent?.(event);
      } catch (error) {
        // an error in a listener must not stop the reader
        process.emitWarning(`onEvent failed: ${errorText(error)}`, 'WaybillWarning');
      }
    };
    const database = resolveDatabaseOptions(options.database);
    const applicationName = `waybill ${options.name}`;
    const connections = Math.min(4 * options.partitions, 16);
    this.#work = new Database(database, { connections, applicationName });
    this.#control = new Database(database, {
      connections: 2,
      applicationName,
      beside: this.#work,
    });
  }

  get reading(): boolean {
    return this.#reader?.reading ?? false;
  }

  get partitions(): readonly number[] {
    return this.#reader?.partitions ?? [];
  }

  async start(): Promise<void> {
    const { name, topics, namespace, tenantId, from, retry, startupWaitMs, partitions } =
      this.#options;
    const wait = new StartupWait(this.#control, {
      limitMs: startupWaitMs,
      signal: this.#stopping.signal,
      emit: this.#emit,
    });
    const filters = topics.map((topic) => ({
      topic,
      ...(namespace !== undefined && { namespace }),
      ...(tenantId !== undefined && { tenantId }),
    }));
    const destinationId = await wait
      .run(() => defineSubscription(this.#control, name, from, filters, retry, partitions))
      .catch((error: unknown) => {
        throw schemaMissingOr(error, this.#control.schema);
      });
    const { batchSize, batchBytes, timeoutMs, whenExhausted, leaseMs, pollMs } = this.#options;
    const reader = new StreamReader({
      cursor: name,
      database: this.#work,
      control: this.#control,
      reader: { id: this.#id, name: `${os.hostname()}:${process.pid}`, leaseMs },
      batchSize,
      batchBytes,
      pollMs,
      senderOf: ({ partition }) =>
        new StreamSender({
          cursor: name,
          partition,
          deliver: async (messages, context) => {
            await this.#handle(messages, context);
            return { done: messages.length };
          },
          timeoutMs,
          maxAttempts: retry.maxAttempts,
          whenExhausted,
          emit: this.#emit,
        }),
      emit: this.#emit,
      drain: this.#drain,
    });
    this.#reader = reader;
    await wait.run(() => reader.start());
    // a drain may be over before the interval task runs
    if (this.#drain) await reap(this.#control);
    this.#startPipeline(destinationId);
  }

  /** Resolves when a drain has nothing more to do. */
  async ended(): Promise<void> {
    await Promise.all([this.#reader?.ended(), this.#pipeline?.ended()]);
  }

  /** What a drain has done. */
  get drained(): { counts: Drained; stream: StreamDrained; emptied: boolean } {
    const counts = { ...this.#counts };
    if (this.#reader) addDrained(counts, this.#reader.counts);
    const stream = this.#reader?.drained ?? { finished: false, heldBy: null, retryInMs: null };
    return { counts, stream, emptied: this.#pipeline?.emptied ?? false };
  }

  /** The pipeline delivers dead letters of the subscription that were retried: these are ordinary deliveries. */
  #startPipeline(destinationId: number): void {
    const { name, batchSize, timeoutMs, leaseMs } = this.#options;
    const fallbackPollMs = Math.min(500, Math.floor(leaseMs / 3));
    const reapMs = Math.min(1000, Math.floor(leaseMs / 3));
    const destination = batchHandler(async (...call) => this.#handle(...call), {
      batchSize,
      timeoutMs,
      concurrency: 1,
    });
    const relay = resolveRelayOptions({
      leaseMs,
      batchSize,
      listen: false,
      fallbackPollMs,
      reapMs,
    });
    this.#pipeline = new Pipeline({
      name,
      destination,
      destinationId,
      slots: new ConcurrencyLimit(1),
      delivered: new DeliveredLeases(this.#work, this.#id),
      relay,
      database: this.#work,
      relayId: this.#id,
      emit: this.#emit,
      wakeUp: new WakeUp({
        work: this.#work,
        control: this.#control,
        relayId: this.#id,
        relay,
        emit: this.#emit,
      }),
      onUnknownLease: (leaseId) => keeper.unknown(leaseId),
      drain: this.#drain,
    });
    const keeper = new LeaseKeeper(this.#control, this.#id, [this.#pipeline], this.#emit);
    const releaseMisdated = misdatedTask(
      this.#control,
      `subscription ${name}`,
      this.#emit,
      () => {},
    );
    const every = (what: string, ms: number, task: () => Promise<unknown>) =>
      new IntervalTask(what, ms, this.#emit, async () => void (await task()));
    this.#tasks = [
      every('extend leases', Math.floor(leaseMs / 3), () => keeper.extend()),
      every('release leases', 1000, () => keeper.releaseUnknown()),
      every('reap', reapMs, () => reap(this.#control)),
      every('release misdated', misdatedMs, releaseMisdated),
    ];
    this.#pipeline.start();
    for (const each of this.#tasks) each.start();
  }

  async stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    await this.#stopped;
  }

  async #stop(): Promise<void> {
    this.#stopping.abort();
    const deadlineMs = performance.now() + this.#options.stopDeadlineMs;
    await Promise.all([this.#reader?.stop(deadlineMs), this.#pipeline?.stop(deadlineMs)]);
    await Promise.all(this.#tasks.map((task) => task.stop()));
    if (this.#pipeline) await signOff(this.#control, this.#id).catch(() => {});
    await Promise.all([this.#work.close(), this.#control.close()]);
  }
}
