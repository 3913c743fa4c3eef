// Processor of the log: keeps the status of every job. It may be a function that lives for seconds: it reads on from its
// named cursor until it has caught up, and ends. A batch that it has not finished is delivered again, so its work must
// be idempotent.

import { drainSubscription } from 'waybill';

/** @param {import('waybill').DatabaseOptions} database */
export async function indexJobs(database) {
  const index = { events: 0, jobs: new Map() };
  const report = await drainSubscription(
    { name: 'job-index', database, topics: ['job.*'], from: 'beginning', batchSize: 100 },
    (messages) => {
      for (const { payload } of messages) {
        if (payload.event === 'deleted') index.jobs.delete(payload.recordId);
        else index.jobs.set(payload.recordId, payload.record.status);
      }
      index.events += messages.length;
    },
    { maxMs: 25_000 },
  );
  return { index, report };
}
