// What must be true of a seed once quiet has returned. The producers' log and the sink's log decide; the database
// is asked only what became of messages that the sink did not take: dead and when, discarded and when.

import type { Skip } from './operator.js';
import { routes, whenDead } from './plan.js';
import type { DestinationName } from './plan.js';
import type { Produced } from './producer.js';
import type { Reception } from './sink.js';

export type Ending = {
  id: string;
  destination: DestinationName;
  state: string;
  endedMs: number;
};

export type Evidence = {
  produced: readonly Produced[];
  received: readonly Reception[];
  endings: readonly Ending[];
  deadLetters: readonly { id: string; destination: DestinationName; reason: string }[];
  skips: readonly Skip[];
  /** `destination id` of the dead letters that an operator has sent again. */
  retried: ReadonlySet<string>;
  /** What was refused to a producer or an operator and should not have been. */
  refusals: readonly string[];
  /** What still waits, is held or stands in a lane though everything should have ended; empty when quiet returned. */
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

/** 1 to n without a gap for each key, and in the order of the commits. */
function judgeSequences(evidence: Evidence): string[] {
  const wrong: string[] = [];
  const keyed = committed(evidence).filter(({ stream }) => stream !== null);
  for (const [stream, messages] of grouped(keyed, (message) => message.stream ?? '')) {
    const inOrder = messages.toSorted((a, b) => (a.sequence ?? 0) - (b.sequence ?? 0));
    const numbers = inOrder.map(({ sequence }) => sequence);
    if (!numbers.every((number, index) => number === index + 1))
      wrong.push(`the sequence of ${stream} has gaps or repeats: ${numbers.join(' ')}`);
    // whatever was asked for after another had committed comes after it
    let latestAskedMs = 0;
    for (const message of inOrder) {
      if (message.committedMs < latestAskedMs)
        wrong.push(`${message.label} committed before an earlier one of ${stream} was asked for`);
      latestAskedMs = Math.max(latestAskedMs, message.askedMs);
    }
  }
  for (const { stream, sequence, label } of evidence.produced)
    if ((stream === null) !== (sequence === null)) wrong.push(`${label} has sequence ${sequence}`);
  return wrong;
}

/** A duplicate is answered with the first one's id and number. */
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

/** What was committed was taken, or is dead or discarded; nothing else arrived. */
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

/** First arrivals of a key are in order, and each is told the right number before its own. */
function judgeOrder(evidence: Evidence): string[] {
  const wrong: string[] = [];
  const arrivals = grouped(evidence.received, ({ destination, id }) => `${destination} ${id}`);
  const endings = grouped(evidence.endings, ({ destination, id }) => `${destination} ${id}`);
  const skips = grouped(evidence.skips, ({ destination, id }) => `${destination} ${id}`);
  const keyed = deliveries(evidence).filter(({ stream }) => stream !== null);

  /** Whether a message is out of the way of those behind it at this moment. */
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

  for (const lane of grouped(
    keyed,
    ({ destination, stream }) => `${destination} ${stream}`,
  ).values()) {
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

  /** Only what was discarded may lie between; a dead letter that is sent again is told nothing. */
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
