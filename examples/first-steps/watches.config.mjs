// A watch: changes of a table become messages, without changes in the application.

import { defineConfig, handler } from 'waybill';

export default defineConfig({
  watches: [
    {
      table: 'public.cataloguing_jobs',
      topic: 'job',
      key: 'job_id',
      tenant: 'organization_id',
      columns: ['status', 'job_id'],
      when: ['status'],
      changed: 'status_changed',
    },
  ],
  destinations: {
    progress: handler((message) => {
      const { event, recordId, record } = message.payload;
      console.log(`${event}: job ${recordId} of ${message.tenantId} is ${record.status}`);
    }),
  },
  routes: [{ topic: 'job.*', to: 'progress' }],
});
