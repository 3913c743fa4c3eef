// The relay of the endpoints bench: it serves endpoints with defaults, except for the networks.

import { defineConfig } from '../../dist/index.js';

export default defineConfig({
  destinations: {},
  routes: [],
  endpoints: { allowedNetworks: ['127.0.0.0/8'] },
});
