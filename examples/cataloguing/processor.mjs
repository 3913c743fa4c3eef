// Processor of the log: keeps the status of every job. Its named cursor keeps the position. A batch that it has not
// finished is delivered again, so its work must be idempotent.

import { subscribe } from 'waybill';

/**
 * Resolves when so many events have been read.
 *
 * @param {import('waybill').DatabaseOptions} database
 * @param {number} count
 */
export async function indexJobs(database, count) {
  const index = { events: 0, jobs: new Map() };
  const { promise, resolve } = deferred();
  const subscription = await subscribe(
    { name: 'job-index', database, topics: ['job.*'], from: 'beginning', batchSize: 100 },
    (messages) => {
      for (const { payload } of messages) {
        if (payload.event === 'deleted') index.jobs.delete(payload.recordId);
        else index.jobs.set(payload.recordId, payload.record.status);
      }
      index.events += messages.length;
      if (index.events >= count) resolve();
    },
  );
  await promise;
  return { index, stop: () => subscription.stop() };
}

function deferred() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}
