// Concurrency limit of a relay: bounds the calls in flight over all destinations. Half of it is reserved, in equal
// parts, for each destination of the configuration and each tenant with endpoints; a tenant's part is divided among
// its endpoints. The other half is first come, first served. The endpoints of one tenant together get none of it
// while they hold three times as many slots as are free. So a quarter stays free for other tenants, however many
// endpoints hang and however small the reserved parts are. A dispatcher that finds no slot is called again when one
// is free, in the order in which dispatchers asked.
//
// A call of an endpoint that takes long gives its slot back while it waits, because it needs no more than a connection.
// So thousands of hanging endpoints do not take the slots of the others. Such slow calls have a limit of their own; above
// it, slow calls keep their slots.

/** How many slots a tenant's endpoints may hold, as a multiple of the free slots. */
const mostOfFree = 3;
/** Slow calls at once, as a multiple of the limit. */
const mostSlow = 10;

export class ConcurrencyLimit {
  readonly #limit: number;
  readonly #groups = new Set<Group>();
  readonly #tenants = new Map<string, Group>();
  readonly #waiting = new Map<() => void, Share>();
  #held = 0;
  #slow = 0;
  /** The unused slots of all reserved parts. */
  #reserved = 0;
  /** The reserved slots of each group. */
  #part = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Adds a destination, until it leaves. Endpoints of the same tenant share a part. */
  join(concurrency: number, tenantId: string | null = null): Share {
    const group = this.#groupOf(tenantId);
    const share: Share = new Share(concurrency, group, {
      take: (whenFree) => this.#take(share, whenFree),
      give: () => this.#give(share),
      becameSlow: () => this.#becameSlow(share),
      slowEnded: () => this.#slowEnded(share),
      leave: () => this.#leave(share),
    });
    group.shares.add(share);
    this.#groups.add(group);
    this.#divide(group);
    return share;
  }

  #groupOf(tenantId: string | null): Group {
    if (tenantId === null) return new Group(null);
    const group = this.#tenants.get(tenantId) ?? new Group(tenantId);
    this.#tenants.set(tenantId, group);
    return group;
  }

  #mayTake({ own, held, group }: Share): boolean {
    if (this.#held >= this.#limit) return false;
    // of its own part, or of its tenant's part what other endpoints of the tenant have not reserved
    if (held < own || group.own - group.held > group.unused) return true;
    // of the half that is first come, first served
    if (this.#held + this.#reserved >= this.#limit) return false;
    return group.tenantId === null || group.held < mostOfFree * (this.#limit - this.#held);
  }

  #take(share: Share, whenFree: () => void): boolean {
    if (!this.#mayTake(share)) {
      this.#waiting.set(whenFree, share);
      return false;
    }
    this.#count(share, 1);
    return true;
  }

  #give(share: Share): void {
    this.#count(share, -1);
    // a dispatcher that still gets none queues again, behind those that waited when this began
    let left = this.#waiting.size;
    for (const [whenFree, waiter] of this.#waiting) {
      if (this.#held === this.#limit || left === 0) return;
      left -= 1;
      if (!this.#mayTake(waiter)) continue;
      // a dispatcher with nothing left to start does not take the slot: the next one is asked
      this.#waiting.delete(whenFree);
      whenFree();
    }
  }

  #becameSlow(share: Share): boolean {
    if (this.#slow >= this.#limit * mostSlow) return false;
    this.#slow += 1;
    share.slow += 1;
    this.#give(share);
    return true;
  }

  #slowEnded(share: Share): void {
    this.#slow -= 1;
    share.slow -= 1;
  }

  #count(share: Share, by: 1 | -1): void {
    const { group } = share;
    this.#reserved -= group.reserved;
    this.#held += by;
    group.held += by;
    group.unused -= share.unused;
    share.held += by;
    group.unused += share.unused;
    this.#reserved += group.reserved;
  }

  #leave(share: Share): void {
    const { group } = share;
    if (!group.shares.delete(share)) return;
    this.#held -= share.held;
    this.#slow -= share.slow;
    this.#reserved -= group.reserved;
    group.held -= share.held;
    group.own = 0;
    group.unused = 0;
    if (group.shares.size === 0) {
      this.#groups.delete(group);
      if (group.tenantId !== null) this.#tenants.delete(group.tenantId);
    }
    this.#divide(group);
  }

  /** After a change of this group. With thousands of groups, the parts of the others rarely change. */
  #divide(changed: Group): void {
    const part = Math.floor(this.#limit / 2 / Math.max(this.#groups.size, 1));
    const groups = part === this.#part ? [changed] : this.#groups;
    this.#part = part;
    for (const group of groups) {
      if (!this.#groups.has(group)) continue;
      this.#reserved -= group.reserved;
      group.divide(part);
      this.#reserved += group.reserved;
    }
  }
}

/** One destination of the configuration, or all endpoints of one tenant. */
class Group {
  readonly tenantId: string | null;
  readonly shares = new Set<Share>();
  /** The slots reserved for this group. */
  own = 0;
  held = 0;
  /** The unused slots of its shares' reserved parts. */
  unused = 0;

  constructor(tenantId: string | null) {
    this.tenantId = tenantId;
  }

  get reserved(): number {
    return Math.max(this.own - this.held, this.unused);
  }

  divide(part: number): void {
    const own = Math.floor(part / this.shares.size);
    let wanted = 0;
    this.unused = 0;
    for (const share of this.shares) {
      wanted += share.concurrency;
      share.own = Math.min(share.concurrency, own);
      this.unused += share.unused;
    }
    this.own = Math.min(part, wanted);
  }
}

type Actions = {
  take(whenFree: () => void): boolean;
  give(): void;
  becameSlow(): boolean;
  slowEnded(): void;
  leave(): void;
};

/** The slots of one destination. */
export class Share {
  readonly concurrency: number;
  readonly group: Group;
  /** The slots reserved for this destination. */
  own = 0;
  held = 0;
  /** Calls that have given their slot back. */
  slow = 0;
  readonly #actions: Actions;

  constructor(concurrency: number, group: Group, actions: Actions) {
    this.concurrency = concurrency;
    this.group = group;
    this.#actions = actions;
  }

  get unused(): number {
    return Math.max(this.own - this.held, 0);
  }

  /** Takes a slot, or remembers to call back when one is free. */
  take(whenFree: () => void): boolean {
    return this.#actions.take(whenFree);
  }

  give(): void {
    this.#actions.give();
  }

  /** Gives the slot of a call back that takes long. False: there are too many, and it keeps its slot. */
  becameSlow(): boolean {
    return this.#actions.becameSlow();
  }

  slowEnded(): void {
    this.#actions.slowEnded();
  }

  leave(): void {
    this.#actions.leave();
  }
}
