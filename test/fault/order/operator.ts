// The operator of a seed: retries, skips and discards dead letters and cancels pending deliveries while everything
// runs. At the end it resolves whatever still blocks a key.

import { setTimeout as delay } from 'node:timers/promises';

import { Random } from '../crash/random.js';
import { whenDead } from './plan.js';
import type { DestinationName, Plan } from './plan.js';
import type { World } from './world.js';

export type Skip = { id: string; destination: DestinationName; atMs: number };
type DeadLetter = { id: string; destination: DestinationName; claimNo: number };

export class Operator {
  readonly skips: Skip[] = [];
  readonly retried = new Set<string>();
  readonly refusals: string[] = [];
  readonly #world: World;
  readonly #plan: Plan;
  readonly #random: Random;
  #working = true;

  constructor(world: World, plan: Plan) {
    this.#world = world;
    this.#plan = plan;
    this.#random = new Random(plan.seed * 307);
  }

  async work(): Promise<void> {
    while (this.#working) {
      await delay(this.#random.integer(5, 40));
      if (this.#random.chance(0.1)) await this.#cancelOne();
      if (this.#random.chance(0.1)) await this.#do('SELECT outbox.retry_now($1)', ['strict']);
      const [letter] = await this.#deadLetters(1);
      if (letter !== undefined) await this.#treat(letter, this.#random.next());
    }
  }

  rest(): void {
    this.#working = false;
  }

  /** Resolves what blocks; true if there was something. A message that died often is not retried. */
  async openLanes(): Promise<boolean> {
    const letters = await this.#world.query<DeadLetter>(
      `SELECT x.message_id AS id, d.name AS destination, x.claim_no AS "claimNo"
         FROM outbox.lanes l JOIN outbox.dead_letters x ON x.message_id = l.blocked_by AND x.destination_id = l.destination_id
         JOIN outbox.destinations d ON d.id = l.destination_id WHERE l.namespace = $1`,
      [this.#plan.namespace],
    );
    for (const letter of letters)
      await this.#treat(
        letter,
        letter.claimNo > 8 ? 0.5 + this.#random.next() / 2 : this.#random.next(),
      );
    return letters.length > 0;
  }

  async #deadLetters(count: number): Promise<DeadLetter[]> {
    return this.#world.query<DeadLetter>(
      `SELECT x.message_id AS id, d.name AS destination, x.claim_no AS "claimNo"
         FROM outbox.dead_letters x JOIN outbox.destinations d ON d.id = x.destination_id
        WHERE x.namespace = $1 AND (x.reason <> 'parked' OR random() < 0.1) ORDER BY random() LIMIT $2`,
      [this.#plan.namespace, count],
    );
  }

  async #treat({ id, destination }: DeadLetter, lot: number): Promise<void> {
    if (lot < 0.5) {
      // before the call: the message may be delivered before the response arrives
      this.retried.add(`${destination} ${id}`);
      await this.#do('SELECT outbox.retry_dead_letters($1, ARRAY[$2]::uuid[])', [destination, id]);
    } else if (lot < 0.75 && whenDead[destination] !== 'continue') {
      this.skips.push({ id, destination, atMs: Date.now() });
      await this.#do('SELECT outbox.skip_dead_letters($1, ARRAY[$2]::uuid[])', [destination, id]);
    } else {
      await this.#do('SELECT outbox.discard_dead_letters($1, ARRAY[$2]::uuid[])', [
        destination,
        id,
      ]);
    }
  }

  async #cancelOne(): Promise<void> {
    const [waiting] = await this.#world.query<{ id: string }>(
      `SELECT message_id AS id FROM outbox.deliveries WHERE namespace = $1 ORDER BY random() LIMIT 1`,
      [this.#plan.namespace],
    );
    if (waiting !== undefined) await this.#do('SELECT outbox.cancel($1)', [waiting.id]);
  }

  async #do(sql: string, values: unknown[]): Promise<void> {
    try {
      await this.#world.query(sql, values);
    } catch (error) {
      this.refusals.push(`an operator got: ${String(error)}`);
    }
  }
}
