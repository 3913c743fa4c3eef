// Migrates the database, then runs a relay until its first delivery.

import { createRelay, defineConfig, handler, migrateUp } from 'waybill';

async function main() {
  await migrateUp({ url: process.env.DATABASE_URL });
  const relay = createRelay(
    defineConfig({
      destinations: {
        print: handler(({ payload }) => {
          console.log(`delivered ${payload.n}`);
          setTimeout(() => void relay.stop(), 100);
        }),
      },
      routes: [{ topic: 'bundled.*', to: 'print' }],
    }),
  );
  await relay.start();
  console.log('started');
}

void main();
