// The faults, each at a chosen moment. A kill counts only if the victim provably held an unsettled lease: every
// function here returns what it can prove, or nothing.

import { setTimeout as delay } from 'node:timers/promises';

import { waitFor } from '../../support/wait.js';
import type { Harness } from './harness.js';
import type { HeldRequest, Request } from './postgres-proxy.js';
import type { Random } from './random.js';
import type { RelaySlot } from './relay-slot.js';

export const phases = ['claim', 'dispatch', 'publish–settle', 'settle'] as const;
export type Phase = (typeof phases)[number] | 'any moment';

export type Kill = { phase: Phase; relay: string; messages: number };
/** A relay that was stopped beyond its lease, and whose settle arrived after others had taken over. */
export type LateSettle = {
  relay: string;
  leaseId: string;
  destination: string;
  ids: string[];
  claimNos: number[];
};
/** A relay whose connections all fell silent at once, and how long it took to settle again. */
export type Silence = { relay: string; resumedMs: number };
export type DatabaseCrash = { moment: 'any moment' | 'settle' | 'commit'; leases: number };

export const isClaim = (request: Request): boolean => /\.claim_batch(es)?\(/.test(request.sql);
export const isSettle = (request: Request): boolean =>
  /\.(settle|deliver_leases)\(/.test(request.sql);
const isCommit = (request: Request): boolean => request.sql.toUpperCase() === 'COMMIT';

type Settle = { leaseId: string; ids: string[] };

/** A settle names its messages; one that delivers whole leases names only these, and the first of them is meant. */
async function settleOf(harness: Harness, { request }: HeldRequest): Promise<Settle> {
  const [first, second, third] = request.parameters;
  if (request.sql.includes('.settle(')) return { leaseId: first ?? '', ids: idsIn(third) };
  const [leaseId = ''] = idsIn(second);
  const [lease] = await harness.query<{ ids: string[] }>(
    'SELECT message_ids AS ids FROM outbox.leases WHERE id = $1',
    [leaseId],
  );
  return { leaseId, ids: lease?.ids ?? [] };
}

/** The ids of an array parameter. */
export function idsIn(parameter: string | null | undefined): string[] {
  return parameter?.match(/[0-9a-f-]{36}/g) ?? [];
}

type Lease = {
  id: string;
  destination: string;
  remaining: number;
  ids: string[];
  claimNos: number[];
};

async function leasesOf(harness: Harness, relayId: string): Promise<Lease[]> {
  return harness.query<Lease>(
    `SELECT l.id, d.name AS destination, l.remaining, l.message_ids AS ids, l.claim_nos AS "claimNos"
       FROM outbox.leases l JOIN outbox.destinations d ON d.id = l.destination_id
      WHERE l.relay_id = $1 AND l.remaining > 0`,
    [relayId],
  );
}

const lastStatementMs = 300;

/** Kills the relay, checks what it held, and replaces it. */
async function killHolding(
  harness: Harness,
  slot: RelaySlot,
  phase: Phase,
  isExpected: (lease: Lease) => boolean = () => true,
): Promise<Kill | undefined> {
  const { id, name } = await slot.kill();
  const deadMs = performance.now();
  let leases = await leasesOf(harness, id);
  // its last statement may still be running on the server
  while (!leases.some(isExpected) && performance.now() - deadMs < lastStatementMs)
    leases = await leasesOf(harness, id);
  slot.start();
  if (!leases.some(isExpected)) return undefined;
  return {
    phase,
    relay: name,
    messages: leases.reduce((sum, { remaining }) => sum + remaining, 0),
  };
}

/** The claim is done or running, and the relay does not know its result. */
async function killInClaim(
  harness: Harness,
  slot: RelaySlot,
  random: Random,
): Promise<Kill | undefined> {
  for (;;) {
    const held = await slot.proxy.hold(isClaim);
    const leaseId = held.request.parameters[1];
    if (random.chance(0.3)) {
      held.pass();
      return killHolding(harness, slot, 'claim', ({ id }) => id === leaseId);
    }
    const answer = await held.forward();
    if (answer.rows === 0) {
      answer.pass();
      continue;
    }
    const kill = await killHolding(harness, slot, 'claim', ({ id }) => id === leaseId);
    answer.drop();
    return kill;
  }
}

/** The message is on its way: the sink may have it, but has not answered. */
async function killInDispatch(
  harness: Harness,
  slot: RelaySlot,
  random: Random,
): Promise<Kill | undefined> {
  const { name } = await slot.current();
  const { destination, ids } = await harness.sink.trap(name, random.chance(0.5));
  return killHolding(
    harness,
    slot,
    'dispatch',
    (lease) => lease.destination === destination && ids.some((id) => lease.ids.includes(id)),
  );
}

/** The sink has the message and has answered; the settle has not reached the database. */
async function killBeforeSettle(harness: Harness, slot: RelaySlot): Promise<Kill | undefined> {
  for (;;) {
    const held = await slot.proxy.hold(isSettle);
    const { leaseId, ids } = await settleOf(harness, held);
    const destination = await destinationOf(harness, leaseId);
    if (destination === undefined || (await harness.sink.countSeen(destination, ids)) === 0) {
      held.pass();
      continue;
    }
    const kill = await killHolding(harness, slot, 'publish–settle', ({ id }) => id === leaseId);
    held.drop();
    return kill;
  }
}

async function destinationOf(harness: Harness, leaseId: string): Promise<string | undefined> {
  const rows = await harness.query<{ name: string }>(
    `SELECT d.name FROM outbox.leases l JOIN outbox.destinations d ON d.id = l.destination_id WHERE l.id = $1`,
    [leaseId],
  );
  return rows[0]?.name;
}

/** The settle is running on the server: it waits for the lease's row, which is locked here until the kill. */
async function killInSettle(harness: Harness, slot: RelaySlot): Promise<Kill | undefined> {
  for (;;) {
    const held = await slot.proxy.hold(isSettle);
    const { leaseId } = await settleOf(harness, held);
    const client = await harness.pool.connect();
    try {
      await client.query('BEGIN');
      const { rows } = await client.query(
        'SELECT FROM outbox.leases WHERE id = $1 AND remaining > 0 FOR UPDATE',
        [leaseId],
      );
      held.pass();
      if (rows.length === 0) continue;
      await waitFor(
        async () => {
          const { rows: blocked } = await harness.pool.query(
            `SELECT FROM pg_stat_activity WHERE pg_backend_pid() <> pid AND wait_event_type = 'Lock'
                AND query ~ '\\.(settle|deliver_leases)\\(' AND $1 = ANY (pg_blocking_pids(pid))`,
            [await backendOf(client)],
          );
          return blocked.length > 0;
        },
        { what: 'the settle to be in flight' },
      );
      return await killHolding(harness, slot, 'settle', ({ id }) => id === leaseId);
    } finally {
      await client.query('ROLLBACK').catch(() => {});
      client.release();
    }
  }
}

async function backendOf(client: { query: Harness['pool']['query'] }): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
  return rows[0]?.pid ?? 0;
}

/** Kills the relay of the slot in this phase. Returns nothing for a kill that does not count. */
export async function killIn(
  phase: Phase,
  harness: Harness,
  slot: RelaySlot,
  random: Random,
): Promise<Kill | undefined> {
  await slot.current();
  switch (phase) {
    case 'claim':
      return killInClaim(harness, slot, random);
    case 'dispatch':
      return killInDispatch(harness, slot, random);
    case 'publish–settle':
      return killBeforeSettle(harness, slot);
    case 'settle':
      return killInSettle(harness, slot);
    case 'any moment':
      await delay(random.integer(0, 100));
      return killHolding(harness, slot, phase);
  }
}

/** SIGSTOP with a settle on its way, until others have taken over the lease; then the settle arrives. */
export async function stallBeyondLease(
  harness: Harness,
  slot: RelaySlot,
): Promise<LateSettle | undefined> {
  const { id: relayId, name } = await slot.current();
  const held = await slot.proxy.hold(isSettle);
  const { leaseId, ids } = await settleOf(harness, held);
  slot.signal('SIGSTOP');
  try {
    const lease = (await leasesOf(harness, relayId)).find(({ id }) => id === leaseId);
    if (lease === undefined) return undefined;
    await waitFor(
      async () => !(await leasesOf(harness, relayId)).some(({ id }) => id === leaseId),
      {
        what: `the lease of the stopped ${name} to expire`,
        timeoutMs: 20_000,
      },
    );
    const { destination, claimNos } = lease;
    return {
      relay: name,
      leaseId,
      destination,
      ids,
      claimNos: ids.map((id) => claimNos[lease.ids.indexOf(id)] ?? 0),
    };
  } finally {
    held.pass();
    slot.signal('SIGCONT');
  }
}

/** Cuts one connection of a relay: before the server sees its claim or settle, or before the response returns. */
export async function cutRelayConnection(slot: RelaySlot, random: Random): Promise<void> {
  await slot.current();
  const held = await slot.proxy.hold(random.pick([isClaim, isSettle]));
  if (random.chance(0.3)) held.drop();
  else (await held.forward()).drop();
}

/** Half-open: all connections of a relay fall silent with a settle on its way; new ones work. */
export async function silenceConnections(slot: RelaySlot): Promise<Silence> {
  const { name } = await slot.current();
  await slot.proxy.hold(isSettle);
  slot.proxy.freeze('present');
  const silentMs = performance.now();
  try {
    (await slot.proxy.hold(isSettle, 60_000)).pass();
    return { relay: name, resumedMs: performance.now() - silentMs };
  } finally {
    slot.proxy.cutFrozen();
  }
}

/** Cuts a producer's connection in COMMIT: it cannot know whether the server has seen it. */
export async function cutCommit(harness: Harness, random: Random): Promise<void> {
  const held = await holdCommit(harness, random);
  if (random.chance(0.5)) held.drop();
  else (await held.forward()).drop();
}

async function holdCommit(harness: Harness, random: Random): Promise<HeldRequest> {
  const { proxies } = harness.producers;
  const proxy = proxies[random.integer(0, proxies.length - 1)];
  if (proxy === undefined) throw new Error('there is no producer');
  return proxy.hold(isCommit);
}

/** An immediate stop of PostgreSQL, at a random moment or with a settle or a commit just sent. */
export async function crashDatabase(
  harness: Harness,
  slot: RelaySlot,
  random: Random,
): Promise<DatabaseCrash> {
  const moment = random.pick(['any moment', 'settle', 'commit'] as const);
  let held: HeldRequest | undefined;
  if (moment === 'settle') {
    await slot.current();
    held = await slot.proxy.hold(isSettle);
  }
  if (moment === 'commit') held = await holdCommit(harness, random);
  const [row] = await harness.query<{ leases: number }>(
    'SELECT count(*)::int AS leases FROM outbox.leases WHERE remaining > 0',
  );
  held?.pass();
  await harness.server.crash();
  await delay(random.integer(0, 300));
  await harness.server.restart();
  return { moment, leases: row?.leases ?? 0 };
}
