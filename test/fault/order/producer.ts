// A producer: a connection to itself, its transactions one after the other, and a log of every message with the
// outcome of its commit and the time before which nobody can have seen it and after which everybody can.

import { setTimeout as delay } from 'node:timers/promises';

import pg from 'pg';

import { createOutbox } from '../../../src/outbox.js';
import type { Enqueued, Message } from '../../../src/model/message.js';
import { Random } from '../crash/random.js';
import type { Plan } from './plan.js';
import type { World } from './world.js';

export type Produced = {
  label: string;
  outcome: 'committed' | 'aborted';
  id: string;
  /** Null for a message without a key. */
  sequence: number | null;
  duplicate: boolean;
  topic: string;
  /** The key and its tenant, or null. */
  stream: string | null;
  dedupe: string | null;
  /** Before the enqueue was asked for, and after the commit was answered. */
  askedMs: number;
  committedMs: number;
};

export type ProducerLog = { produced: Produced[]; refusals: string[] };

type Batch = { messages: Message[]; enqueued: Enqueued[]; askedMs: number };

const outbox = createOutbox();

export async function produce(world: World, plan: Plan, number: number): Promise<ProducerLog> {
  const random = new Random(plan.seed * 101 + number);
  const log: ProducerLog = { produced: [], refusals: [] };
  const client = await world.pool.connect();
  try {
    for (let n = 1; n <= plan.transactions; n += 1) {
      for (let attempt = 1; ; attempt += 1) {
        const isolation =
          attempt <= 2 && random.chance(plan.strictIsolationShare)
            ? random.pick(['REPEATABLE READ', 'SERIALIZABLE'])
            : 'READ COMMITTED';
        const label = `${number}-${n}-${attempt}`;
        const code = await transact(client, plan, random, { isolation, label }, log);
        if (code === undefined) break;
        if (!mayFail(plan, code) || attempt === 50) {
          log.refusals.push(`a producer got ${code}`);
          break;
        }
      }
      if (random.chance(0.3)) await delay(random.integer(0, 15));
    }
  } finally {
    client.release();
  }
  return log;
}

function mayFail(plan: Plan, code: string): boolean {
  return code === '40001' || (code === '40P01' && plan.severalBatches);
}

/** One transaction; the SQL state that ended it, if it did not commit or was rolled back on purpose. */
async function transact(
  client: pg.PoolClient,
  plan: Plan,
  random: Random,
  { isolation, label }: { isolation: string; label: string },
  log: ProducerLog,
): Promise<string | undefined> {
  const kept: Batch[] = [];
  const undone: Batch[] = [];
  let made = 0;
  const enqueue = async (into: Batch[]) => {
    const messages = messagesOf(plan, random, () => `${label}-${(made += 1)}`);
    const askedMs = Date.now();
    into.push({ messages, enqueued: await outbox.enqueueMany(client, messages), askedMs });
  };
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
    const commits = !random.chance(plan.rollbackShare);
    await client.query(commits ? 'COMMIT' : 'ROLLBACK');
    record(log, commits ? 'committed' : 'aborted', kept);
    record(log, 'aborted', undone);
    return undefined;
  } catch (error) {
    await client.query('ROLLBACK');
    record(log, 'aborted', [...kept, ...undone]);
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
    const delayMs = random.chance(plan.delayShare) ? random.integer(1, 400) : 0;
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

function record(log: ProducerLog, outcome: Produced['outcome'], batches: Batch[]): void {
  const committedMs = Date.now();
  for (const { messages, enqueued, askedMs } of batches) {
    messages.forEach((message, index) => {
      const answer = enqueued[index];
      if (answer === undefined) return;
      const { topic, key, tenantId, dedupeKey } = message;
      log.produced.push({
        label: (message.payload as { label: string }).label,
        outcome,
        id: answer.id,
        sequence: answer.sequence === null ? null : Number(answer.sequence),
        duplicate: answer.duplicate,
        topic,
        stream: key === undefined ? null : `${tenantId ?? ''}/${key}`,
        dedupe: dedupeKey === undefined ? null : `${topic} ${dedupeKey}`,
        askedMs,
        committedMs,
      });
    });
  }
}
