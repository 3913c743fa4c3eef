// The judge of a seed, after all work has ended. The producers' log and the sink's log decide. The database is asked
// only about messages that the sink did not accept: dead and when, discarded and when.

import { changeMs } from '../../support/movable-clock.js';
import type { Skip } from './operator.js';
import { routes, whenDead } from './plan.js';
import type { DestinationName } from './plan.js';
import type { Produced } from './producer.js';
import type { Reading, Reception } from './sink.js';

export type Ending = {
  id: string;
  destination: DestinationName;
  state: string;
  endedMs: number;
};

export type Evidence = {
  produced: readonly Produced[];
  received: readonly Reception[];
  /** The messages that a subscription read, or undefined if the seed has none. */
  read: readonly Reading[] | undefined;
  /** When the database's clock was corrected. */
  corrections: readonly number[];
  endings: readonly Ending[];
  deadLetters: readonly { id: string; destination: DestinationName; reason: string }[];
  skips: readonly Skip[];
  /** `destination id` of the dead letters that an operator has retried. */
  retried: ReadonlySet<string>;
  /** Refusals of a producer or an operator that should not have happened. */
  refusals: readonly string[];
  /** Deliveries that are still pending, leased or in a lane after everything should have ended; empty if all ended. */
  stuck: readonly string[];
};

/** A message on its way to one destination. */
type Delivery = Produced & { destination: DestinationName; place: string };

export function judge(evidence: Evidence): string[] {
  return [
    ...evidence.refusals,
    ...evidence.stuck,
    ...judgeSequences(evidence),
    ...judgeDuplicates(evidence),
    ...judgeConservation(evidence),
    ...judgeOrder(evidence),
    ...judgeReading(evidence),
  ];
}

function committed({ produced }: Evidence): Produced[] {
  return produced.filter(({ outcome, duplicate }) => outcome === 'committed' && !duplicate);
}

function deliveries(evidence: Evidence): Delivery[] {
  return committed(evidence).flatMap((message) =>
    (routes[message.topic] ?? []).map((destination) => ({
      ...message,
      destination,
      place: `${destination} ${message.id}`,
    })),
  );
}

function grouped<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(keyOf(item));
    if (group === undefined) groups.set(keyOf(item), [item]);
    else group.push(item);
  }
  return groups;
}

/** Sequences of each key run from 1 to n without a gap, in commit order. */
function judgeSequences(evidence: Evidence): string[] {
  const wrong: string[] = [];
  const keyed = committed(evidence).filter(({ key }) => key !== null);
  for (const [key, messages] of grouped(keyed, (message) => message.key ?? '')) {
    const inOrder = messages.toSorted((a, b) => (a.sequence ?? 0) - (b.sequence ?? 0));
    const numbers = inOrder.map(({ sequence }) => sequence);
    if (!numbers.every((number, index) => number === index + 1))
      wrong.push(`the sequence of ${key} has gaps or repeats: ${numbers.join(' ')}`);
    // an enqueue that began after another commit gets a later number
    let latestAskedMs = 0;
    for (const message of inOrder) {
      if (message.committedMs < latestAskedMs)
        wrong.push(`${message.label} committed before an earlier one of ${key} was asked for`);
      latestAskedMs = Math.max(latestAskedMs, message.askedMs);
    }
  }
  for (const { key, sequence, label } of evidence.produced)
    if ((key === null) !== (sequence === null)) wrong.push(`${label} has sequence ${sequence}`);
  return wrong;
}

/** A duplicate returns the id and the number of the first message. */
function judgeDuplicates(evidence: Evidence): string[] {
  const kept = evidence.produced.filter(
    ({ outcome, dedupe }) => outcome === 'committed' && dedupe !== null,
  );
  return [...grouped(kept, ({ dedupe }) => dedupe ?? '')].flatMap(([dedupe, answers]) => {
    const firsts = answers.filter(({ duplicate }) => !duplicate).length;
    const same = new Set(answers.map(({ id, sequence }) => `${id} ${sequence}`)).size;
    return firsts === 1 && same === 1
      ? []
      : [`the dedupe key "${dedupe}" has ${firsts} firsts and ${same} different answers`];
  });
}

/** Committed messages were accepted, or are dead or discarded; nothing else arrived. */
function judgeConservation(evidence: Evidence): string[] {
  const wrong: string[] = [];
  const known = new Map(deliveries(evidence).map((delivery) => [delivery.place, delivery]));
  const dead = new Map(
    evidence.deadLetters.map((letter) => [`${letter.destination} ${letter.id}`, letter]),
  );
  const discarded = placesOf(evidence.endings.filter(({ state }) => state === 'discarded'));
  const arrivals = grouped(evidence.received, ({ destination, id }) => `${destination} ${id}`);
  for (const [place, receptions] of arrivals) {
    const delivery = known.get(place);
    for (const { label, sequence } of receptions)
      if (delivery === undefined || label !== delivery.label)
        wrong.push(`${label} arrived at ${place} and was never committed for it`);
      else if (sequence !== (delivery.sequence === null ? null : String(delivery.sequence)))
        wrong.push(`${label} arrived as number ${sequence} and is number ${delivery.sequence}`);
  }
  for (const { place, label } of known.values()) {
    const answers = (arrivals.get(place) ?? []).map(({ answer }) => answer);
    const letter = dead.get(place);
    if (letter?.reason === 'rejected' && !answers.includes('reject'))
      wrong.push(`${label} is a dead letter of ${place} as rejected, which the sink never did`);
    if (!answers.includes('accept') && letter === undefined && !discarded.has(place))
      wrong.push(
        `${label} is lost: neither taken at ${place} nor dead nor discarded (${answers.join(' ')})`,
      );
  }
  return wrong;
}

function placesOf(items: readonly { id: string; destination: string }[]): Set<string> {
  return new Set(items.map(({ id, destination }) => `${destination} ${id}`));
}

/** First arrivals of a key are in order, and each carries the right previous sequence. */
function judgeOrder(evidence: Evidence): string[] {
  const wrong: string[] = [];
  const arrivals = grouped(evidence.received, ({ destination, id }) => `${destination} ${id}`);
  const endings = grouped(evidence.endings, ({ destination, id }) => `${destination} ${id}`);
  const skips = grouped(evidence.skips, ({ destination, id }) => `${destination} ${id}`);
  const keyed = deliveries(evidence).filter(({ key }) => key !== null);

  /** Whether a message no longer blocks those behind it at this moment. */
  const isPast = (
    { place, destination }: Delivery,
    { arrivedNo, arrivedMs }: Reception,
  ): boolean => {
    const before = (state: string) =>
      (endings.get(place) ?? []).some(
        (ending) => ending.state === state && ending.endedMs <= arrivedMs,
      );
    const taken = (arrivals.get(place) ?? []).some(
      ({ answer, answeredNo }) => answer === 'accept' && answeredNo < arrivedNo,
    );
    const skipped = (skips.get(place) ?? []).some(({ atMs }) => atMs <= arrivedMs);
    return (
      taken ||
      before('discarded') ||
      (before('failed') && (whenDead[destination] === 'continue' || skipped))
    );
  };

  for (const lane of grouped(keyed, ({ destination, key }) => `${destination} ${key}`).values()) {
    const inOrder = lane.toSorted((a, b) => (a.sequence ?? 0) - (b.sequence ?? 0));
    inOrder.forEach((delivery, index) => {
      const { place, label } = delivery;
      const [first, ...again] = arrivals.get(place) ?? [];
      if (first === undefined) return;
      for (const earlier of inOrder.slice(0, index))
        if (!isPast(earlier, first))
          wrong.push(
            `${label} arrived at ${place} before ${earlier.label} of the same key was past`,
          );
      for (const reception of [first, ...again])
        if (!isRightPrevious(reception, inOrder.slice(0, index)))
          wrong.push(
            `${label} (${delivery.sequence}) was told that ${reception.previousSequence} is before it at ${place}`,
          );
    });
  }
  return wrong;

  /** Only discarded messages may lie between; a retried dead letter carries no previous sequence. */
  function isRightPrevious(
    { previousSequence, destination, id }: Reception,
    earlier: readonly Delivery[],
  ): boolean {
    if (previousSequence === null) return evidence.retried.has(`${destination} ${id}`);
    const previous = Number(previousSequence);
    if (previous !== 0 && !earlier.some(({ sequence }) => sequence === previous)) return false;
    return earlier
      .filter(({ sequence }) => (sequence ?? 0) > previous)
      .every(({ place }) => (endings.get(place) ?? []).some(({ state }) => state === 'discarded'));
  }
}

/**
 * A subscription reads every committed message and nothing else, each key in order, and parks nothing. For a message
 * whose transaction was open while the clock was corrected, docs/guides/ordering.md does not promise the order.
 */
function judgeReading(evidence: Evidence): string[] {
  const { read, corrections, deadLetters } = evidence;
  if (read === undefined) return [];
  const known = new Map(committed(evidence).map((message) => [message.id, message]));
  const places = new Map<string, number>();
  const wrong: string[] = [];
  read.forEach(({ id, label }, place) => {
    if (known.get(id)?.label !== label) wrong.push(`${label} was read and was never committed`);
    if (!places.has(id)) places.set(id, place);
  });
  for (const { id, label } of known.values())
    if (!places.has(id)) wrong.push(`${label} is lost: it was never read`);
  for (const { id, destination } of deadLetters)
    if (!(destination in whenDead))
      wrong.push(`${known.get(id)?.label} was parked, and its reader never failed`);
  const keyed = [...known.values()].filter(
    ({ id, key, askedMs, committedMs }) =>
      key !== null &&
      places.has(id) &&
      !corrections.some((atMs) => askedMs <= atMs + changeMs && atMs <= committedMs),
  );
  for (const messages of grouped(keyed, ({ key }) => key ?? '').values()) {
    const inOrder = messages.toSorted((a, b) => (a.sequence ?? 0) - (b.sequence ?? 0));
    let previous: Produced | undefined;
    for (const message of inOrder) {
      if (previous && (places.get(message.id) ?? 0) < (places.get(previous.id) ?? 0))
        wrong.push(`${message.label} was read before ${previous.label} of the same key`);
      else previous = message;
    }
  }
  return wrong;
}
