// Structured logs on stderr: one line of JSON per event of the catalogue.

import { pino } from 'pino';
import type { Logger } from 'pino';

import { eventLevel } from '../telemetry/events.js';
import type { RelayEvent } from '../telemetry/events.js';

export function createLog(level: 'debug' | 'info' | 'warn'): Logger {
  return pino(
    { level: process.env['WAYBILL_LOG_LEVEL'] ?? level, base: null },
    pino.destination(2),
  );
}

export function logEvent(log: Logger, event: RelayEvent, shard?: string): void {
  const { name, ...details } =
    event.name === 'settled' ? { ...event, latenciesMs: undefined } : event;
  log[eventLevel(event)](shard === undefined ? details : { shard, ...details }, name);
}
