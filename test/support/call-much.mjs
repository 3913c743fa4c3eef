// Begins calls and ends them, a hundred under way at a time, as a dispatcher does; then says how often all of memory
// had to be cleaned for that: node --expose-gc call-much.mjs CALLS.

import { setImmediate as nextTurn } from 'node:timers/promises';

import { Call } from '../../dist/relay/call.js';
import { UnderWay } from '../../dist/relay/under-way.js';
import { countCleanings } from './cleanings.mjs';

const underWay = new UnderWay();

/** @param {number} calls */
async function make(calls) {
  for (let index = 0; index < calls; index += 1) {
    const messages = Array.from({ length: 100 }, (_, place) => ({ index, place }));
    underWay.add(new Call('lease', messages));
    if (underWay.size > 100) underWay.remove(underWay.first);
    // as between two answers
    if (index % 1000 === 0) await nextTurn();
  }
}

await make(1000);
// what is there now becomes old: with it a chain begins, if there is one, and not by chance some time later
globalThis.gc();
await nextTurn();
const cleanings = countCleanings();
await make(Number(process.argv[2]));
process.stdout.write(String(await cleanings()));
