// The invariants of every fault run, I1 to I10, judged from the evidence alone: no database, no process, no clock. Each
// returns sentences about what is wrong; none means that it holds.

import type { Attempt, Evidence } from './evidence.js';
import { destinationsByTopic } from './producers.js';
import type { Reception } from './sink.js';

export type Finding = {
  invariant: string;
  /** Empty: it holds. */
  wrong: string[];
  /** The reason why it was not judged, if it was not. */
  notApplicable?: string;
};

/** All relays may be dead at once, and restart slowly on a busy machine. */
const overdueBoundMs = 20_000;

/** One deadline (2 s above relay.mjs's statement timeout), the grace period of a second, and time to reconnect. */
const resumeBoundMs = 7000 + 1000 + 5000;

type Index = {
  attempts: Map<string, Attempt[]>;
  received: Map<string, Reception[]>;
  places: Map<string, string[]>;
};

export function judge(evidence: Evidence): Finding[] {
  const index = {
    attempts: group(evidence.attempts, (attempt) => attempt),
    received: group(evidence.received, (reception) => reception),
    places: group(evidence.places, ({ place }) => place),
  };
  return [
    {
      invariant: 'I1 what was committed is delivered, dead or discarded',
      wrong: nothingLost(evidence, index),
    },
    { invariant: 'I2 what was delivered was committed', wrong: nothingInvented(evidence) },
    {
      invariant: 'I3 first deliveries are in order per key',
      wrong: [],
      notApplicable: 'the messages have no key; the order proof judges it',
    },
    {
      invariant: 'I4 duplicates are bounded and identical',
      wrong: duplicatesBounded(evidence, index),
    },
    { invariant: 'I5 nothing is leased past its expiry', wrong: nothingOverdue(evidence) },
    {
      invariant: 'I6 claims are numbered without a gap, one ending each',
      wrong: claimsOrderly(evidence, index),
    },
    { invariant: 'I7 a late settle changes nothing', wrong: lateSettlesVoid(evidence, index) },
    { invariant: 'I8 the depth returns to 0', wrong: quietReturned(evidence) },
    { invariant: 'I9 counters equal rows', wrong: countersEqualRows(evidence) },
    { invariant: 'I10 no connection or handle leaks', wrong: nothingLeaks(evidence) },
  ];
}

function keyOf({ id, destination }: { id: string; destination: string }): string {
  return `${id} at ${destination}`;
}

function group<T extends { id: string; destination: string }, V>(
  items: readonly T[],
  valueOf: (item: T) => V,
): Map<string, V[]> {
  const groups = new Map<string, V[]>();
  for (const item of items) {
    const values = groups.get(keyOf(item));
    if (values === undefined) groups.set(keyOf(item), [valueOf(item)]);
    else values.push(valueOf(item));
  }
  return groups;
}

function nothingLost({ produced, messageIds }: Evidence, index: Index): string[] {
  const wrong: string[] = [];
  /** Transaction with an unknown outcome → which of its messages exist. */
  const unknown = new Map<string, Set<boolean>>();
  for (const { outcome, transaction, id, topic } of produced) {
    const exists = messageIds.has(id);
    if (outcome === 'aborted') continue;
    if (outcome === 'unknown')
      unknown.set(transaction, (unknown.get(transaction) ?? new Set()).add(exists));
    if (outcome === 'ok' && !exists) wrong.push(`${id} was committed and is gone`);
    if (!exists) continue;
    for (const destination of destinationsByTopic[topic] ?? []) {
      const key = keyOf({ id, destination });
      const places = index.places.get(key) ?? [];
      if (places.length !== 1 || !['dispatched', 'dead', 'discarded'].includes(places[0] ?? ''))
        wrong.push(`${key} is in [${places.join(', ')}], not in exactly one final place`);
    }
  }
  for (const [transaction, present] of unknown)
    if (present.size > 1) wrong.push(`transaction ${transaction} was committed in part`);
  for (const [key, places] of index.places)
    if (places.length > 1) wrong.push(`${key} is in more than one place: ${places.join(', ')}`);
  for (const [key, attempts] of index.attempts) {
    const receptions = index.received.get(key) ?? [];
    for (const { claimNo } of attempts.filter(({ state }) => state === 'dispatched')) {
      // the webhook does not send its claim number
      const accepted = receptions.some(
        (each) => each.answer === 'accept' && (each.claimNo ?? claimNo) === claimNo,
      );
      if (!accepted)
        wrong.push(
          `${key} is recorded as delivered by claim ${claimNo}, but the sink did not take it`,
        );
    }
  }
  return wrong;
}

function nothingInvented({ produced, received, messageIds }: Evidence): string[] {
  const outcomes = new Map(produced.map(({ id, outcome }) => [id, outcome]));
  const wrong: string[] = [];
  for (const [where, ids] of [
    ['the sink got', new Set(received.map(({ id }) => id))],
    ['the database holds', messageIds],
  ] as const) {
    for (const id of ids) {
      const outcome = outcomes.get(id) ?? 'never logged';
      if (outcome !== 'ok' && outcome !== 'unknown')
        wrong.push(`${where} ${id}, whose transaction was ${outcome}`);
    }
  }
  for (const { id } of received)
    if (!messageIds.has(id)) wrong.push(`the sink got ${id}, which the database does not hold`);
  return wrong;
}

/** Accepted receptions beyond the first of each message and destination. */
export function countDuplicates({ received }: Pick<Evidence, 'received'>): number {
  const accepted = received.filter(({ answer }) => answer === 'accept');
  return accepted.length - new Set(accepted.map(keyOf)).size;
}

function duplicatesBounded(evidence: Evidence, index: Index): string[] {
  const { faults, mostInFlight, produced, received, relays } = evidence;
  const wrong: string[] = [];
  const bodies = new Map(produced.map(({ id, bodyHash }) => [id, bodyHash]));
  for (const { id, bodyHash, relay } of received)
    if (bodies.get(id) !== bodyHash)
      wrong.push(`${id} came from ${relay} with another body than was enqueued`);
  // while the database is down no lease can be extended: a crash may cost every relay what it holds
  const slots = new Set(relays.map(({ name }) => name.replace(/-\d+$/, ''))).size;
  const victims =
    faults.kills.length +
    faults.uncountedKills +
    faults.lateSettles.length +
    faults.silences.length +
    slots * faults.databaseCrashes.length;
  const duplicates = countDuplicates(evidence);
  if (duplicates > victims * mostInFlight)
    wrong.push(
      `${duplicates} duplicates, but only ${victims} times at most ${mostInFlight} in flight`,
    );
  for (const [key, receptions] of index.received) {
    const attempts = index.attempts.get(key) ?? [];
    const sent = attempts.filter(({ state }) => state !== 'released');
    if (receptions.length > sent.length)
      wrong.push(
        `${key} was received ${receptions.length} times in ${sent.length} claims that were sent`,
      );
    for (const { claimNo } of receptions) {
      if (claimNo === null) continue;
      if (receptions.filter((each) => each.claimNo === claimNo).length > 1)
        wrong.push(`${key} was sent twice under claim ${claimNo}`);
      if (!sent.some((attempt) => attempt.claimNo === claimNo))
        wrong.push(`${key} was sent under claim ${claimNo}, which is recorded as never sent`);
    }
  }
  return wrong;
}

function nothingOverdue({ places, mostOverdueMs }: Evidence): string[] {
  const wrong: string[] = [];
  const leased = places.filter(({ place }) => place === 'leased').length;
  if (leased > 0) wrong.push(`${leased} deliveries are still leased after the end`);
  if (mostOverdueMs > overdueBoundMs)
    wrong.push(`a lease outlived its expiry by ${mostOverdueMs} ms, more than ${overdueBoundMs}`);
  return wrong;
}

const terminal = new Set<Attempt['state']>(['dispatched', 'failed', 'discarded']);

function claimsOrderly({ deadLetters, replayed }: Evidence, index: Index): string[] {
  const wrong: string[] = [];
  let raised = 0;
  for (const [key, attempts] of index.attempts) {
    let tries = 0;
    attempts.forEach(({ claimNo, state, tries: counted }, place) => {
      if (claimNo !== place + 1)
        wrong.push(
          `${key} has claims ${attempts.map((each) => each.claimNo).join(', ')}, not 1 to ${attempts.length}`,
        );
      const last = place === attempts.length - 1;
      if (state !== 'released' && state !== 'discarded') tries += 1;
      if (counted !== tries)
        wrong.push(
          `${key} claim ${claimNo} (${state}) counts ${counted} tries instead of ${tries}`,
        );
      if (last || !terminal.has(state)) return;
      if (state === 'failed') {
        raised += 1;
        tries = 0;
      } else {
        wrong.push(`${key} was ${state} by claim ${claimNo} and claimed again`);
      }
    });
    const ending = attempts.at(-1)?.state;
    if (
      ending !== undefined &&
      !terminal.has(ending) &&
      !index.places.get(key)?.some((place) => place === 'waiting' || place === 'leased')
    )
      wrong.push(`${key} ended as ${ending} and waits nowhere`);
  }
  for (const { claimNo, ...where } of deadLetters) {
    const last = index.attempts.get(keyOf(where))?.at(-1);
    if (last?.state !== 'failed' || last.claimNo !== claimNo)
      wrong.push(
        `${keyOf(where)} is dead by claim ${claimNo}, but its last attempt is ${last?.claimNo} ${last?.state}`,
      );
  }
  if (raised > replayed)
    wrong.push(`${raised} dead letters went on, but only ${replayed} replays are recorded`);
  return wrong;
}

function lateSettlesVoid({ faults, relays }: Evidence, index: Index): string[] {
  const wrong: string[] = [];
  for (const { relay, destination, ids, claimNos } of faults.lateSettles) {
    ids.forEach((id, place) => {
      const key = keyOf({ id, destination });
      const attempt = index.attempts.get(key)?.find(({ claimNo }) => claimNo === claimNos[place]);
      const expired = attempt?.state === 'zombie_requeue' || attempt?.errorCode === 'zombie';
      if (!expired)
        wrong.push(
          `${key}: the late settle of ${relay} made its expired claim ${attempt?.state ?? 'vanish'}`,
        );
    });
    const record = relays.find(({ name }) => name === relay);
    if (record?.end === 'stopped' && record.lost === 0)
      wrong.push(`${relay} was not told that its lease was lost`);
  }
  return wrong;
}

function quietReturned({ faults, quietMs, places }: Evidence): string[] {
  const late = faults.silences.filter(({ resumedMs }) => resumedMs > resumeBoundMs);
  const wrong = late.map(
    ({ relay, resumedMs }) =>
      `${relay}, all of whose connections were half-open, went on after ${Math.round(resumedMs)} ms, more than ${resumeBoundMs}`,
  );
  if (quietMs !== null) return wrong;
  const left = places.filter(({ place }) => place === 'waiting' || place === 'leased').length;
  return [...wrong, `${left} deliveries were still waiting or leased when the time limit ended`];
}

function countersEqualRows({ attempts, deadLetters, health, relays }: Evidence): string[] {
  const wrong: string[] = [];
  const recorded = new Map<string, number>();
  for (const { relayId, state, errorCode } of attempts) {
    if (relayId === null || state === 'released' || errorCode === 'zombie') continue;
    recorded.set(relayId, (recorded.get(relayId) ?? 0) + 1);
  }
  for (const { name, id, end, settled, settledReleases, lost } of relays) {
    const rows = recorded.get(id) ?? 0;
    const said = settled - lost;
    // a killed relay may have recorded more than it reported, but never less
    if (said > rows)
      wrong.push(`${name} says it settled ${said} (${lost} lost), but ${rows} are recorded`);
    // the lost settle may have been a release, which is not counted here
    if (end === 'stopped' && rows > said + Math.min(lost, settledReleases))
      wrong.push(`${name} says it settled ${said}, but ${rows} are recorded`);
  }
  const zombies = attempts.filter(({ errorCode }) => errorCode === 'zombie').length;
  const reaped = relays.reduce((sum, relay) => sum + relay.reaped, 0);
  if (reaped > zombies)
    wrong.push(`the relays say they reaped ${reaped}, but ${zombies} are recorded`);
  const expected = { waiting: 0, processing: 0, unrouted: 0, dead: deadLetters.length };
  for (const [metric, value] of Object.entries(expected))
    if (health[metric] !== value)
      wrong.push(`health says ${metric} = ${health[metric]}, the rows say ${value}`);
  return wrong;
}

function nothingLeaks({ connectionsLeft, relays, stopDeadlineMs }: Evidence): string[] {
  const wrong: string[] = [];
  if (connectionsLeft > 0)
    wrong.push(`${connectionsLeft} connections are left after every relay has stopped`);
  for (const { name, end, ending, stopMs, lastWords } of relays) {
    if (end === 'died')
      wrong.push(`${name} died by itself (${ending?.code ?? ending?.signal}): ${lastWords}`);
    if (end !== 'stopped') continue;
    if (ending?.code !== 0)
      wrong.push(`${name} ended with ${ending?.code ?? ending?.signal}: ${lastWords}`);
    if (stopMs > stopDeadlineMs + 2000) wrong.push(`${name} took ${Math.round(stopMs)} ms to stop`);
  }
  return wrong;
}
