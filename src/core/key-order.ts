// Order within a key. A page of a cursor's window is read in the order of message ids. If the clock stepped back
// within a transaction, or two messages were made in one tick of it, the sequences of a key give the true order.
// Messages of a key swap places only among themselves, so every other key keeps its order.

import type { ClaimedMessage } from './claimed-message.js';

export function inKeyOrder(messages: readonly ClaimedMessage[]): readonly ClaimedMessage[] {
  const places = new Map<string, number[]>();
  let inOrder = true;
  messages.forEach((message, place) => {
    if (message.key === null || message.sequence === null) return;
    const key = JSON.stringify([message.namespace, message.tenantId, message.key]);
    const taken = places.get(key);
    if (taken === undefined) places.set(key, [place]);
    else {
      const before = messages[taken.at(-1) ?? 0];
      inOrder &&= before !== undefined && sequenceOf(before) < sequenceOf(message);
      taken.push(place);
    }
  });
  if (inOrder) return messages;
  const ordered = [...messages];
  for (const taken of places.values()) {
    const sorted = taken
      .map((place) => messages[place] as ClaimedMessage)
      .toSorted((a, b) => (sequenceOf(a) < sequenceOf(b) ? -1 : 1));
    taken.forEach((place, index) => (ordered[place] = sorted[index] as ClaimedMessage));
  }
  return ordered;
}

function sequenceOf({ sequence }: ClaimedMessage): bigint {
  return BigInt(sequence ?? 0);
}

/**
 * Entry n: how far the cursor may move once messages 0 to n are finished; null: not at all. No unfinished message has
 * an id at or below it.
 */
export function safePositions(messages: readonly ClaimedMessage[]): (string | null)[] {
  const lowestAfter: string[] = [];
  // sorts after every id, whose digits are hexadecimal
  let lowest = 'g';
  for (const { id } of messages.toReversed()) {
    lowestAfter.push(lowest);
    if (id < lowest) lowest = id;
  }
  let highest = '';
  let safe: string | null = null;
  return messages.map(({ id }, index) => {
    if (id > highest) highest = id;
    if (highest < (lowestAfter[messages.length - 1 - index] ?? '')) safe = highest;
    return safe;
  });
}
