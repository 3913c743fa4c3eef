// Access lookup: checks the secrets of tokens and logins. Look-ups that arrive while a query runs share the next query,
// so a flood of wrong tokens costs the database little and does not delay valid ones.

import type { Database } from '../../database/connection.js';
import type { Access, Found } from './database.js';

type Lookup = {
  readonly hash: Buffer;
  readonly resolve: (found: Found | null) => void;
  readonly reject: (error: unknown) => void;
};

/** Secrets per query. */
const batch = 1000;

export class AccessLookup {
  readonly #database: Pick<Database, 'query' | 'schema'>;
  #waiting: Lookup[] = [];
  #isRunning = false;

  constructor(database: Pick<Database, 'query' | 'schema'>) {
    this.#database = database;
  }

  /** Finds access by the hash of a secret; null if the secret is not valid. */
  async find(hash: Buffer): Promise<Found | null> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ hash, resolve, reject });
      if (!this.#isRunning) void this.#run();
    });
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    while (this.#waiting.length > 0) {
      const lookups = this.#waiting.slice(0, batch);
      this.#waiting = this.#waiting.slice(batch);
      await this.#look(lookups);
    }
    this.#isRunning = false;
  }

  async #look(lookups: readonly Lookup[]): Promise<void> {
    try {
      const rows = await this.#database.query<Access & { hash: Buffer; validMs: number | null }>(
        'find access',
        `SELECT hash, name, scope, tenant_id AS "tenantId", for_endpoints AS "forEndpoints",
                (extract(epoch FROM nullif(expires_at, 'infinity') - clock_timestamp()) * 1000)::float8 AS "validMs"
           FROM ${this.#database.schema}.find_access($1)`,
        [lookups.map(({ hash }) => hash)],
      );
      const found = new Map(
        rows.map(({ hash, validMs, ...access }) => [hash.toString('hex'), { access, validMs }]),
      );
      for (const { hash, resolve } of lookups) resolve(found.get(hash.toString('hex')) ?? null);
    } catch (error) {
      for (const { reject } of lookups) reject(error);
    }
  }
}
