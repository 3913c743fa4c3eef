// Accepted secrets: remembers tokens and logins that the database has accepted, by their hash, until they expire. While
// the relay is asleep, a request with one of them wakes it without asking the database, which may be asleep too.

import { createHash } from 'node:crypto';

import type { Access, Found } from '../features/tokens/database.js';

const most = 100;

export class AcceptedSecrets {
  /** The latest comes last. `untilMs` is on the clock of performance.now(). */
  readonly #byHash = new Map<string, { access: Access; untilMs: number }>();

  remember(secret: string, { access, validMs }: Found): void {
    const hash = hashOf(secret);
    this.#byHash.delete(hash);
    const untilMs = performance.now() + (validMs ?? Number.POSITIVE_INFINITY);
    this.#byHash.set(hash, { access, untilMs });
    const [oldest] = this.#byHash.keys();
    if (this.#byHash.size > most && oldest !== undefined) this.#byHash.delete(oldest);
  }

  forget(secret: string): void {
    this.#byHash.delete(hashOf(secret));
  }

  find(secret: string): Access | undefined {
    const found = this.#byHash.get(hashOf(secret));
    if (found === undefined || performance.now() < found.untilMs) return found?.access;
    this.forget(secret);
    return undefined;
  }
}

function hashOf(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}
