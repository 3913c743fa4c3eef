// Feature descriptor: what a feature adds to the command line, to the HTTP API and to the doctor. Every part is loaded
// when it is needed, so a descriptor costs nothing. all.ts lists the descriptors.

import type { Command } from 'commander';

import type { Check } from '../doctor/check.js';
import type { Background } from '../server/background.js';
import type { Route } from '../server/route.js';

export type Feature = {
  /** Commands by name. */
  commands?: Record<string, () => Promise<Command>>;
  /** Routes of the API. Those that start background runs get the place where they run. */
  routes?: () => Promise<readonly Route[] | ((background: Background) => readonly Route[])>;
  /** Checks of `waybill doctor`. */
  checks?: () => Promise<readonly Check[]>;
};
