// How the page formats payloads and numbers: no value is rounded into a wrong one.

import fc from 'fast-check';
import { expect, it } from 'vitest';

import { formatJson } from '../../dashboard/src/json-format.js';
import {
  about,
  bytes,
  count,
  countUpTo,
  milliseconds,
  rate,
  seconds,
  share,
  withSeparators,
} from '../../dashboard/src/shown.js';

it('W5 a payload is formatted as JSON.stringify would, without being parsed', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      expect(formatJson(JSON.stringify(value))).toBe(JSON.stringify(value, null, 2));
    }),
  );
});

it('W5 numbers in a payload keep every digit, and a truncated payload is still shown', () => {
  expect(formatJson('{"a": 12345678901234567890.100, "b": [1E400, -0]}')).toBe(
    '{\n  "a": 12345678901234567890.100,\n  "b": [\n    1E400,\n    -0\n  ]\n}',
  );
  expect(formatJson(String.raw`{"a": ["x, {\"y`)).toBe('{\n  "a": [\n    "x, {\\"y');
});

it.each([
  [0, '0 %'],
  [1, '100 %'],
  [0.5, '50.0 %'],
  [0.99999999, '99.999 %'],
  [0.00000001, '0.001 %'],
  [null, '–'],
])('W5 the share %s is %s', (value, text) => {
  expect(share(value)).toBe(text);
});

it('W5 whole numbers are exact, and capped counts are marked', () => {
  expect(count('9007199254740993')).toBe('9\u202f007\u202f199\u202f254\u202f740\u202f993');
  expect(count(null)).toBe('–');
  expect(countUpTo(99_999, 100_000)).toBe('99\u202f999');
  expect(countUpTo(100_000, 100_000)).toBe('100\u202f000+');
});

it('W5 the counts of an alert have separators, and the names of destinations stay as they are', () => {
  const shown = (text: string) => withSeparators(text).replaceAll('\u202f', '_');
  expect(
    shown('23456 deliveries to 12345 and 1234 other destinations wait (alert above 10000)'),
  ).toBe('23_456 deliveries to 12345 and 1_234 other destinations wait (alert above 10_000)');
  const names = 'circuit breakers are open: 12345 at 2026, crm-4711 at r1 and 1234 others';
  expect(shown(names)).toBe(names.replace('1234 others', '1_234 others'));
  expect(shown('at least 10000 messages without a route')).toBe(
    'at least 10_000 messages without a route',
  );
});

it('W5 rates, durations and sizes are formatted with their units', () => {
  expect([0, 9.994, 12.34, 1234.5].map(rate)).toEqual(['0.00', '9.99', '12.3', '1\u202f235']);
  expect([0, 7, 7.25, 999, 1500].map(milliseconds)).toEqual([
    '0 ms',
    '7 ms',
    '7.3 ms',
    '999 ms',
    '1.5 s',
  ]);
  expect([3, 90, 3600, 90_000, 900_000].map(seconds)).toEqual([
    '3.0 s',
    '90 s',
    '60 min',
    '25 h',
    '10 d',
  ]);
  expect(['999', '1000', '123456', '98765432109'].map(bytes)).toEqual([
    '999 B',
    '1.0 kB',
    '123 kB',
    '98.8 GB',
  ]);
});

it('W5 an estimate is marked as one, and is not shown too exactly', () => {
  expect(about(999, 1000)).toBe('999');
  expect(about(1000, 1000)).toBe('≈ 1\u202f000');
  expect(about(141_234, 1000)).toBe('≈ 140\u202f000');
  expect(about(null, 1000)).toBe('–');
});
