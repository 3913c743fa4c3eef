// A relay's declaration of its definitions: made at the start and confirmed every minute. The routes of a running relay
// stay, whatever other relays of its application declare. Routes that no relay declares any more are removed.

import type { Database } from '../../database/connection.js';
import { confirmDeclaration, syncDefinitions, tendDefinitions } from './database.js';
import type { DeclaresAs } from './database.js';
import { settleWatches, syncWatches } from '../watches/database.js';
import { definitionsOf } from '../../relay/setup.js';
import type { RelaySetup } from '../../relay/setup.js';

export class Declarations {
  readonly #setup: RelaySetup;
  readonly #database: Database;
  readonly #relay: { readonly id: string; readonly name: string };
  #madeAt: string | undefined;
  #problem: string | null = null;

  constructor(setup: RelaySetup, database: Database, relay: { id: string; name: string }) {
    this.#setup = setup;
    this.#database = database;
    this.#relay = relay;
  }

  /** A problem that an operator must solve, with the remedy; null if there is none. */
  get problem(): string | null {
    return this.#problem;
  }

  /** Returns the id of each destination by its name. `lockWaitMs`: how long to wait for producers' transactions. */
  async declare(declares: DeclaresAs, lockWaitMs?: number): Promise<Map<string, number>> {
    const { application } = this.#setup;
    const definitions = definitionsOf(this.#setup);
    const { ids, madeAt } = await syncDefinitions(
      this.#database,
      { application, definitions },
      { id: this.#relay.id, declares, madeAt: this.#madeAt },
      this.#actor,
      lockWaitMs,
    );
    this.#madeAt = madeAt;
    return ids;
  }

  /** Called after `declare`. A configuration without watches leaves the watches as they are. */
  async declareWatches(): Promise<void> {
    const { watches, application } = this.#setup;
    if (watches === undefined) return;
    const declaration = { application: application.name, relayId: this.#relay.id };
    await syncWatches(this.#database, watches, declaration, this.#actor);
  }

  /** Confirms the declaration. Declares again if it has lapsed because the relay could not reach the database. */
  async tend(): Promise<void> {
    if (!(await confirmDeclaration(this.#database, this.#relay.id))) {
      await this.declare('again');
      await this.declareWatches();
    }
    try {
      const { problem } = await tendDefinitions(this.#database, this.#relay.id, this.#actor);
      this.#problem = problem;
    } finally {
      if (this.#setup.watches) await settleWatches(this.#database, this.#relay.id, this.#actor);
    }
  }

  get #actor(): string {
    return `relay ${this.#relay.name}`;
  }
}
