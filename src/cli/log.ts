// Structured logs on stderr: one line of JSON per event of the catalogue. A repeated warning is logged at most once a
// second, and the next line has the number of events (`times`), so that an outage does not fill a disk. Long fields are
// cut.

import { pino } from 'pino';
import type { DestinationStream, Logger } from 'pino';

import { visible } from '../core/visible-text.js';
import { eventLevel } from '../features/event-level.js';
import type { RelayEvent } from '../telemetry/events.js';

type Details = Record<string, unknown>;
/** Repeated events of one problem within a second: the latest event, and their number. */
type Burst = { name: string; latest: Details; times: number; timer: NodeJS.Timeout };

const burstMs = 1000;
const mostItems = 10;
const mostCharacters = 500;

export class EventLog {
  readonly #log: Logger;
  readonly #bursts = new Map<string, Burst>();

  constructor(
    level: 'debug' | 'info' | 'warn',
    stream: DestinationStream = pino.destination({ fd: 2, sync: true }),
  ) {
    this.#log = pino(
      { level: process.env['WAYBILL_LOG_LEVEL'] ?? level, base: null },
      // JSON does not escape characters that change the direction of text in a terminal
      { write: (line) => stream.write(visible(line)) },
    );
  }

  write(event: RelayEvent, shard?: string): void {
    const { name, ...rest } =
      event.name === 'settled' ? { ...event, latenciesMs: undefined } : event;
    const details: Details = shard === undefined ? rest : { shard, ...rest };
    const level = eventLevel(event);
    if (level !== 'warn') {
      if (this.#log.isLevelEnabled(level)) this.#log[level](shortened(details), name);
      return;
    }
    const problem = problemOf(name, details);
    const burst = this.#bursts.get(problem);
    if (burst !== undefined) {
      burst.times += 1;
      burst.latest = details;
      return;
    }
    this.#log.warn(shortened(details), name);
    this.#wait(problem, name);
  }

  /** Logs suppressed events at the end of the process. */
  flush(): void {
    for (const problem of this.#bursts.keys()) this.#end(problem);
  }

  #wait(problem: string, name: string): void {
    const timer = setTimeout(() => {
      if (this.#end(problem)) this.#wait(problem, name);
    }, burstMs);
    // must not keep the process alive: the exit handler flushes
    timer.unref();
    this.#bursts.set(problem, { name, latest: {}, times: 0, timer });
  }

  /** Returns true if events were suppressed. */
  #end(problem: string): boolean {
    const burst = this.#bursts.get(problem);
    this.#bursts.delete(problem);
    clearTimeout(burst?.timer);
    if (burst === undefined || burst.times === 0) return false;
    this.#log.warn({ ...shortened(burst.latest), times: burst.times }, burst.name);
    return true;
  }
}

/** Logs to stderr until the process ends. */
export function openLog(level: 'debug' | 'info' | 'warn'): EventLog {
  const log = new EventLog(level);
  process.once('exit', () => log.flush());
  return log;
}

/** Identifies a problem: where it occurs, and the code of the error, or its text if it has no code. */
function problemOf(name: string, details: Details): string {
  const { shard, destination, cursor, alert, outcome, failure } = details;
  const { code }: Details = { ...(outcome as Details), ...(failure as Details), ...details };
  const what = code ?? details['error'] ?? details['reason'] ?? details['problem'];
  return JSON.stringify([name, shard, destination, cursor, alert, what]);
}

/** Cuts lists after ten items, with their number beside them, and texts after 500 characters. */
function shortened(details: Details): Details {
  return Object.fromEntries(
    Object.entries(details).flatMap(([key, value]): [string, unknown][] => {
      if (Array.isArray(value) && value.length > mostItems)
        return [
          [key, value.slice(0, mostItems)],
          [`${key}Total`, value.length],
        ];
      if (typeof value === 'string' && value.length > mostCharacters)
        return [[key, `${value.slice(0, mostCharacters)}… (${value.length} characters)`]];
      return [[key, isPlain(value) ? shortened(value) : value]];
    }),
  );
}

function isPlain(value: unknown): value is Details {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
