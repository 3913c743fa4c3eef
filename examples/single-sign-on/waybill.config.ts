// A relay whose page is behind a proxy that authenticates its users.

import { defineConfig } from 'waybill';

export default defineConfig({
  destinations: {},
  routes: [],
  server: {
    singleSignOn: {
      proxies: ['10.0.0.7'],
      userHeader: 'x-forwarded-email',
      groupsHeader: 'x-forwarded-groups',
      scopes: { '*': 'read', support: 'operate', platform: 'admin' },
    },
  },
});
