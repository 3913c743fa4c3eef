// What a text in the search box means.

import { describe, expect, it } from 'vitest';

import { meaningsOf, readWords } from '../../dashboard/src/search-words.js';
import type { Known } from '../../dashboard/src/search-words.js';

const id = '019a8f2e-7a31-7c55-9a3b-6f1f2a9d0c11';
const nothing: Known = { topics: [], destinations: [], tenants: [], payloadFields: [] };

describe('W5 words with a colon are filters', () => {
  it.each([
    ['status:dead', { status: 'dead' }],
    ['status:failed', { status: 'failed' }],
    ['topic:order.*', { topic: 'order.*' }],
    ['key:order-1', { key: 'order-1' }],
    ['key:"a key with spaces"', { key: 'a key with spaces' }],
    ['tenant:acme', { tenantId: 'acme' }],
    ['destination:crm', { destination: 'crm' }],
    ['dedupe:user:1:welcome', { dedupeKey: 'user:1:welcome' }],
    ['aggregate:order/77', { aggregateType: 'order', aggregateId: '77' }],
    ['aggregate:77', { aggregateId: '77' }],
    ['http:500', { errorCode: '500' }],
    ['code:timeout', { errorCode: 'timeout' }],
    ['namespace:billing', { namespace: 'billing' }],
    [`id:${id}`, { id }],
    ['payload.orderId:4711', { 'payload.orderId': '4711' }],
    ['payload.customer.email:a@b.c', { 'payload.customer.email': 'a@b.c' }],
    ['payload.note:"two words"', { 'payload.note': 'two words' }],
    ['payload.at:12:30 status:dead', { 'payload.at': '12:30', status: 'dead' }],
    ['  status:dead   tenant:acme ', { status: 'dead', tenantId: 'acme' }],
  ])('%s', (text, filters) => {
    expect(readWords(text)).toEqual({ filters, free: '', problem: undefined });
  });
});

describe('W5 a wrong value is named, with a remedy', () => {
  it.each([
    ['status:lost', 'status is "lost": give pending, retrying'],
    ['http:5', 'http is "5": give an HTTP status'],
    ['id:5', 'id is "5": give a UUID'],
    ['key:""', 'key is "": give a value'],
    ['topic:', 'topic is "": give a value'],
    ['payload.orderId:""', 'payload.orderId is "": give a value'],
    ['aggregate:order/', 'aggregate is "order/": give type/id'],
    ['code:timeout code:reset', 'code is given twice: give one'],
    ['code:timeout http:500', 'http is given beside code: give one of them'],
    ['payload.orderId:1 payload.orderId:2', 'payload.orderId is given twice: give one'],
  ])('%s', (text, words) => {
    expect(readWords(text).problem).toContain(words);
  });
});

it('W5 other words are free text, also with a colon', () => {
  expect(readWords('a:b constructor:x status:dead')).toEqual({
    filters: { status: 'dead' },
    free: 'a:b constructor:x',
    problem: undefined,
  });
});

describe('W5 free text has several meanings', () => {
  const kinds = (text: string, known: Partial<Known> = {}) =>
    meaningsOf(readWords(text), { ...nothing, ...known }).map(
      ({ kind, value }) => `${kind} ${value}`,
    );

  it('known topics and destinations come before keys, tenants, aggregates and dedupe keys', () => {
    expect(kinds('or', { topics: ['order.paid'], destinations: ['orders'] })).toEqual([
      'Topic order.paid',
      'Destination orders',
      'Key or',
      'Tenant or',
      'Aggregate id or',
      'Dedupe key or',
    ]);
  });
  it('a known tenant comes before the other meanings, and only once', () => {
    expect(kinds('acme', { tenants: ['acme', 'acme-eu'] })).toEqual([
      'Tenant acme',
      'Tenant acme-eu',
      'Key acme',
      'Aggregate id acme',
      'Dedupe key acme',
    ]);
  });
  it('also that of a value of a declared field of the payload, which comes last', () => {
    const known = { payloadFields: ['orderId', 'customer.email'] };
    expect(kinds('4711', known).slice(-3)).toEqual([
      'Dedupe key 4711',
      'Payload orderId 4711',
      'Payload customer.email 4711',
    ]);
    expect(meaningsOf(readWords('4711'), { ...nothing, ...known }).at(-1)).toMatchObject({
      filters: { 'payload.customer.email': '4711' },
    });
  });
  it('the beginning of a declared field is completed', () => {
    const known = { topics: ['pay.done'], payloadFields: ['orderId', 'customer.email'] };
    expect(kinds('pay', known).slice(0, 3)).toEqual([
      'Topic pay.done',
      'Payload field payload.orderId:',
      'Payload field payload.customer.email:',
    ]);
    expect(kinds('payload.', known)[0]).toBe('Payload field payload.orderId:');
    expect(kinds('payload.cu', known)[0]).toBe('Payload field payload.customer.email:');
    expect(kinds('payload.orderId:', known)).toEqual([]);
  });
  it('a beginning of topics comes first', () => {
    expect(kinds('order.')[0]).toBe('Topics order.*');
    expect(kinds('order.*')[0]).toBe('Topics order.*');
  });
  it('a UUID is a message, and may be a key', () => {
    expect(kinds(id.toUpperCase()).slice(0, 2)).toEqual([
      `Message ${id.toUpperCase()}`,
      `Key ${id.toUpperCase()}`,
    ]);
    expect(meaningsOf(readWords(id.toUpperCase()), nothing)[0]).toMatchObject({ messageId: id });
  });
  it('filters of the same text are kept', () => {
    expect(meaningsOf(readWords('status:dead acme'), nothing)[1]).toEqual({
      kind: 'Tenant',
      value: 'acme, status dead',
      filters: { status: 'dead', tenantId: 'acme' },
    });
    expect(kinds('status:dead')).toEqual(['Search status dead']);
    expect(kinds('')).toEqual([]);
  });
});
