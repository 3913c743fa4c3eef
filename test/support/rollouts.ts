// Rollouts, their routes and their decisions in the database of a test. The configuration only grows, so no test
// removes a route by accident.

import { only } from './only.js';
import type { TestDatabase } from './postgres.js';

export type RouteToBe = { topic: string; to: string; rollout?: string | null };

export class Rollouts {
  readonly #db: TestDatabase;
  readonly #file = new Map<string, RouteToBe[]>();

  constructor(db: TestDatabase) {
    this.#db = db;
  }

  /** Gives a destination these routes, in addition to those of other destinations. */
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
    await this.#db.query(`SELECT ${this.#db.quoted}.apply_definitions($1, p_prune => true)`, [
      JSON.stringify({ destinations, routes: all }),
    ]);
    this.#file.set(destination, [...routes]);
  }

  /** Defines a destination with this name, with one route that has a rollout of this name. */
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

  /** Sets every rollout to 0 %, so that a configuration without them is accepted. */
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
