// pg-boss with its own worker and wake-up notifications: `work()` on a queue with `notify`, in an instance with
// `useListenNotify`. Notifications cannot wake the loops of pg-boss.mjs, so this is a contender of its own.

import { openLoader, openProducer, queue, start } from './pg-boss.mjs';

export { openLoader, openProducer };

/** `localConcurrency` workers; each is woken by every notification. The polls are only a safeguard. */
export const settings = {
  latency: {
    batchSize: 100,
    localConcurrency: 2,
    pollingIntervalSeconds: 0.5,
    notifyPollingIntervalSeconds: 0.5,
    burstWhenBatchFull: true,
  },
};

export async function install(url) {
  const boss = await start(url);
  await boss.createQueue(queue, { notify: true });
  await boss.stop({ graceful: false });
}

export async function work(url, purpose, handle) {
  const boss = await start(url, { useListenNotify: true });
  boss.on('warning', ({ message }) => {
    console.error(message);
    // without its listener it would only poll, and be measured at that
    if (message.includes('LISTEN/NOTIFY')) process.exit(1);
  });
  await boss.work(queue, settings[purpose], (jobs) => {
    for (const job of jobs) handle(job.id, job.data);
    return Promise.resolve();
  });
}
