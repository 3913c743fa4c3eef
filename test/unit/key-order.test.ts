// Order within a key when ids are not in sequence order, and how far the cursor may move meanwhile.

import { expect, test } from 'vitest';

import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import { inKeyOrder, safePositions } from '../../src/core/key-order.js';
import { claimedMessage } from '../support/claimed-message.js';

function message(
  id: string,
  key: string | null = null,
  sequence: string | null = null,
): ClaimedMessage {
  return claimedMessage({ id, key, sequence });
}

const ids = (messages: readonly ClaimedMessage[]) => messages.map(({ id }) => id);

test('N4 messages of a key are sorted by sequence, and all others keep their place', () => {
  const page = [
    message('1', 'a', '10'),
    message('2'),
    message('3', 'b', '2'),
    message('4', 'a', '9'),
    message('5', 'b', '1'),
    message('6', 'c', '1'),
  ];
  expect(ids(inKeyOrder(page))).toEqual(['4', '2', '5', '1', '3', '6']);
});

test('N4 a page that is in order is passed on unchanged', () => {
  const page = [message('1', 'a', '9'), message('2', 'a', '10'), message('3')];
  expect(inKeyOrder(page)).toBe(page);
});

test('N4 the cursor moves past a message only when no remaining message is below it', () => {
  expect(safePositions(['1', '2', '3'].map((id) => message(id)))).toEqual(['1', '2', '3']);
  expect(safePositions(['4', '2', '3', '1', '5'].map((id) => message(id)))).toEqual([
    null,
    null,
    null,
    '4',
    '5',
  ]);
});
