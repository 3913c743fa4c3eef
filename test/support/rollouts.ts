// Rollouts, their routes and what they decide, in the database of a test. The file that names them grows, and lets go
// of nothing by chance.

import { only } from './only.js';
import type { TestDatabase } from './postgres.js';

export type RouteToBe = { topic: string; to: string; rollout?: string | null };

export class Rollouts {
  readonly #db: TestDatabase;
  readonly #file = new Map<string, RouteToBe[]>();

  constructor(db: TestDatabase) {
    this.#db = db;
  }

  /** Gives a destination these routes, beside what the file has for others. */
  async defineRoutes(destination: string, routes: readonly RouteToBe[]): Promise<void> {
    const all = [...new Map([...this.#file, [destination, routes]]).values()].flat();
    const names = new Set([
      ...this.#file.keys(),
      destination,
      ...all.flatMap(({ rollout }) => (rollout ? [`${rollout}.shadow`] : [])),
    ]);
    const destinations = [...names].map((name) => ({
      name,
      kind: name.endsWith('.shadow') ? 'shadow' : 'handler',
      maxAttempts: 10,
      retryBaseMs: 1000,
      retryMaxMs: 300_000,
    }));
    await this.#db.query(`SELECT ${this.#db.quoted}.sync_definitions($1)`, [
      JSON.stringify({ destinations, routes: all }),
    ]);
    this.#file.set(destination, [...routes]);
  }

  /** Defines a destination of that name, with one route that has a rollout of that name. */
  async define(name: string, rollout: string | null = name): Promise<void> {
    await this.defineRoutes(name, [{ topic: name, to: name, rollout }]);
  }

  async set(name: string, percent: number, shadow = false): Promise<void> {
    await this.#db.query(`SELECT ${this.#db.quoted}.set_rollout($1, $2, $3, 'ops')`, [
      name,
      percent,
      shadow,
    ]);
  }

  /** None sends: a configuration that has nothing of the others may come then. */
  async stopAll(): Promise<void> {
    await this.#db.query(`UPDATE ${this.#db.quoted}.rollouts SET percent = 0, shadow = false`);
  }

  async decide(name: string, key: string): Promise<string> {
    const { rows } = await this.#db.query<{ decision: string }>(
      `SELECT ${this.#db.quoted}.rollout_decision($1, $2) AS decision`,
      [name, key],
    );
    return only(rows).decision;
  }

  async routedTo(destination: string): Promise<Set<string>> {
    const { rows } = await this.#db.query<{ message_id: string }>(
      `SELECT message_id FROM ${this.#db.quoted}.deliveries JOIN ${this.#db.quoted}.destinations d ON d.id = destination_id WHERE d.name = $1`,
      [destination],
    );
    return new Set(rows.map((row) => row.message_id));
  }
}
