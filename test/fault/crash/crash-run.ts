// The crash proof: producers, relays and a sink run while relays are killed and PostgreSQL crashes. When all work has
// ended, the invariants are judged. A run that did not see enough (kills in each phase, a duplicate, a zombie requeue)
// has tested nothing, and fails too.

import { setTimeout as delay } from 'node:timers/promises';

import { waitFor } from '../../support/wait.js';
import { gatherEvidence } from './evidence.js';
import type { Evidence, Faults } from './evidence.js';
import {
  crashDatabase,
  cutCommit,
  cutRelayConnection,
  killIn,
  phases,
  silenceConnections,
  stallBeyondLease,
} from './faults.js';
import type { Phase } from './faults.js';
import { Harness, limits, mostInFlight } from './harness.js';
import { countDuplicates, judge } from './invariants.js';
import type { Finding } from './invariants.js';
import { Random } from './random.js';
import type { RelaySlot } from './relay-slot.js';

export type CrashRunOptions = {
  seed: number;
  messages: number;
  /** In each phase. */
  kills: number;
  killsAtAnyMoment: number;
  databaseCrashes: number;
  lateSettles: number;
  /** All connections of a relay at once. */
  silences: number;
  cuts: number;
  relays: number;
  producers: number;
  /** False removes the fence from the database, to show that the run then fails. */
  fence: boolean;
  quietBoundMs: number;
  log?: (line: string) => void;
};

/** Enough for a proof, and short enough for every test run. */
export const shortRun: Omit<CrashRunOptions, 'seed'> = {
  messages: 50_000,
  kills: 5,
  killsAtAnyMoment: 2,
  databaseCrashes: 2,
  lateSettles: 2,
  silences: 2,
  cuts: 2,
  relays: 3,
  producers: 2,
  fence: true,
  quietBoundMs: 40_000,
};

/** One round of a longer run. */
export const longRound: Omit<CrashRunOptions, 'seed'> = {
  ...shortRun,
  kills: 8,
  killsAtAnyMoment: 8,
  databaseCrashes: 4,
  lateSettles: 4,
  silences: 4,
  cuts: 6,
};

export type CrashReport = {
  seed: number;
  durationMs: number;
  evidence: Evidence;
  findings: Finding[];
  counts: {
    committed: number;
    aborted: number;
    unknown: number;
    received: number;
    duplicates: number;
    zombies: number;
    released: number;
    dead: number;
  };
};

export async function runCrashProof(options: CrashRunOptions): Promise<CrashReport> {
  const startedMs = performance.now();
  const log = options.log ?? (() => {});
  const harness = await Harness.start(options);
  try {
    log('everything has started');
    const faults = await inflict(harness, options, log);
    while (harness.producers.committed < options.messages) {
      // without relays the queue stays long and the producers stay blocked: fail with the reason instead of waiting
      for (const slot of harness.slots) await slot.current();
      await delay(50);
    }
    await harness.finishProducing();
    log('the producers have finished');
    const quietMs = await harness.quiet(options.quietBoundMs);
    log(quietMs === null ? 'quiet did not return' : `quiet after ${Math.round(quietMs)} ms`);
    const connectionsLeft = await harness.stopRelays();
    const evidence = await gatherEvidence(harness, {
      faults,
      quietMs,
      connectionsLeft,
      mostInFlight,
      stopDeadlineMs: limits.stopDeadlineMs,
    });
    const counts = count(evidence);
    const findings = [
      ...judge(evidence),
      { invariant: 'the run tested something', wrong: tooLittle(options, evidence, counts) },
    ];
    return {
      seed: options.seed,
      durationMs: performance.now() - startedMs,
      evidence,
      findings,
      counts,
    };
  } finally {
    await harness.remove();
  }
}

type Fault = Phase | 'database crash' | 'late settle' | 'half-open' | 'cut' | 'cut commit';

/** Injects every planned fault, in an order that the seed decides, with pauses in which work goes on. */
async function inflict(
  harness: Harness,
  options: CrashRunOptions,
  log: (line: string) => void,
): Promise<Faults> {
  const random = new Random(options.seed);
  const repeat = (fault: Fault, times: number) => Array.from({ length: times }, () => fault);
  const plan = random.shuffled([
    ...phases.flatMap((phase) => repeat(phase, options.kills)),
    ...repeat('any moment', options.killsAtAnyMoment),
    ...repeat('database crash', options.databaseCrashes),
    ...repeat('late settle', options.lateSettles),
    ...repeat('half-open', options.silences),
    ...repeat('cut', options.cuts),
    ...repeat('cut commit', options.cuts),
  ]);
  const faults: Faults = {
    kills: [],
    uncountedKills: 0,
    lateSettles: [],
    databaseCrashes: [],
    silences: [],
    connectionsCut: 0,
    commitsCut: 0,
  };
  // work must be in flight before the first fault
  await waitFor(() => harness.producers.committed > 0, {
    what: 'the first commit',
    timeoutMs: 60_000,
  });
  let victim: RelaySlot | undefined;
  for (const fault of plan) {
    const atMs = performance.now();
    for (let attempt = 1; ; attempt += 1) {
      // the last victim is still restarting
      const others = harness.slots.filter((each) => each !== victim);
      victim = others[random.integer(0, others.length - 1)] ?? harness.slots[0];
      if (await inflictOne(fault, harness, victim, random, faults)) break;
      if (attempt === 10)
        throw new Error(`"${fault}" could not be inflicted in ${attempt} attempts`);
    }
    log(
      `${fault} (${Math.round(performance.now() - atMs)} ms), ${harness.producers.committed} committed`,
    );
    await delay(random.integer(50, 250));
  }
  return faults;
}

/** True if it counts. */
async function inflictOne(
  fault: Fault,
  harness: Harness,
  slot: RelaySlot,
  random: Random,
  faults: Faults,
): Promise<boolean> {
  switch (fault) {
    case 'database crash':
      faults.databaseCrashes.push(await crashDatabase(harness, slot, random));
      return true;
    case 'late settle': {
      const late = await stallBeyondLease(harness, slot);
      if (late !== undefined) faults.lateSettles.push(late);
      return late !== undefined;
    }
    case 'half-open':
      faults.silences.push(await silenceConnections(slot));
      return true;
    case 'cut':
      await cutRelayConnection(slot, random);
      faults.connectionsCut += 1;
      return true;
    case 'cut commit':
      await cutCommit(harness, random);
      faults.commitsCut += 1;
      return true;
    default: {
      const kill = await killIn(fault, harness, slot, random);
      if (kill === undefined) faults.uncountedKills += 1;
      else faults.kills.push(kill);
      return kill !== undefined;
    }
  }
}

function count(evidence: Evidence): CrashReport['counts'] {
  const { produced, attempts, received, deadLetters } = evidence;
  const outcomes = { ok: 0, aborted: 0, unknown: 0 };
  for (const { outcome } of produced) outcomes[outcome] += 1;
  return {
    committed: outcomes.ok,
    aborted: outcomes.aborted,
    unknown: outcomes.unknown,
    received: received.length,
    duplicates: countDuplicates(evidence),
    zombies: attempts.filter(({ state }) => state === 'zombie_requeue').length,
    released: attempts.filter(({ state }) => state === 'released').length,
    dead: deadLetters.length,
  };
}

function tooLittle(
  options: CrashRunOptions,
  { faults }: Evidence,
  counts: CrashReport['counts'],
): string[] {
  const wrong: string[] = [];
  const least = (what: string, seen: number, wanted: number) => {
    if (seen < wanted) wrong.push(`${seen} ${what}, fewer than ${wanted}`);
  };
  least('messages', counts.committed, options.messages);
  least('duplicates', counts.duplicates, 1);
  least('zombie requeues', counts.zombies, 1);
  for (const phase of phases)
    least(
      `kills in ${phase}`,
      faults.kills.filter((kill) => kill.phase === phase).length,
      options.kills,
    );
  least('half-open relays', faults.silences.length, options.silences);
  least('database crashes', faults.databaseCrashes.length, options.databaseCrashes);
  return wrong;
}
