// Shared pools: endpoints with the same origin share their connections, because opening one costs more than a request. The
// pool of an origin is closed when it has not been used for a while.

import { openPool } from '../../destinations/webhook/pool.js';
import type { OpenPool, PoolOpener } from '../../destinations/webhook/pool.js';

type Shared = {
  readonly opened: Promise<OpenPool>;
  /** Endpoints that have it open. */
  users: number;
  timer: NodeJS.Timeout | undefined;
};

const unusedMs = 10_000;

export class SharedPools {
  readonly #pools = new Map<string, Shared>();

  readonly open: PoolOpener = async (origin, options) => {
    // an endpoint can have a timeout of its own, and the name servers of the system may change
    const key = `${origin} ${options.timeoutMs} ${options.dnsServers?.join() ?? ''}`;
    const shared = this.#pools.get(key) ?? this.#add(key, openPool(origin, options));
    shared.users += 1;
    clearTimeout(shared.timer);
    const { pool, connector } = await shared.opened;
    let isOpen = true;
    const close = (): Promise<void> => {
      if (isOpen) this.#leave(key, shared);
      isOpen = false;
      return Promise.resolve();
    };
    return { pool, connector, close };
  };

  async close(): Promise<void> {
    const pools = [...this.#pools.values()];
    this.#pools.clear();
    for (const { timer } of pools) clearTimeout(timer);
    await Promise.all(pools.map(async ({ opened }) => (await opened).close()));
  }

  #add(key: string, opened: Promise<OpenPool>): Shared {
    const shared: Shared = { opened, users: 0, timer: undefined };
    this.#pools.set(key, shared);
    // the next endpoint tries again
    opened.catch(() => this.#pools.delete(key));
    return shared;
  }

  #leave(key: string, shared: Shared): void {
    shared.users -= 1;
    if (shared.users > 0 || this.#pools.get(key) !== shared) return;
    shared.timer = setTimeout(() => {
      this.#pools.delete(key);
      void shared.opened.then((opened) => opened.close()).catch(() => {});
    }, unusedMs);
    shared.timer.unref();
  }
}
