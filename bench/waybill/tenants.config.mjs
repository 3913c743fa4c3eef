// The relay of the tenants bench: it serves endpoints, with defaults except for their number and the networks.

import { defineConfig } from '../../dist/index.js';

export default defineConfig({
  destinations: {},
  routes: [],
  endpoints: { allowedNetworks: ['127.0.0.0/8'], maxPerTenant: 1000 },
});
