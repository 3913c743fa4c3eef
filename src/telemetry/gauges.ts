// Gauges: the state of the database as /metrics reports it.

/** The label of all endpoints. No destination can have this name. */
export const endpointsLabel = '(endpoints)';

export type Gauges = {
  destinations: {
    /** The name of a destination, or `endpointsLabel`. */
    name: string;
    pending: number;
    retrying: number;
    /** At destinations that are not paused; null if nothing is due. */
    oldestPendingSeconds: number | null;
    dead: number;
    stuck: number;
    /** Misdated deliveries and keys. */
    misdated: number;
    /** Pending deliveries at paused destinations. */
    paused: number;
    /** Pending deliveries at destinations with an open or half-open breaker. */
    breakerOpen: number;
    /**
     * Pending deliveries at destinations without a living relay, where the oldest has been due for more than a
     * minute.
     */
    unserved: number;
    /** Of the deliveries that ended in the last 5 minutes, the share that was delivered; null if none ended. */
    deliveryRate: number | null;
    /** Of the tries of the last 5 minutes, the share that succeeded; null if there were none. */
    successRate: number | null;
  }[];
  /** Over the last 5 minutes; null if nothing was delivered. */
  averageDeliverySeconds: number | null;
  partitionsAhead: number;
  /** Messages without a route, up to 10,000. */
  unrouted: number;
  /** Cursors that have unread messages of more than 15 minutes ago, and have not moved since. */
  stalledCursors: number;
  /** The replica of this process, if it has one. */
  replica?: { usable: boolean; lagSeconds: number | null; fallbacks: number };
};
