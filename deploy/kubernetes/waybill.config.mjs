// Configuration of the fleet. Replace the destinations and routes by yours. The addresses of the database come from
// secrets, as files.
import { defineConfig, webhook } from 'waybill';

export default defineConfig({
  destinations: {
    crm: webhook({ url: 'https://crm.example.com/hooks/waybill' }),
  },
  routes: [{ topic: 'user.*', to: 'crm' }],
  // probes and Prometheus connect from outside the pod; every other request needs a token
  server: { host: '0.0.0.0', port: 4980, authentication: 'tokens' },
});
