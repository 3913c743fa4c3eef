// A settler that nobody listens to, with a database of the test's own.

import type { Database } from '../../src/database/connection.js';
import { Settler } from '../../src/relay/settler.js';

/** Of the database only what the test lets it be asked. */
export function settlerOn(database: object): Settler {
  return new Settler({
    database: database as Database,
    relayId: 'relay',
    destination: 'd',
    destinationId: 1,
    maxAttempts: 3,
    emit: () => {},
    onGivenUp: () => {},
    onSettled: () => {},
  });
}
