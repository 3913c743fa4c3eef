// The work of a producer process: runs the transactions of one producer of a seed at a time, on its own connection. It
// reports every message with the outcome of its commit, and with the times before which no reader can have seen it and
// after which every reader can. Where the plan says so it kills itself with SIGKILL: in the middle of a transaction,
// with COMMIT on its way, or after the answer to COMMIT and before its report. It reports what it is about to commit,
// so after its death the outcome may be unknown, but no message is.

import { setTimeout as delay } from 'node:timers/promises';

import pg from 'pg';

import type { Enqueued, Message } from '../../../src/core/message.js';
import type { Outbox } from '../../../src/producer/outbox.js';
import { Random } from '../crash/random.js';
import type { DeathMoment, Plan } from './plan.js';

export type Produced = {
  label: string;
  /** One transaction of one producer. */
  transaction: string;
  /** Unknown: the producer died during it. */
  outcome: 'committed' | 'aborted' | 'unknown';
  id: string;
  /** Null for a message without a key. */
  sequence: number | null;
  duplicate: boolean;
  topic: string;
  /** The key and its tenant, or null. */
  key: string | null;
  dedupe: string | null;
  /** Before the enqueue was sent, and after the commit was answered. */
  askedMs: number;
  committedMs: number;
};

/** Transactions of producer `number` of a seed, starting with this one. */
export type Job = { plan: Plan; number: number; from: number };

export type ProducerSaid =
  | { ready: true; backend: number }
  /** About to be committed, before COMMIT is sent. */
  | { begun: number; unknown: Produced[] }
  | { ended: Produced[] }
  | { refusal: string }
  | { done: true };

type Batch = { messages: Message[]; enqueued: Enqueued[]; askedMs: number };
type Transaction = { isolation: string; label: string; number: number; death?: DeathMoment };

let outbox: Outbox;

/**
 * Uses the outbox of the built package: many of these processes are started, and loading the sources takes longer than
 * most of them live.
 */
export async function work(
  { databaseUrl }: { databaseUrl: string },
  builtOutbox: Outbox,
): Promise<void> {
  outbox = builtOutbox;
  const client = new pg.Client({ connectionString: databaseUrl, application_name: 'producer' });
  await client.connect();
  process.on('message', (job) => void produce(client, job as Job));
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  await tell({ ready: true, backend: rows[0]?.pid ?? 0 });
}

/** Resolves when the harness will certainly get it, whatever happens to this process. */
function tell(said: ProducerSaid): Promise<void> {
  return new Promise((resolve, fail) => {
    process.send?.(said, undefined, undefined, (error) =>
      error === null ? resolve() : fail(error),
    );
  });
}

function die(): Promise<never> {
  process.kill(process.pid, 'SIGKILL');
  return new Promise<never>(() => {});
}

async function produce(client: pg.Client, { plan, number, from }: Job): Promise<void> {
  for (let n = from; n <= plan.transactions; n += 1) {
    const death = plan.deaths.find((d) => d.producer === number && d.transaction === n);
    for (let attempt = 1; ; attempt += 1) {
      // a separate generator, so that its decisions do not depend on how often others were in the way
      const random = new Random(((plan.seed * 101 + number) * 103 + n) * 107 + attempt);
      const isolation =
        attempt <= 2 && random.chance(plan.strictIsolationShare)
          ? random.pick(['REPEATABLE READ', 'SERIALIZABLE'])
          : 'READ COMMITTED';
      const code = await transact(client, plan, random, {
        isolation,
        label: `${number}-${n}-${attempt}`,
        number: n,
        ...(death === undefined ? {} : { death: death.moment }),
      });
      if (code === undefined) break;
      if (!mayFail(plan, code) || attempt === 50) {
        await tell({ refusal: `a producer got ${code}` });
        break;
      }
    }
    if (new Random(plan.seed * 109 + n).chance(0.3)) await delay((plan.seed * number + n) % 16);
  }
  await tell({ done: true });
}

function mayFail(plan: Plan, code: string): boolean {
  return code === '40001' || (code === '40P01' && plan.severalBatches);
}

/** One transaction; returns the SQL state that ended it, if it did not commit or was rolled back on purpose. */
async function transact(
  client: pg.Client,
  plan: Plan,
  random: Random,
  { isolation, label, number, death }: Transaction,
): Promise<string | undefined> {
  const kept: Batch[] = [];
  const undone: Batch[] = [];
  let made = 0;
  const enqueue = async (into: Batch[]) => {
    const messages = messagesOf(plan, random, () => `${label}-${(made += 1)}`);
    const askedMs = Date.now();
    into.push({ messages, enqueued: await outbox.enqueueMany(client, messages), askedMs });
  };
  const recorded = (outcome: Produced['outcome'], batches: Batch[]) =>
    batches.flatMap((batch) => entries(`${plan.seed}:${label}`, outcome, batch));
  try {
    await client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
    if (random.chance(plan.savepointShare)) {
      await client.query('SAVEPOINT s');
      await enqueue(undone);
      await client.query('ROLLBACK TO SAVEPOINT s');
    }
    await enqueue(kept);
    if (plan.severalBatches && random.chance(0.5)) await enqueue(kept);
    if (random.chance(plan.pauseShare)) await delay(random.integer(10, 120));
    const commits = death !== undefined || !random.chance(plan.rollbackShare);
    await tell({
      begun: number,
      unknown: death === 'before commit' ? [] : recorded('unknown', kept),
    });
    if (death === 'before commit') await die();
    const ending = client.query(commits ? 'COMMIT' : 'ROLLBACK');
    // COMMIT has been sent, or is about to be
    if (death === 'in commit') await die();
    await ending;
    if (death === 'after commit') await die();
    await tell({
      ended: [...recorded(commits ? 'committed' : 'aborted', kept), ...recorded('aborted', undone)],
    });
    return undefined;
  } catch (error) {
    await client.query('ROLLBACK');
    await tell({ ended: recorded('aborted', [...kept, ...undone]) });
    return error instanceof pg.DatabaseError ? String(error.code) : String(error);
  }
}

function messagesOf(plan: Plan, random: Random, nextLabel: () => string): Message[] {
  return Array.from({ length: random.integer(1, plan.batch) }, () => {
    const { namespace } = plan;
    const label = `${plan.seed}:${nextLabel()}`;
    const keyed = !random.chance(plan.unkeyedShare);
    const hot = random.chance(plan.hotShare);
    const place = hot ? 0 : random.integer(0, plan.keys.length - 1);
    const named = keyed ? plan.keys[place] : undefined;
    const topic = random.pick(plan.topics);
    const delayMs = random.chance(plan.delayShare) ? random.integer(...plan.delayMs) : 0;
    const deduped = random.chance(plan.dedupeShare);
    const prefix = named?.tenantId === undefined ? '' : `${named.tenantId}/`;
    const dedupe = `${prefix}${named?.key ?? 'none'}-${random.integer(1, 4)}`;
    return {
      namespace,
      topic,
      payload: { label },
      ...named,
      ...(delayMs > 0 ? { delayMs } : {}),
      ...(deduped ? { dedupeKey: dedupe } : {}),
    };
  });
}

function entries(
  transaction: string,
  outcome: Produced['outcome'],
  { messages, enqueued, askedMs }: Batch,
): Produced[] {
  const committedMs = Date.now();
  return messages.flatMap((message, index) => {
    const answer = enqueued[index];
    if (answer === undefined) return [];
    const { topic, key, tenantId, dedupeKey } = message;
    return {
      label: (message.payload as { label: string }).label,
      transaction,
      outcome,
      id: answer.id,
      sequence: answer.sequence === null ? null : Number(answer.sequence),
      duplicate: answer.duplicate,
      topic,
      key: key === undefined ? null : `${tenantId ?? ''}/${key}`,
      dedupe: dedupeKey === undefined ? null : `${topic} ${dedupeKey}`,
      askedMs,
      committedMs,
    };
  });
}
