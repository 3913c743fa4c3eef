// The configuration of docs/start/getting-started.md, step 3.

import { defineConfig, handler } from 'waybill';

export default defineConfig({
  destinations: {
    welcome: handler((message) => {
      const { email } = message.payload as { email: string };
      console.log(`welcome ${email}: message ${message.id}, try ${message.tries}`);
    }),
  },
  routes: [{ topic: 'user.*', to: 'welcome' }],
});
