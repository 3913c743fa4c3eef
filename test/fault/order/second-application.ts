// The second application, always in the middle of a rolling deploy: relays of two versions with different routes run
// side by side. A deploy replaces the older one with the next version. It shares the schema with the first application.
// Neither may remove definitions of the other, or of its own other version.

import type { Random } from '../crash/random.js';
import { letTimePassFor } from '../../support/owners.js';
import { waitFor } from '../../support/wait.js';
import { holding } from './hurt.js';
import type { Hurt, Victim } from './hurt.js';
import { billingRoutes } from './plan.js';
import { RelayProcess, startSurely } from './relays.js';
import type { World } from './world.js';

export class SecondApplication {
  readonly #world: World;
  /** The older version first. */
  readonly relays: RelayProcess[] = [];
  #versions = 0;
  #deploying: Promise<unknown> = Promise.resolve();
  /** How often ten minutes passed in which both versions ran, and so could have removed each other's definitions. */
  timesPassed = 0;

  constructor(world: World) {
    this.#world = world;
  }

  async startNext(): Promise<void> {
    this.#versions += 1;
    const version = this.#versions;
    const { server, sink, directory } = this.#world;
    const relay = new RelayProcess(`billing-v${version}`, {
      databaseUrl: server.url,
      sinkUrl: sink.url,
      directory,
      batchSize: 10,
      application: { name: 'billing', version, routes: billingRoutes(version) },
    });
    this.relays.push(relay);
    await startSurely(relay);
    this.#world.unharmed.push(relay);
  }

  /** One deploy at a time. */
  deploy(victim: Victim, random: Random): Promise<Hurt[]> {
    const deployed = this.#deploying.then(() => this.#deploy(victim, random));
    this.#deploying = deployed.catch(() => {});
    return deployed;
  }

  /** Time passes while both versions run; the older relay is stopped or killed; the next version starts. */
  async #deploy({ plan, produceMore }: Victim, random: Random): Promise<Hurt[]> {
    const { unharmed } = this.#world;
    const [old, young] = this.relays;
    if (old === undefined || young === undefined) throw new Error('there are two relays');
    // another seed may be using one of them for a fault
    await waitFor(() => unharmed.includes(old) && unharmed.includes(young), {
      what: 'both relays of the second application',
      timeoutMs: 60_000,
    });
    for (const each of [old, young]) unharmed.splice(unharmed.indexOf(each), 1);
    await this.#passTime();
    // its messages must still find the routes of both versions
    produceMore();
    const held = await holding(this.#world, plan, old);
    const stopped = random.chance(0.5) ? old.stop() : old.kill();
    held?.answer();
    await stopped;
    await old.remove();
    this.relays.shift();
    unharmed.push(young);
    await this.startNext();
    return [{ fault: 'deploy', name: old.name }];
  }

  /**
   * Moves time a quarter of an hour on, so that relays remove what is not declared. Not after the clock has run ahead,
   * until every relay has declared its configuration again, which takes up to a minute.
   */
  async #passTime(): Promise<void> {
    const ids = [...this.#world.relays, ...this.relays].map(({ relayId }) => relayId);
    const client = await this.#world.pool.connect();
    try {
      await client.query('BEGIN');
      await client.query('SELECT outbox.lock_definitions()');
      const { rowCount } = await client.query(
        'SELECT FROM outbox.declarations WHERE relay_id = ANY ($1::uuid[])',
        [this.relays.map(({ relayId }) => relayId)],
      );
      if (rowCount === this.relays.length) {
        const db = {
          quoted: 'outbox',
          query: (sql: string, values: unknown[] = []) => client.query(sql, values),
        };
        await letTimePassFor(db, '15 minutes', ids);
        for (const id of ids) await client.query('SELECT outbox.tend_definitions($1)', [id]);
        this.timesPassed += 1;
      }
      await client.query('COMMIT');
    } catch (error) {
      await client.query('ROLLBACK');
      throw error;
    } finally {
      client.release();
    }
  }

  async remove(): Promise<void> {
    await Promise.all(this.relays.map((relay) => relay.remove()));
  }
}
