// Heartbeat: tells other relays that this one lives, what it serves and which breakers are open. It learns how many
// relays share each destination, and which run with another configuration.

import type { Database } from '../../database/connection.js';
import { heartbeat, tellLimits } from '../../database/definitions.js';
import type { RelayIdentity } from '../../database/definitions.js';
import type { Emit } from '../../telemetry/events.js';
import type { Pipeline } from '../delivery/pipeline.js';
import type { WakeUp } from '../wakeup/wake-up.js';

export type HeartbeatOptions = {
  database: Database;
  identity: RelayIdentity;
  /** Pipelines of the configuration and of the endpoints, which come and go. */
  pipelines: readonly Pipeline[];
  /** Problems of this relay at present, shown to operators. */
  problems: () => readonly string[];
  /** Its registrations as a listener expire after a while. */
  wakeUp: Pick<WakeUp, 'renew'>;
  emit: Emit;
};

export class Heartbeat {
  readonly #options: HeartbeatOptions;
  #otherConfigurations = '';
  #serving: Readonly<Record<string, number>> = {};
  #servingEndpoints = 1;
  #limited: readonly string[] = [];

  constructor(options: HeartbeatOptions) {
    this.#options = options;
  }

  /** Living relays by destination, as of the last heartbeat. */
  get serving(): Readonly<Record<string, number>> {
    return this.#serving;
  }

  /** Living relays that serve the endpoints, as of the last heartbeat. */
  get servingEndpoints(): number {
    return this.#servingEndpoints;
  }

  async beat(): Promise<void> {
    const { database, identity, pipelines, problems, wakeUp, emit } = this.#options;
    const breakers = pipelines.flatMap(({ name, breaker }) =>
      breaker === undefined ? [] : [[name, breaker] as const],
    );
    const { others, serving, servingEndpoints } = await heartbeat(
      database,
      { ...identity, destinations: this.#served },
      Object.fromEntries(breakers),
      problems(),
    );
    this.#serving = serving;
    this.#servingEndpoints = servingEndpoints;
    for (const pipeline of pipelines)
      pipeline.share(pipeline.isEndpoint ? servingEndpoints : (serving[pipeline.name] ?? 1));
    const seen = others.join(', ');
    if (seen !== this.#otherConfigurations && others.length > 0)
      emit({ name: 'other_configuration', application: identity.application.name, relays: others });
    this.#otherConfigurations = seen;
    await wakeUp.renew();
    await this.#tellLimits();
  }

  async #tellLimits(): Promise<void> {
    const { database, identity, pipelines } = this.#options;
    const limited = pipelines.filter((pipeline) => pipeline.limited).map(({ name }) => name);
    if (limited.join() === this.#limited.join()) return;
    await tellLimits(database, identity.id, limited);
    this.#limited = limited;
  }

  /** The names of all destinations served, without endpoints. */
  get #served(): string[] {
    const { identity, pipelines } = this.#options;
    const others = pipelines.filter(({ isEndpoint }) => !isEndpoint).map(({ name }) => name);
    return [...new Set([...identity.destinations, ...others])];
  }
}
