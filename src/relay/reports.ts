// Reports: passes a relay's events to `onEvent`, whose errors cannot stop the relay. Counts outcomes on the way, for
// the statistics in the database and for the report of a drain.

import { errorText } from '../core/errors.js';
import type { Emit, RelayEvent } from '../telemetry/events.js';
import { addDrained, noneDrained } from './drains.js';
import type { Drained } from './drains.js';
import type { Pipeline } from './delivery/pipeline.js';
import { Counters } from './upkeep/counters.js';

export type ReportsOptions = {
  onEvent: Emit | undefined;
  pipeline: (name: string) => Pipeline | undefined;
  /** A breaker has opened or closed. */
  onBreaker: () => void;
};

export class Reports {
  readonly counters = new Counters();
  readonly #options: ReportsOptions;
  readonly #drained: Drained = { ...noneDrained };

  constructor(options: ReportsOptions) {
    this.#options = options;
  }

  /** Outcomes since the start. */
  get drained(): Drained {
    return { ...this.#drained };
  }

  readonly emit: Emit = (event) => {
    const { onEvent, onBreaker } = this.#options;
    if (event.name === 'settled') this.#count(event);
    if (event.name === 'breaker_opened' || event.name === 'breaker_closed') onBreaker();
    try {
      onEvent?.(event);
    } catch (error) {
      process.emitWarning(`onEvent failed: ${errorText(error)}`, 'WaybillWarning');
    }
  };

  #count(event: Extract<RelayEvent, { name: 'settled' }>): void {
    const pipeline = this.#options.pipeline(event.destination);
    if (pipeline) this.counters.add(pipeline.destinationId, event);
    addDrained(this.#drained, event.counts);
  }
}
