// How the database stands, as the metrics tell it.

/** Instead of the names of endpoints of the database: no destination can have it for a name. */
export const endpointsLabel = '(endpoints)';

export type Gauges = {
  destinations: {
    /** Of a destination, or `endpointsLabel`. */
    name: string;
    pending: number;
    retrying: number;
    /** Of those that are not paused; null if nothing waits. */
    oldestPendingSeconds: number | null;
    dead: number;
    stuck: number;
    /** Of what is pending: at destinations that are paused. */
    paused: number;
    /** Behind a breaker that is not closed. */
    breakerOpen: number;
    /** Due for more than a minute where no living relay serves. */
    unserved: number;
  }[];
  /** Over the last 5 minutes; null if nothing was delivered. */
  averageDeliverySeconds: number | null;
  partitionsAhead: number;
  /** Of this process, if it has one. */
  replica?: { usable: boolean; lagSeconds: number | null; fallbacks: number };
};
