// Heartbeat: tells other relays that this one lives, what it serves and which breakers are open. It learns how many
// relays share each destination, and which run with another configuration.

import type { Database } from '../../database/connection.js';
import { heartbeat, tellLimits } from '../../database/definitions.js';
import type { RelayIdentity } from '../../database/definitions.js';
import type { Emit } from '../../telemetry/events.js';
import type { Pipeline } from '../delivery/pipeline.js';

export type HeartbeatOptions = {
  database: Database;
  identity: RelayIdentity;
  /** Pipelines of the configuration and of the endpoints, which come and go. */
  pipelines: readonly Pipeline[];
  /** Problems of this relay at present, shown to operators. */
  problems: () => readonly string[];
  /** Renews the registration as listener, which expires after a while. */
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

  /** Living relays by destination, as of the last heartbeat. */
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
      emit({ name: 'other_configuration', application: identity.application.name, relays: others });
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

  /** Registrations of idle destinations last longer, so every second heartbeat renews them. */
  async #register(): Promise<void> {
    const { pipelines, register } = this.#options;
    const all = this.#beats % 2 === 1;
    await register(pipelines.filter(({ schedule }) => all || schedule.activeMs > 0));
  }

  /** The names of all destinations served: of the configuration and of the endpoints. */
  get #served(): string[] {
    const { identity, pipelines } = this.#options;
    return [...new Set([...identity.destinations, ...pipelines.map(({ name }) => name)])];
  }
}
