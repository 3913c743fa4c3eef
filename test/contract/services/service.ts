// What the contract suite needs from a real service: how to start it, how to reach it, and how to read, without
// Waybill, what has arrived. There is one file for each service in this folder.

import type { Destination, DestinationSettings } from '../../../src/destinations/destination.js';

export type Address = { readonly host: string; readonly port: number };

/** A running service with its own folder and ports. */
export type RunningService = {
  /** Its own address, without the proxy. */
  readonly address: Address;
  /** Ids of the stored messages in order of arrival, read with its own client and not through the proxy. */
  received(): Promise<string[]>;
  /** Crashes it: kill -9, without a goodbye to any client. */
  kill(): Promise<void>;
  /** Restarts it on the same ports, with what it had stored. */
  restart(): Promise<void>;
  stop(): Promise<void>;
};

export type Overrides = DestinationSettings & {
  /** Sends to a topic, queue or stream that does not exist. */
  missing?: true;
  /** Sends to a place that accepts a batch except for messages with the topic `refused.one`. */
  picky?: true;
};

export type ServiceKind = {
  /** The kind of the destination: `kafka`. */
  readonly kind: string;
  /** What really runs, for the table: `Apache Kafka, one broker, KRaft`. */
  readonly service: string;
  /** The reason why it cannot run on this machine, with what to install; null if it can. */
  unavailable(): string | null;
  /** Starts it. `through` is the address of the proxy, for services that tell clients their own address. */
  start(through: Address): Promise<RunningService>;
  /** A destination that reaches the service at `through`. */
  make(through: Address, overrides?: Overrides): Destination;
  /** Source text of a module expression that makes such a destination from `address`, the library being `waybill`. */
  source(through: Address): string;
  /** A payload size in bytes that the service refuses. */
  readonly tooLargeBytes: number;
  /** The expected outcome of each failure: `retry`, `reject` or `pause`, with Waybill's code. */
  readonly expected: {
    readonly missing: { kind: string; code: string };
    readonly oversized: { kind: string; code: string };
    /** A text gives the reason why part of a batch cannot be refused. */
    readonly refusedInBatch: { kind: string; code: string } | string;
  };
};
