// The number of connections that a relay opens for work, as documented in docs/operate/deployment.md.

import { expect, test } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { workConnections } from '../../src/relay/setup.js';

const queue = handler(() => {});
const stream = handler(() => {}, { mode: 'stream' });

test('N4 a destination in stream mode has connections for the pages that it reads ahead, in addition to those of the others', () => {
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
