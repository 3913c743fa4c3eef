// How many connections a relay opens for work: docs/deployment.md has the arithmetic.

import { expect, test } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { workConnections } from '../../src/relay/setup.js';

const queue = handler(() => {});
const stream = handler(() => {}, { mode: 'stream' });

test('N4 what reads the log has connections for the pages that it reads ahead, beside those of the others', () => {
  const of = (...destinations: (typeof queue)[]) =>
    workConnections({
      destinations: Object.fromEntries(destinations.entries()),
      endpoints: undefined,
    });
  expect(of(queue)).toBe(4);
  expect(of(queue, queue, queue)).toBe(8);
  expect(of(stream)).toBe(6);
  expect(of(queue, stream, stream)).toBe(12);
  expect(of(...Array.from({ length: 30 }, () => stream))).toBe(20);
});
