// The relay of the isolation bench: three webhooks, one of them healthy.

import { defineConfig, webhook } from '../../dist/index.js';

const concurrency = Number(process.env.BENCH_CONNECTIONS);
const names = ['fine', 'failing', 'hanging'];

export default defineConfig({
  destinations: Object.fromEntries(
    names.map((name) => [
      name,
      webhook({
        allowedNetworks: ['127.0.0.0/8'],
        url: `${process.env.BENCH_URL}/${name}`,
        concurrency,
        breaker: process.env.BENCH_BREAKERS ? {} : undefined,
      }),
    ]),
  ),
  routes: names.map((name) => ({ topic: name, to: name })),
});
