// A relay for typed events: each function gets the type of its event.

import { defineConfig } from 'waybill';

import { events } from './events.js';

export default defineConfig({
  events,
  destinations: {
    welcome: events.handler({
      'user.registered': (message) => {
        console.log(`welcome ${message.payload.email}`);
      },
      'user.registered.v2': (message) => {
        const { contact, registeredAt } = message.payload;
        console.log(`welcome ${contact.email}, registered at ${registeredAt}`);
      },
    }),
  },
  routes: [{ topic: 'user.*', to: 'welcome' }],
});
