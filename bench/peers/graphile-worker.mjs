// graphile-worker, configured for speed: for each purpose, the fastest of the settings tried (see
// docs/internals/benchmarks.md).

import { Logger, makeWorkerUtils, run } from 'graphile-worker';

const task = 'sink';
const silent = new Logger(() => () => {});

export const settings = {
  drain: {
    concurrentJobs: 100,
    maxPoolSize: 25,
    localQueue: { size: 2000 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
  keyed: {
    concurrentJobs: 100,
    maxPoolSize: 25,
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
  latency: {
    concurrentJobs: 100,
    maxPoolSize: 25,
    localQueue: { size: 100 },
    completeJobBatchDelay: 5,
    failJobBatchDelay: 5,
  },
};

export async function install(url) {
  const utils = await makeWorkerUtils({ connectionString: url, logger: silent });
  await utils.migrate();
  await utils.release();
}

export async function openLoader(url) {
  const utils = await makeWorkerUtils({ connectionString: url, logger: silent });
  return {
    // one queue per key, whose jobs run one after the other
    load: (payloads, keyOf) =>
      utils.addJobs(
        payloads.map((payload) => ({ identifier: task, payload, queueName: keyOf?.(payload) })),
      ),
    close: () => utils.release(),
  };
}

export function openProducer() {
  return {
    async enqueue(client, payloads) {
      if (payloads.length === 1) {
        await client.query('SELECT graphile_worker.add_job($1, $2::json)', [
          task,
          JSON.stringify(payloads[0]),
        ]);
      } else {
        const specs = payloads.map((payload) => ({ identifier: task, payload }));
        await client.query(
          `SELECT count(*) FROM graphile_worker.add_jobs(ARRAY (
             SELECT json_populate_recordset(NULL::graphile_worker.job_spec, $1::json)))`,
          [JSON.stringify(specs)],
        );
      }
    },
    close() {},
  };
}

export async function work(url, purpose, handle) {
  await run({
    preset: { worker: { connectionString: url, logger: silent, ...settings[purpose] } },
    noHandleSignals: true,
    taskList: {
      [task]: (payload, { job }) => {
        handle(job.id, payload);
      },
    },
  });
}
