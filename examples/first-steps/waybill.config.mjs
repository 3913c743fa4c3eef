// The smallest configuration: all messages about users go to one function.

import { defineConfig, handler } from 'waybill';

export default defineConfig({
  destinations: {
    welcome: handler((message) => {
      const { email } = message.payload;
      console.log(`welcome ${email}: message ${message.id}, try ${message.tries}`);
    }),
  },
  routes: [{ topic: 'user.*', to: 'welcome' }],
});
