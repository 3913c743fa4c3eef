// DBOS Transact, configured for speed: a queue of workflows without steps, the fastest of the settings tried (see
// docs/internals/benchmarks.md). It has no bulk enqueue; a batch is loaded in one transaction.

import { DBOS, DBOSClient } from '@dbos-inc/dbos-sdk';
import pg from 'pg';

const queue = 'sink';
const workflow = 'handle';
const application = 'bench';

export const settings = {
  drain: { workerConcurrency: 1000, minPollingIntervalMs: 10, systemDatabasePoolSize: 50 },
};

async function launch(url, { systemDatabasePoolSize, ...limits } = {}) {
  DBOS.setConfig({
    name: application,
    systemDatabaseUrl: url,
    logLevel: 'error',
    ...(systemDatabasePoolSize && { systemDatabasePoolSize }),
  });
  await DBOS.launch();
  await DBOS.registerQueue(queue, { ...limits, onConflict: 'always_update' });
}

export async function install(url) {
  await launch(url);
  await DBOS.shutdown();
}

export async function openLoader(url) {
  const dbos = await DBOSClient.create({ systemDatabaseUrl: url, applicationName: application });
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  return {
    async load(payloads) {
      await client.query('BEGIN');
      for (const payload of payloads)
        await dbos.enqueueInTransaction(
          client,
          { queueName: queue, workflowName: workflow },
          payload,
        );
      await client.query('COMMIT');
    },
    async close() {
      await client.end();
      await dbos.destroy();
    },
  };
}

export async function work(url, purpose, handle) {
  DBOS.registerWorkflow(
    (payload) => {
      handle(DBOS.workflowID, payload);
      return Promise.resolve();
    },
    { name: workflow },
  );
  await launch(url, settings[purpose]);
}
