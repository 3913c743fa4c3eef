// Shared access tokens: endpoints with the same OAuth 2 client share its token, and an endpoint that is closed and opened
// again finds it.

import { TokenSource } from '../../destinations/webhook/access-token.js';
import type { OAuth2 } from '../../destinations/webhook/auth.js';

const fewest = 1000;

export class SharedTokens {
  readonly #sources = new Map<string, TokenSource>();
  /** When there are this many clients, those whose token has ended are forgotten. */
  #most = fewest;

  readonly of = (client: OAuth2): TokenSource => {
    const key = JSON.stringify(Object.entries(client).toSorted(([a], [b]) => (a < b ? -1 : 1)));
    const known = this.#sources.get(key);
    if (known !== undefined) return known;
    if (this.#sources.size >= this.#most) this.#forgetEnded();
    const made = new TokenSource();
    this.#sources.set(key, made);
    return made;
  };

  #forgetEnded(): void {
    const nowMs = performance.now();
    for (const [key, { endMs }] of this.#sources) if (endMs < nowMs) this.#sources.delete(key);
    this.#most = Math.max(fewest, 2 * this.#sources.size);
  }
}
