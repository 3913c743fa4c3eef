// Installs a contender's schema in a fresh database and preloads messages: prepare.mjs MODULE COUNT BYTES.

import { payloadOf } from './payload.mjs';

const [module, count, bytes] = process.argv.slice(2);
const contender = await import(`../${module}`);
const url = process.env.DATABASE_URL;
const batchSize = 1000;

await contender.install(url);
const loader = await contender.openLoader(url);
for (let first = 0; first < Number(count); first += batchSize) {
  const size = Math.min(batchSize, Number(count) - first);
  await loader.load(
    Array.from({ length: size }, (_, index) => payloadOf(first + index, Number(bytes))),
  );
}
await loader.close();
process.send({ type: 'done' });
process.disconnect();
