// Starts and ends calls, a hundred in flight at a time, as a dispatcher does. Then prints how many full garbage
// collections that took. Usage: node --expose-gc call-much.mjs CALLS.

import { setImmediate as nextTurn } from 'node:timers/promises';

import { Call } from '../../dist/relay/delivery/call.js';
import { InFlightCalls } from '../../dist/relay/delivery/in-flight-calls.js';
import { countCleanings } from './cleanings.mjs';

const inFlight = new InFlightCalls();

/** @param {number} calls */
async function make(calls) {
  for (let index = 0; index < calls; index += 1) {
    const messages = Array.from({ length: 100 }, (_, place) => ({ index, place }));
    inFlight.add(new Call('lease', messages));
    if (inFlight.size > 100) inFlight.remove(inFlight.first);
    // as between two responses
    if (index % 1000 === 0) await nextTurn();
  }
}

await make(1000);
// promotes the objects to the old generation now: if a chain of kept calls exists, it begins here and not at a random
// later time
globalThis.gc();
await nextTurn();
const cleanings = countCleanings();
await make(Number(process.argv[2]));
process.stdout.write(String(await cleanings()));
