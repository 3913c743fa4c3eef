// Feature descriptor: what a feature adds to the command line, to the HTTP API, to the doctor and to the references.
// Every part is loaded when it is needed, so a descriptor costs nothing. all.ts lists the descriptors. What a feature
// adds to a relay is in in-relay.ts.

import type { Command } from 'commander';

import type { Config } from '../config.js';
import type { Database } from '../database/connection.js';
import type { Check } from '../doctor/check.js';
import type { Background } from '../server/background.js';
import type { Route } from '../server/route.js';
import type { Emit, FeatureEvents } from '../telemetry/events.js';

export type Feature = {
  /** Commands by name. */
  commands?: Record<string, () => Promise<Command>>;
  /** Routes of the API, or a function that makes them from the place of background runs and the configuration. */
  routes?: () => Promise<
    readonly Route[] | ((background: Background, config: Partial<Config>) => readonly Route[])
  >;
  /** Checks of `waybill doctor`. */
  checks?: () => Promise<readonly Check[]>;
  /** A part of `waybill status`. */
  status?: () => Promise<StatusPart>;
  /** A part of `waybill maintain`. */
  maintenance?: () => Promise<MaintenancePart>;
  /** Tools of `waybill mcp`. */
  tools?: () => Promise<(context: ToolContext) => readonly Tool[]>;
  /** Its events: the level at which they are logged, and what they mean. Their fields are in `FeatureEvents`. */
  events?: { [Name in keyof FeatureEvents]?: EventDescription };
  /** The section of its routes in the reference of the API. */
  section?: string;
  /** Its tables of options in the reference, by name. */
  options?: () => Promise<Record<string, OptionTable>>;
  /** Its tables in the references that are read from a migrated database, by name: the head, and a query for the lines. */
  queried?: Record<string, { head: readonly string[]; sql: string }>;
  /** SQL functions that callers use, by their group in the SQL reference. The others are internal. */
  functions?: Record<string, readonly string[]>;
};

/** A table of options: scripts/docs-options.mjs makes it by asking `resolve`. */
export type OptionTable = {
  /** The file of `src` and its type, whose comments are the meanings. */
  file: string;
  type: string;
  /** Checks options, and returns them with their defaults. Missing for a type that adds options to another table. */
  resolve?: (options: object) => object;
  /** Options that are always needed. */
  base?: object;
  /** Options that are described elsewhere. */
  without?: readonly string[];
  words?: Record<string, { meaning?: string; fallback?: string; allowed?: string }>;
};

export type EventDescription = { level: 'debug' | 'info' | 'warn'; means: string };

export type StatusPart = {
  /** The key of its rows in the JSON. */
  name: string;
  read(database: Database): Promise<readonly object[]>;
  /** A warning about a row; null if there is nothing to say. */
  warning(row: object): string | null;
};

/** A tool of `waybill mcp`. */
export type Tool = {
  name: string;
  description: string;
  /** True: it changes something. */
  changes: boolean;
  /** JSON Schema of its arguments. */
  inputSchema: object;
  run(values: Record<string, unknown>): Promise<unknown>;
};

export type ToolContext = {
  inDatabase: <T>(work: (database: Database) => Promise<T>) => Promise<T>;
  /** Recorded with every change. */
  actor: string;
};

export type MaintenancePart = {
  /** The key of its result in the JSON. */
  name: string;
  /** Null: there was nothing to do. */
  run(context: { database: Database; config: Config | undefined; emit: Emit }): Promise<unknown>;
  shown(result: unknown): string;
};
