// A settler without listeners, on a fake database of the test.

import type { Database } from '../../src/database/connection.js';
import { DeliveredLeases } from '../../src/relay/delivery/delivered-leases.js';
import { Settler } from '../../src/relay/delivery/settler.js';

/** Only the parts of the database that the test provides. */
export function settlerOn(database: object): Settler {
  return new Settler({
    database: database as Database,
    relayId: 'relay',
    destination: 'd',
    destinationId: 1,
    maxAttempts: 3,
    delivered: new DeliveredLeases(database as Database, 'relay'),
    emit: () => {},
    onGivenUp: () => {},
    onSettled: () => {},
  });
}
