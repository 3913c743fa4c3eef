// Who may ask what concerns all shards: a token, or a login, of any of them. All are asked at once and the first yes is
// enough, so a shard that is away keeps nobody out who is known elsewhere. What a shard has confirmed is remembered for
// when it is away itself (docs/decisions/0027); as soon as it answers again, its word counts.

import { createHash } from 'node:crypto';

import type { Context } from 'hono';

import { withDeadline } from '../database/connection.js';
import type { Database } from '../database/connection.js';
import { findAccess } from '../database/tokens.js';
import type { Access, Scope } from '../database/tokens.js';
import { addressOf, allow, secretOf, sessionCookieOf } from './access.js';
import { Attempts } from './attempts.js';
import { HttpProblem } from './route.js';

type Shard = { readonly name: string; readonly database: Database };

const answerMs = 3000;
/** Longer than most outages, and the longest for which a token that was removed just before one is let in. */
const rememberedMs = 24 * 3_600_000;
const rememberedAtMost = 1000;

export class ShardsAccess {
  readonly #shards: readonly Shard[];
  readonly #attempts = new Attempts();
  readonly #confirmed = new Confirmed();

  constructor(shards: readonly Shard[]) {
    this.#shards = shards;
  }

  /** A wrong secret is counted once, however many shards do not know it, and not where one does. */
  async check(context: Context, scope: Scope): Promise<void> {
    const given = this.#shards.flatMap((shard) => {
      const secret = secretOf(context, { cookie: sessionCookieOf(shard.name) });
      return secret === undefined ? [] : [{ shard, secret }];
    });
    if (given.length === 0)
      throw new HttpProblem(401, 'send a token of any shard: Authorization: Bearer …');
    let answers: PromiseSettledResult<Access | null>[] = [];
    const isAllowed = await this.#attempts.look(addressOf(context), async () => {
      const asked = given.map(({ shard, secret }) => this.#ask(shard, secret));
      if (await anyAllows(asked, scope)) return true;
      answers = await Promise.allSettled(asked);
      // known somewhere, and not allowed to do this
      for (const answer of answers)
        if (answer.status === 'fulfilled' && answer.value !== null)
          allow(answer.value, scope, false);
      return null;
    });
    if (isAllowed) return;
    const away = given.filter((_, at) => answers[at]?.status === 'rejected');
    if (away.length === 0)
      throw new HttpProblem(401, 'no shard knows the token or the login, or it has expired');
    throw new HttpProblem(
      503,
      `no shard that answers knows the token, and these are away: ${away.map(({ shard }) => shard.name).join(', ')}; use a token of another`,
    );
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

async function anyAllows(asked: readonly Promise<Access | null>[], scope: Scope): Promise<boolean> {
  return Promise.any(
    asked.map(async (answer) => {
      const access = await answer;
      if (access === null) throw new Error('not known here');
      allow(access, scope, false);
      return true;
    }),
  ).catch(() => false);
}

/** What the databases said last of secrets that they know; others take no room. */
export class Confirmed {
  readonly #forMs: number;
  readonly #most: number;
  /** The one that was confirmed longest ago first. */
  readonly #known = new Map<string, { access: Access; atMs: number }>();

  constructor({ forMs = rememberedMs, most = rememberedAtMost } = {}) {
    this.#forMs = forMs;
    this.#most = most;
  }

  find(key: string, nowMs = performance.now()): Access | undefined {
    const known = this.#known.get(key);
    return known !== undefined && nowMs - known.atMs < this.#forMs ? known.access : undefined;
  }

  /** Null: it is not valid, or no longer. */
  set(key: string, access: Access | null, nowMs = performance.now()): void {
    this.#known.delete(key);
    if (access === null) return;
    this.#known.set(key, { access, atMs: nowMs });
    const [oldest] = this.#known.keys();
    if (this.#known.size > this.#most && oldest !== undefined) this.#known.delete(oldest);
  }
}
