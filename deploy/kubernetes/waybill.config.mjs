// The configuration of the fleet: destinations and routes are yours. Addresses of the database are not here; they come
// from secrets, as files.
import { defineConfig, webhook } from 'waybill';

export default defineConfig({
  destinations: {
    crm: webhook({ url: 'https://crm.example.com/hooks/waybill' }),
  },
  routes: [{ topic: 'user.*', to: 'crm' }],
  // probes and Prometheus come from outside of the pod; whoever reads or changes anything needs a token
  server: { host: '0.0.0.0', port: 4980, authentication: 'tokens' },
});
