// Delivers what is due, as a scheduler's request would.

import { createDrainHandler, defineConfig, handler } from 'waybill';

const token = '0123456789abcdef0123456789abcdef';

const config = defineConfig({
  destinations: { print: handler(({ payload }) => console.log(`delivered ${payload.n}`)) },
  routes: [{ topic: 'bundled.*', to: 'print' }],
});

async function main() {
  const drain = createDrainHandler({ config, token, maxMs: 10_000 });
  const headers = { authorization: `Bearer ${token}` };
  const response = await drain(new Request('http://127.0.0.1/drain', { method: 'POST', headers }));
  console.log(response.status);
  process.exit();
}

void main();
