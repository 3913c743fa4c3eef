// Accepted secrets: remembers tokens and logins that the database has accepted, by their hash. While the relay is asleep,
// a request with one of them is answered without asking the database, which may be asleep too.

import { createHash } from 'node:crypto';

const most = 100;

export class AcceptedSecrets<Access> {
  /** The latest comes last. */
  readonly #byHash = new Map<string, Access>();

  remember(secret: string, access: Access): void {
    const hash = hashOf(secret);
    this.#byHash.delete(hash);
    this.#byHash.set(hash, access);
    const [oldest] = this.#byHash.keys();
    if (this.#byHash.size > most && oldest !== undefined) this.#byHash.delete(oldest);
  }

  forget(secret: string): void {
    this.#byHash.delete(hashOf(secret));
  }

  find(secret: string): Access | undefined {
    return this.#byHash.get(hashOf(secret));
  }
}

function hashOf(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}
