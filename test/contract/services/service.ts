// What the contract suite has to know of a real service: how to start it, how to reach it, and how to see, past
// Waybill, what has arrived in it. One file of this folder for each service.

import type { Destination, DestinationSettings } from '../../../src/destinations/destination.js';

export type Address = { readonly host: string; readonly port: number };

/** A service that runs, in a folder and on ports of its own. */
export type RunningService = {
  /** Where it listens itself. */
  readonly address: Address;
  /** Ids of the messages that are in it, in the order of their arrival, read with a client of its own and not through the proxy. */
  received(): Promise<string[]>;
  /** As a crash would: kill -9, nothing is said to anybody. */
  kill(): Promise<void>;
  /** On the same ports, with what it had stored. */
  restart(): Promise<void>;
  stop(): Promise<void>;
};

export type Overrides = DestinationSettings & {
  /** Send to a topic, queue or stream that does not exist. */
  missing?: true;
  /** Send to a place that takes some messages of a batch and refuses those whose topic is `refused.one`. */
  picky?: true;
};

export type ServiceKind = {
  /** The destination's kind: `kafka`. */
  readonly kind: string;
  /** What really runs, for the table: `Apache Kafka, one broker, KRaft`. */
  readonly service: string;
  /** Why it cannot be started on this machine, with what to install; null if it can. */
  unavailable(): string | null;
  /** Starts it. `through` is where clients will reach it: a service that tells clients its own address tells that one. */
  start(through: Address): Promise<RunningService>;
  /** A destination that reaches the service at `through`. */
  make(through: Address, overrides?: Overrides): Destination;
  /** Source text of a module expression that makes such a destination from `address`, the library being `waybill`. */
  source(through: Address): string;
  /** How many bytes of payload the service as started refuses. */
  readonly tooLargeBytes: number;
  /** What is expected of each failure: `retry`, `reject` or `pause`, and Waybill's code for it. */
  readonly expected: {
    readonly missing: { kind: string; code: string };
    readonly oversized: { kind: string; code: string };
    /** A text says why a part of a batch cannot be refused. */
    readonly refusedInBatch: { kind: string; code: string } | string;
  };
};
