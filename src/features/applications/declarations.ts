// A relay's declaration of its definitions: made at the start and confirmed every minute. The routes of a running relay
// stay, whatever other relays of its application declare. Routes that no relay declares any more are removed.

import type { Database } from '../../database/connection.js';
import { confirmDeclaration, syncDefinitions, tendDefinitions } from './database.js';
import type { DeclaresAs } from './database.js';
import { definitionsOf } from '../../relay/setup.js';
import type { RelayPart } from '../../relay/part.js';
import type { RelaySetup } from '../../relay/setup.js';

export class Declarations {
  readonly #setup: RelaySetup;
  readonly #database: Database;
  readonly #relay: { readonly id: string; readonly name: string };
  /** What features declare beside destinations and routes. */
  readonly #parts: () => readonly RelayPart[];
  #madeAt: string | undefined;
  #problem: string | null = null;

  constructor(
    setup: RelaySetup,
    database: Database,
    relay: { id: string; name: string },
    parts: () => readonly RelayPart[],
  ) {
    this.#setup = setup;
    this.#database = database;
    this.#relay = relay;
    this.#parts = parts;
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
      this.actor,
      lockWaitMs,
    );
    this.#madeAt = madeAt;
    return ids;
  }

  /** Confirms the declaration. Declares again if it has lapsed because the relay could not reach the database. */
  async tend(): Promise<void> {
    if (!(await confirmDeclaration(this.#database, this.#relay.id))) {
      await this.declare('again');
      for (const part of this.#parts()) await part.declare?.();
    }
    try {
      const { problem } = await tendDefinitions(this.#database, this.#relay.id, this.actor);
      this.#problem = problem;
    } finally {
      for (const part of this.#parts()) await part.tend?.();
    }
  }

  /** The relay as the actor of what it changes. */
  get actor(): string {
    return `relay ${this.#relay.name}`;
  }
}
