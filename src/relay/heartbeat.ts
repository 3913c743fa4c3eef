// The relay's sign of life: it shows itself to the others, with what it serves and how that goes, and learns who else
// there is: how many share a limit, and who runs with another configuration.

import type { Database } from '../database/connection.js';
import { heartbeat, tellLimits } from '../database/definitions.js';
import type { RelayIdentity } from '../database/definitions.js';
import type { Emit } from '../telemetry/events.js';
import type { Pipeline } from './pipeline.js';

export type HeartbeatOptions = {
  database: Database;
  identity: RelayIdentity;
  /** Those of the configuration, and those of the endpoints, which come and go. */
  pipelines: readonly Pipeline[];
  /** What it cannot do at present. */
  problems: () => readonly string[];
  /** Producers believe for a while that somebody listens for them. */
  register: (pipelines: readonly Pipeline[]) => Promise<void>;
  emit: Emit;
};

export class Heartbeat {
  readonly #options: HeartbeatOptions;
  #otherConfigurations = '';
  #serving: Readonly<Record<string, number>> = {};
  #limited: readonly string[] = [];
  #beats = 0;

  constructor(options: HeartbeatOptions) {
    this.#options = options;
  }

  /** Living relays by destination, as of the last one. */
  get serving(): Readonly<Record<string, number>> {
    return this.#serving;
  }

  async beat(): Promise<void> {
    const { database, identity, pipelines, problems, emit } = this.#options;
    const breakers = pipelines.flatMap(({ name, breaker }) =>
      breaker === undefined ? [] : [[name, breaker] as const],
    );
    const { others, serving } = await heartbeat(
      database,
      { ...identity, destinations: this.#served },
      Object.fromEntries(breakers),
      problems(),
    );
    this.#serving = serving;
    for (const pipeline of pipelines) pipeline.share(serving[pipeline.name] ?? 1);
    const seen = others.join(', ');
    if (seen !== this.#otherConfigurations && others.length > 0)
      emit({ name: 'other_configuration', relays: others });
    this.#otherConfigurations = seen;
    this.#beats += 1;
    await this.#register();
    await this.#tellLimits();
  }

  async #tellLimits(): Promise<void> {
    const { database, identity, pipelines } = this.#options;
    const limited = pipelines.filter((pipeline) => pipeline.limited).map(({ name }) => name);
    if (limited.join() === this.#limited.join()) return;
    await tellLimits(database, identity.id, limited);
    this.#limited = limited;
  }

  /** Who only listens is believed for longer. */
  async #register(): Promise<void> {
    const { pipelines, register } = this.#options;
    const all = this.#beats % 2 === 1;
    await register(pipelines.filter(({ sleeper }) => all || sleeper.awakeMs > 0));
  }

  /** By name: what the configuration has, and the endpoints. */
  get #served(): string[] {
    const { identity, pipelines } = this.#options;
    return [...new Set([...identity.destinations, ...pipelines.map(({ name }) => name)])];
  }
}
