// Filters by fields of payloads: which fields may be declared, and the condition that the database checks.

import { describe, expect, it } from 'vitest';

import { payloadValue } from '../../src/cli/arguments.js';
import { payloadPath } from '../../src/listing/payload-filter.js';
import { resolveServerOptions } from '../../src/server/options.js';

describe('W5 server.searchablePayloadFields', () => {
  it('are none by default, and paths of names', () => {
    expect(resolveServerOptions({}).searchablePayloadFields).toBeUndefined();
    const fields = ['orderId', 'customer.email', 'größe', '$ref', 'a-b_c'];
    expect(
      resolveServerOptions({ searchablePayloadFields: fields }).searchablePayloadFields,
    ).toEqual(fields);
  });

  it.each([
    ['', '""'],
    ['customer..email', '"customer..email"'],
    ['.email', '".email"'],
    ['order id', '"order id"'],
    ['a=b', '"a=b"'],
    ['a:b', '"a:b"'],
    ['a"b', String.raw`"a\"b"`],
    ['half\ud83d', '"half'],
    ['a\u0000b', '"a'],
    ['1.2.3.4.5.6.7.8.9.10.11', '"1.2.3'],
    ['x'.repeat(256), '"xxx'],
    [4711, '4711'],
  ])('refuse %j with the field, the value and a remedy', (field, value) => {
    const resolve = () =>
      resolveServerOptions({ searchablePayloadFields: ['orderId', field as string] });
    expect(resolve).toThrow(`server.searchablePayloadFields[1] is ${value}`);
    expect(resolve).toThrow('give 1 to 10 names joined by dots, such as customer.email');
  });

  it('are at most twenty', () => {
    const of = (length: number) => () =>
      resolveServerOptions({
        searchablePayloadFields: Array.from({ length }, (_, n) => `field${n}`),
      });
    expect(of(20)).not.toThrow();
    expect(of(21)).toThrow(/^server\.searchablePayloadFields is .*give a list of 1 to 20 values/);
    expect(of(0)).toThrow('give a list of 1 to 20 values');
  });
});

describe('W5 the condition on a payload', () => {
  it.each([
    [{ orderId: '4711' }, '$ ? ((@."orderId" == "4711" || @."orderId" == 4711))'],
    [{ orderId: '007' }, '$ ? ((@."orderId" == "007"))'],
    [{ orderId: '1e9999999' }, '$ ? ((@."orderId" == "1e9999999"))'],
    [{ 'a.b': 'true' }, '$ ? ((@."a"."b" == "true" || @."a"."b" == true))'],
    [{ a: 'x"y\\' }, String.raw`$ ? ((@."a" == "x\"y\\"))`],
    [
      { a: '-1.50', b: 'null' },
      '$ ? ((@."a" == "-1.50" || @."a" == -1.50) && (@."b" == "null" || @."b" == null))',
    ],
  ])('%j', (filter, path) => {
    expect(payloadPath(filter)).toBe(path);
  });

  it.each([
    [{}, 'payload has 0 fields: give 1 to 20'],
    [{ 'a b': '1' }, 'the field of a payload is "a b": give 1 to 10 names'],
    [{ a: 'half \ud83d' }, 'payload.a is'],
    [{ a: 'x\u0000' }, 'payload.a is'],
    [{ a: 'x'.repeat(1025) }, 'give text of at most 1024 characters'],
  ])('%j is refused', (filter, words) => {
    expect(() => payloadPath(filter)).toThrow(words);
  });
});

describe('W5 --payload', () => {
  it('adds up, and a value may contain =', () => {
    const first = payloadValue('orderId=4711');
    expect(payloadValue('customer.name=a=b', first)).toEqual({
      orderId: '4711',
      'customer.name': 'a=b',
    });
  });
  it.each([
    ['orderId', 'give FIELD=VALUE, for example orderId=4711'],
    ['=4711', 'give FIELD=VALUE'],
    ['orderId=', 'give FIELD=VALUE'],
    ['order id=1', 'the field of a payload is "order id"'],
  ])('%s is refused with an example', (text, words) => {
    expect(() => payloadValue(text)).toThrow(words);
  });
  it('takes each field once', () => {
    expect(() => payloadValue('a=2', { a: '1' })).toThrow('give a once');
  });
});
