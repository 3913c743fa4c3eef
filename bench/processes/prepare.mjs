// Installs a contender's schema in a fresh database and preloads messages, which use the given number of ordering
// keys in turn: prepare.mjs MODULE COUNT BYTES KEYS.

import { payloadOf } from './payload.mjs';

const [module, count, bytes, keys = '0'] = process.argv.slice(2);
const contender = await import(`../${module}`);
const url = process.env.DATABASE_URL;
const batchSize = 1000;

const keyOf = Number(keys) > 0 ? (payload) => `key ${payload.n % Number(keys)}` : undefined;

await contender.install(url, keyOf !== undefined);
const loader = await contender.openLoader(url);
for (let first = 0; first < Number(count); first += batchSize) {
  const size = Math.min(batchSize, Number(count) - first);
  await loader.load(
    Array.from({ length: size }, (_, index) => payloadOf(first + index, Number(bytes))),
    keyOf,
  );
}
await loader.close();
process.send({ type: 'done' });
process.disconnect();
