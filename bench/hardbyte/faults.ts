// What a phase does to the system while the adapters work. Each returns what ends it.

import { writeFileSync } from 'node:fs';

import type pg from 'pg';

import type { PostgresServer } from '../../src/dev/embedded-postgres.js';
import { pause } from '../harness/rounds.js';
import { connect } from '../harness/server.js';
import type { Cell, Phase, PhaseKind } from './cells.js';
import type { Replicas } from './replicas.js';

export type Scene = {
  server: PostgresServer;
  url: string;
  cell: Cell;
  replicas: Replicas;
  /** The file from which the adapters read their rate. */
  rateFile: string;
};

type End = () => Promise<void> | void;
type Begin = (scene: Scene, phase: Phase) => Promise<End> | End;

const nothing: End = () => {};
const highLoad = 1.5;
const readers = 4;
const idleConnections = 300;
const killsPerSecond = 2;
const killEverySeconds = 20;

const faults: Partial<Record<PhaseKind, Begin>> = {
  'high-load': ({ cell, rateFile }) => {
    writeFileSync(rateFile, String(cell.rate * highLoad));
    return () => writeFileSync(rateFile, String(cell.rate));
  },
  'idle-in-tx': async ({ url }) => {
    const client = await connect(url);
    await client.query('BEGIN; SELECT txid_current()');
    return async () => client.end();
  },
  'active-readers': ({ url }) => repeat(readers, async (ended) => readInOneSnapshot(url, ended)),
  'kill-worker': async ({ replicas }) => {
    await replicas.kill(0);
    return nothing;
  },
  'start-worker': async ({ replicas }) => {
    await replicas.start(0);
    return nothing;
  },
  'repeated-kill': ({ replicas }, { seconds }) => {
    const everyMs = Math.min(killEverySeconds, seconds / 3) * 1000;
    const end = repeat(1, async (ended) => {
      while (!(await ended(everyMs))) {
        await replicas.kill(0);
        await ended(1000);
        await replicas.start(0);
      }
    });
    return async () => {
      await end();
      await replicas.start(0);
    };
  },
  // away for the first half
  'postgres-restart': ({ server }, { seconds }) =>
    repeat(1, async (ended) => {
      await server.stop('fast');
      await ended(seconds * 500);
      await server.restart();
    }),
  'pg-backend-kill': ({ server, url }) =>
    repeat(1, async (ended) => {
      const admin = await connect(server.url);
      while (!(await ended(1000 / killsPerSecond)))
        await admin.query(
          `SELECT pg_terminate_backend(pid)
             FROM pg_stat_activity
            WHERE datname = $1
              AND pid <> pg_backend_pid()
              AND state IN ('active', 'idle in transaction')`,
          [new URL(url).pathname.slice(1)],
        );
      await admin.end();
    }),
  'pool-exhaustion': async ({ url }) => {
    const held: pg.Client[] = [];
    for (let n = 0; n < idleConnections; n += 1) held.push(await connect(url));
    return async () => {
      await Promise.all(held.map(async (client) => client.end()));
    };
  },
};

/** One transaction scans the hot table again and again, so its snapshot stays the same. */
async function readInOneSnapshot(url: string, ended: Ended): Promise<void> {
  const client = await connect(url);
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
  while (!(await ended(100))) await client.query('SELECT count(*) FROM outbox.deliveries');
  await client.end();
}

/** Whether the phase has ended; waits for that at most so long. */
type Ended = (waitMs: number) => Promise<boolean>;

/** Runs tasks beside the phase; the returned function ends them and throws what went wrong in them. */
function repeat(count: number, task: (ended: Ended) => Promise<void>): End {
  let isEnded = false;
  let announce = (): void => {};
  const end = new Promise<void>((resolve) => (announce = resolve));
  const ended: Ended = async (waitMs) => {
    await Promise.race([end, pause(waitMs)]);
    return isEnded;
  };
  const tasks = Promise.allSettled(Array.from({ length: count }, async () => task(ended)));
  return async () => {
    isEnded = true;
    announce();
    for (const result of await tasks) if (result.status === 'rejected') throw result.reason;
  };
}

/** Runs one phase to its end. */
export async function runPhase(scene: Scene, phase: Phase): Promise<void> {
  scene.replicas.phase = phase.label;
  const end = (await faults[phase.kind]?.(scene, phase)) ?? nothing;
  try {
    await pause(phase.seconds * 1000);
  } finally {
    await end();
  }
}
