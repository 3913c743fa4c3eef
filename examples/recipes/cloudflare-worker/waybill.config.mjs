// What the relay does with the messages: it welcomes each new user.

import { defineConfig, handler } from 'waybill';

export default defineConfig({
  destinations: {
    welcome: handler((message) => console.log(`welcome ${message.payload.email}`)),
  },
  routes: [{ topic: 'user.*', to: 'welcome' }],
});
