// Access to requests that concern all shards: a token or a login of any shard is enough. All shards are queried at
// once, so a shard that is unavailable does not lock out users of another. What a shard has confirmed is remembered for
// the time when it is unavailable (docs/internals/decisions/0027); once it answers again, its answer counts.

import { createHash } from 'node:crypto';

import type { Context } from 'hono';

import { withDeadline } from '../../database/deadline.js';
import type { Database } from '../../database/connection.js';
import { findAccess } from '../tokens/database.js';
import type { Access, Scope } from '../tokens/database.js';
import {
  addressOf,
  allow,
  loginBeside,
  secretOf,
  sessionCookieOf,
  userOf,
} from '../../server/access.js';
import { LoginThrottle } from '../../server/login-throttle.js';
import { HttpProblem } from '../../server/route.js';
import type { SingleSignOn } from '../../server/single-sign-on.js';

type Shard = { readonly name: string; readonly database: Database };

const answerMs = 3000;
/** Longer than most outages. Also the longest time for which a token removed just before an outage still works. */
const rememberedMs = 24 * 3_600_000;
const rememberedAtMost = 1000;

export class ShardsAccess {
  readonly #shards: readonly Shard[];
  readonly #singleSignOn: SingleSignOn | undefined;
  readonly #throttle = new LoginThrottle();
  readonly #confirmed = new Confirmed();

  constructor(shards: readonly Shard[], singleSignOn?: SingleSignOn) {
    this.#shards = shards;
    this.#singleSignOn = singleSignOn;
  }

  /**
   * A wrong secret counts once for the login throttle, however many shards refuse it; a secret that one shard accepts
   * does not count.
   */
  async check(context: Context, scope: Scope): Promise<void> {
    const login = await this.#loginBeside(context, scope);
    if (login !== undefined) return allow(login, { scope });
    const user = userOf(context, this.#singleSignOn);
    if (user !== undefined) return allow(user, { scope });
    const given = this.#secrets(context, secretOf);
    if (given.length === 0)
      throw new HttpProblem(401, 'send a token of any shard: Authorization: Bearer …');
    let answers: PromiseSettledResult<Access | null>[] = [];
    const isAllowed = await this.#throttle.check(addressOf(context), async () => {
      const asked = given.map(({ shard, secret }) => this.#ask(shard, secret));
      if (await anyAllows(asked, scope)) return true;
      answers = await Promise.allSettled(asked);
      // a shard knows the secret, but its scope does not allow this
      for (const answer of answers)
        if (answer.status === 'fulfilled' && answer.value !== null) allow(answer.value, { scope });
      return null;
    });
    if (isAllowed) return;
    const away = given.filter((_, at) => answers[at]?.status === 'rejected');
    if (away.length === 0)
      throw new HttpProblem(401, 'no shard knows the token or the login, or it has expired');
    throw new HttpProblem(
      503,
      `no shard that answers knows the token, and ${away.length} of ${this.#shards.length} ${away.length === 1 ? 'is' : 'are'} away: use a token of another`,
    );
  }

  /** Whether the names of the shards may be shown. A probe sends no token and is answered without a query. */
  async mayRead(context: Context): Promise<boolean> {
    try {
      await this.check(context, 'read');
      return true;
    } catch (error) {
      if (error instanceof HttpProblem) return false;
      throw error;
    }
  }

  /** The login of a user of the proxy at any shard, which counts more than the user: one that allows this, if there is one. */
  async #loginBeside(context: Context, scope: Scope): Promise<Access | undefined> {
    const given = this.#secrets(context, loginBeside);
    const asked = given.map(({ shard, secret }) => this.#ask(shard, secret).catch(() => null));
    const logins = (await Promise.all(asked)).filter((access) => access !== null);
    return logins.find((access) => allows(access, scope)) ?? logins[0];
  }

  /** A token, or the logins, with the shards that may know them. */
  #secrets(context: Context, secretIn: typeof secretOf): { shard: Shard; secret: string }[] {
    const singleSignOn = this.#singleSignOn;
    return this.#shards.flatMap((shard) => {
      const logins = { cookie: sessionCookieOf(shard.name), ...(singleSignOn && { singleSignOn }) };
      const secret = secretIn(context, logins);
      return secret === undefined ? [] : [{ shard, secret }];
    });
  }

  async #ask({ name, database }: Shard, secret: string): Promise<Access | null> {
    const key = `${name} ${createHash('sha256').update(secret).digest('hex')}`;
    let access: Access | null;
    try {
      const looking = findAccess(database, secret);
      access = await withDeadline('look for the token', answerMs, looking, () => undefined);
    } catch (error) {
      const known = this.#confirmed.find(key);
      if (known === undefined) throw error;
      return known;
    }
    this.#confirmed.set(key, access);
    return access;
  }
}

function allows(access: Access, scope: Scope): boolean {
  try {
    allow(access, { scope });
    return true;
  } catch {
    return false;
  }
}

async function anyAllows(asked: readonly Promise<Access | null>[], scope: Scope): Promise<boolean> {
  return Promise.any(
    asked.map(async (answer) => {
      const access = await answer;
      if (access === null) throw new Error('not known here');
      allow(access, { scope });
      return true;
    }),
  ).catch(() => false);
}

/** The last confirmed access by secret. Unknown secrets are not stored. */
export class Confirmed {
  readonly #forMs: number;
  readonly #most: number;
  /** Ordered by the time of confirmation, oldest first. */
  readonly #known = new Map<string, { access: Access; atMs: number }>();

  constructor({ forMs = rememberedMs, most = rememberedAtMost } = {}) {
    this.#forMs = forMs;
    this.#most = most;
  }

  find(key: string, nowMs = performance.now()): Access | undefined {
    const known = this.#known.get(key);
    return known !== undefined && nowMs - known.atMs < this.#forMs ? known.access : undefined;
  }

  /** Null: the secret is not valid, or no longer. */
  set(key: string, access: Access | null, nowMs = performance.now()): void {
    this.#known.delete(key);
    if (access === null) return;
    this.#known.set(key, { access, atMs: nowMs });
    const [oldest] = this.#known.keys();
    if (this.#known.size > this.#most && oldest !== undefined) this.#known.delete(oldest);
  }
}
