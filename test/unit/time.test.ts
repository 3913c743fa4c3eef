// Accepted formats of a time, for producers, commands and the API.

import { expect, it } from 'vitest';

import { time } from '../../src/cli/arguments.js';
import { timeOf } from '../../src/core/time.js';

it.each([
  ['2030-01-31', '2030-01-31T00:00:00.000Z'],
  ['2028-02-29', '2028-02-29T00:00:00.000Z'],
  ['2030-01-02T03:04Z', '2030-01-02T03:04:00.000Z'],
  ['2030-01-02T03:04:05.678901Z', '2030-01-02T03:04:05.678Z'],
  ['2030-01-01T00:30:00+01:00', '2029-12-31T23:30:00.000Z'],
  ['2030-01-01 00:30:00-0100', '2030-01-01T01:30:00.000Z'],
])('M2 %s is a time', (text, iso) => {
  expect(timeOf(text)?.toISOString()).toBe(iso);
  expect(time(text).toISOString()).toBe(iso);
});

it.each([
  '',
  '3 days',
  'order 12',
  '12',
  'Jan 5 2030',
  '2030-02-29',
  '2030-02-30T00:00:00Z',
  '2030-13-01',
  '2030-01-01T25:00Z',
  '2030-01-01T00:00:00Z x',
  '2030-01-01Z',
  '+012000-01-01T00:00:00Z',
  '-271821-04-20T00:00:00Z',
])('M2 "%s" is not a time', (text) => {
  expect(timeOf(text)).toBeNull();
  expect(() => time(text)).toThrow(/give a time such as/);
});

it('M2 a value that is not text is not a time', () => {
  for (const value of [null, undefined, true, 0, [], {}, new Date()])
    expect(timeOf(value)).toBeNull();
});
