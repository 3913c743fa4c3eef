// Relays of this process that may sleep. A producer in the same process keeps them awake when it enqueues: the database
// is awake at that moment anyway. The list is on globalThis, because a bundler may copy this module.

export type SleepingRelay = {
  readonly schema: string;
  /** There may be work soon: a transaction that enqueues is about to commit. */
  expectWork(): void;
};

const key = Symbol.for('waybill.sleepingRelays');
const holder = globalThis as { [key]?: Set<SleepingRelay> };

export function addSleepingRelay(relay: SleepingRelay): void {
  (holder[key] ??= new Set()).add(relay);
}

export function removeSleepingRelay(relay: SleepingRelay): void {
  holder[key]?.delete(relay);
}

/** Wakes them, or keeps them awake. Returns whether this process has such a relay for the schema. */
export function wakeSleepingRelays(schema: string): boolean {
  let found = false;
  for (const relay of holder[key] ?? []) {
    if (relay.schema !== schema) continue;
    relay.expectWork();
    found = true;
  }
  return found;
}
