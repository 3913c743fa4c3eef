// Alerts: other thresholds for two of them, none for a third, and a webhook that gets the notifications.

import { defineConfig, handler } from 'waybill';

export default defineConfig({
  destinations: {
    welcome: handler((message) => {
      console.log(`welcome ${message.payload.email}`);
    }),
  },
  routes: [{ topic: 'user.*', to: 'welcome' }],
  alerts: {
    thresholds: { waiting: 20_000, average_delivery_seconds: 30, retrying: null },
    webhook: { url: 'https://alerts.example.com/waybill', secrets: process.env.ALERT_SECRET },
  },
});
