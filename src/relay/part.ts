// Relay part: what a feature adds to a run of a relay, besides deliveries. src/features/in-relay.ts lists the parts.

import type { Database } from '../database/connection.js';
import type { Emit } from '../telemetry/events.js';
import type { RelaySetup } from './setup.js';

export type PartContext = {
  setup: RelaySetup;
  relayId: string;
  /** The relay as the actor of what it changes. */
  actor: string;
  database: Database;
  emit: Emit;
};

export type PeriodicTask = {
  /** Names it in events about trouble. */
  what: string;
  /** The pause before each run. */
  everyMs: number | (() => number);
  run: () => Promise<void>;
  /**
   * A drain does not run long enough for the interval. `maintenance`: it runs the task with its maintenance, and fails
   * if the task does. `end`: it runs the task at its end, and only reports a failure. Default: not at all.
   */
  inDrain?: 'maintenance' | 'end';
};

export type RelayPart = {
  /** Stores what the configuration declares: at the start, and again if the relay's declaration has lapsed. Can be repeated. */
  declare?: () => Promise<void>;
  /** Makes the database match the declarations of running relays: every minute, but not in a drain. */
  tend?: () => Promise<void>;
  task?: PeriodicTask;
  /** Called once, before the first run of the task. */
  open?: () => Promise<void>;
  /** The relay stops: end what is in flight. */
  stop?: () => void;
  /** Called after the last run of the task. */
  close?: () => Promise<void>;
};
