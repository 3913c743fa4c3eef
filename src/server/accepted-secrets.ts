// Accepted secrets: remembers the last 100 tokens and logins that the database has accepted, by their hash, until they
// expire. While the relay is asleep, a request with one of them wakes it without waiting for the database, which may be
// asleep too.

import { createHash } from 'node:crypto';

const most = 100;

export class AcceptedSecrets<Access> {
  /** The latest comes last. `untilMs` is on the clock of performance.now(). */
  readonly #byHash = new Map<string, { access: Access; untilMs: number }>();

  /** `validMs`: until the secret expires; null: without an end. */
  remember(secret: string, { access, validMs }: { access: Access; validMs: number | null }): void {
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

  /** Finds a secret and forgets it: one that was revoked since must not serve again before the database has seen it. */
  take(secret: string): Access | undefined {
    const found = this.#byHash.get(hashOf(secret));
    this.forget(secret);
    return found !== undefined && performance.now() < found.untilMs ? found.access : undefined;
  }
}

function hashOf(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}
