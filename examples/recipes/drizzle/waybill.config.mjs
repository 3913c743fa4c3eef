// What the relay does with the messages: it welcomes each new user, once, in a transaction of Drizzle.

import { createInbox, defineConfig, handler } from 'waybill';

import { db, welcomes } from './database.mjs';

const inbox = createInbox();

async function welcome(message) {
  const { email } = message.payload;
  await db.transaction((tx) =>
    inbox.process(tx, { consumer: 'welcomes', message }, () =>
      tx.insert(welcomes).values({ email }),
    ),
  );
  console.log(`welcome ${email}`);
}

export default defineConfig({
  destinations: { welcome: handler(welcome) },
  routes: [{ topic: 'user.*', to: 'welcome' }],
});
