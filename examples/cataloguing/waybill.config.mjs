// The configuration of the cataloguing service: one destination, the alerts and the retention. The database is that of
// DATABASE_URL, with the login cataloguing_service.

import { defineConfig, handler, reject } from 'waybill';

export default defineConfig({
  destinations: {
    // stands for the message to the users of an organisation
    notifications: handler(({ topic, aggregateId }) => {
      if (topic === 'job.deleted')
        return reject({ code: 'no_recipient', message: `job ${aggregateId} is gone` });
    }),
  },
  routes: [{ topic: 'job.*', to: 'notifications' }],
  // unprocessed events, their average time, and events that wait for another try
  alerts: { thresholds: { waiting: 1000, average_delivery_seconds: 5, retrying: 100 } },
  retention: { messagesDays: 3, attemptsDays: 3, batchSize: 1000, pauseMs: 100 },
});
