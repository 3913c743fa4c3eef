// pg-boss, configured for speed: loops that fetch a batch and complete it with one call. For each purpose, the
// fastest of the settings tried (see docs/internals/benchmarks.md).

import { setTimeout as delay } from 'node:timers/promises';

import { PgBoss } from 'pg-boss';

export const queue = 'sink';

export const settings = {
  drain: { loops: 2, batchSize: 2000, pollMs: 10 },
  keyed: { loops: 2, batchSize: 2000, pollMs: 10 },
  latency: { loops: 4, batchSize: 500, pollMs: 10 },
};

export async function start(url, options = {}) {
  const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false, ...options });
  boss.on('error', (error) => console.error(error));
  await boss.start();
  return boss;
}

export async function install(url, keyed) {
  const boss = await start(url);
  await boss.createQueue(queue, keyed ? { policy: 'key_strict_fifo' } : {});
  await boss.stop({ graceful: false });
}

export async function openLoader(url) {
  const boss = await start(url);
  return {
    load: (payloads, keyOf) =>
      boss.insert(
        queue,
        payloads.map((data) => ({ data, singletonKey: keyOf?.(data) })),
      ),
    close: () => boss.stop({ graceful: false }),
  };
}

export async function openProducer(url) {
  const boss = await start(url);
  return {
    async enqueue(client, payloads) {
      const db = { executeSql: (text, values) => client.query(text, values) };
      if (payloads.length === 1) await boss.send(queue, payloads[0], { db });
      else
        await boss.insert(
          queue,
          payloads.map((data) => ({ data })),
          { db },
        );
    },
    close: () => boss.stop({ graceful: false }),
  };
}

export async function work(url, purpose, handle) {
  const boss = await start(url);
  const { loops, batchSize, pollMs } = settings[purpose];
  const loop = async () => {
    for (;;) {
      const jobs = await boss.fetch(queue, { batchSize });
      if (jobs.length === 0) {
        await delay(pollMs);
        continue;
      }
      for (const job of jobs) handle(job.id, job.data);
      await boss.complete(
        queue,
        jobs.map((job) => job.id),
      );
    }
  };
  for (let n = 0; n < loops; n += 1) void loop();
}
