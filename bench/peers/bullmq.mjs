// BullMQ on PostgreSQL, configured for speed: for each purpose, the fastest of the settings tried (see
// docs/internals/benchmarks.md). BullMQ cannot enqueue inside a transaction of the application, so its producer
// commits by itself.

import { createPostgresBackend, Queue, Worker } from 'bullmq';

const queue = 'sink';

export const settings = {
  drain: { concurrency: 50, connections: 25, removeOnComplete: { count: 0 } },
  latency: { concurrency: 50, connections: 25, removeOnComplete: { count: 0 } },
};

function openQueue(url, connection = {}) {
  return new Queue(
    queue,
    { connection: { connectionString: url, ...connection } },
    createPostgresBackend,
  );
}

export async function install(url) {
  const opened = openQueue(url, { migrate: true });
  await opened.waitUntilReady();
  await opened.close();
}

export async function openLoader(url) {
  const opened = openQueue(url);
  await opened.waitUntilReady();
  return {
    load: (payloads) => opened.addBulk(payloads.map((data) => ({ name: 'job', data }))),
    close: () => opened.close(),
  };
}

export async function openProducer(url) {
  const opened = openQueue(url, { max: 32 });
  await opened.waitUntilReady();
  return {
    ownTransaction: true,
    async enqueue(_client, payloads) {
      if (payloads.length === 1) await opened.add('job', payloads[0]);
      else await opened.addBulk(payloads.map((data) => ({ name: 'job', data })));
    },
    close: () => opened.close(),
  };
}

export async function work(url, purpose, handle) {
  const { connections, ...options } = settings[purpose];
  const worker = new Worker(
    queue,
    (job) => {
      handle(job.id, job.data);
      return Promise.resolve();
    },
    { connection: { connectionString: url, max: connections }, ...options },
    createPostgresBackend,
  );
  worker.on('error', (error) => console.error(error));
  await worker.waitUntilReady();
}
