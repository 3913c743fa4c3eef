// Two databases, and which tenant belongs to which. The producer and the relay both import it, so that they cannot
// differ.

import { defineShards } from 'waybill';

export const shards = defineShards({
  shards: {
    eu: { url: 'postgresql://localhost/app_eu' },
    us: { url: 'postgresql://localhost/app_us' },
  },
  tenants: { acme: 'us' },
  default: 'eu',
});
