// A relay that serves the endpoints of customers, and a portal in which they manage them.

import { fileURLToPath } from 'node:url';

import { defineConfig } from 'waybill';

import { events } from './events.js';

export default defineConfig({
  destinations: {},
  routes: [],
  events,
  endpoints: {},
  server: {
    portal: {
      name: 'Acme webhooks',
      logo: fileURLToPath(new URL('logo.svg', import.meta.url)),
      colours: { light: { accent: '#0f766e' }, dark: { accent: '#2dd4bf' } },
      embeddedBy: ['https://app.example.com'],
      topics: ['customer.created', 'order.*'],
    },
  },
});
