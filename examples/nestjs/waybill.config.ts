import { defineConfig, handler } from 'waybill';

export default defineConfig({
  destinations: {
    welcome: handler((message) => {
      const { email } = message.payload as { email: string };
      console.log(`welcome ${email}`);
    }),
  },
  routes: [{ topic: 'user.*', to: 'welcome' }],
});
