// Where the events of a relay go: to whoever listens, who cannot stop it by failing. On the way it is counted what was
// done: for the statistics in the database, and for the report of a drain.

import { errorText } from '../errors.js';
import type { Emit, RelayEvent } from '../telemetry/events.js';
import { noneDrained } from './drains.js';
import type { Drained } from './drains.js';
import type { Pipeline } from './pipeline.js';
import { Tally } from './tally.js';

export type ReportsOptions = {
  onEvent: Emit | undefined;
  pipelines: () => readonly Pipeline[];
  /** A breaker has opened or closed. */
  onBreaker: () => void;
};

export class Reports {
  readonly tally = new Tally();
  readonly #options: ReportsOptions;
  readonly #drained: Drained = { ...noneDrained };

  constructor(options: ReportsOptions) {
    this.#options = options;
  }

  /** What was done since the start. */
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
    const pipeline = this.#options.pipelines().find(({ name }) => name === event.destination);
    if (pipeline) this.tally.add(pipeline.destinationId, event);
    for (const kind of ['delivered', 'retry', 'reject', 'pause', 'release'] as const)
      this.#drained[kind] += event.counts[kind];
  }
}
