// The watches of a configuration are checked before anything starts.

import { describe, expect, it } from 'vitest';

import { watchesKind } from '../../src/features/watches/watch.js';

const jobs = { table: 'public.jobs', topic: 'job' };

describe('watches', () => {
  it('have defaults for everything but the table and the topic', () => {
    expect(watchesKind('config.watches', [jobs])).toEqual([
      {
        ...jobs,
        oldValues: false,
        created: 'created',
        changed: 'changed',
        deleted: 'deleted',
        truncate: 'refuse',
      },
    ]);
    expect(watchesKind('config.watches', [{ ...jobs, deleted: null }])?.[0]?.deleted).toBeNull();
  });

  it('stay as they are if the configuration does not mention them', () => {
    expect(watchesKind('config.watches', undefined)).toBeUndefined();
    expect(watchesKind('config.watches', [])).toEqual([]);
  });

  it.each<[string, unknown, RegExp]>([
    ['no list', jobs, /^watches is .*: give a list such as \[\{ table: 'public\.jobs'/],
    ['no table', [{ topic: 'job' }], /^watches\[0\]\.table is undefined: give a table such as/],
    ['a topic', [{ ...jobs, topic: 'a b' }], /^watches\[0\]\.topic is "a b": give a topic/],
    ['an event', [{ ...jobs, changed: '' }], /^watches\[0\]\.changed is "": give a name such as/],
    ['columns', [{ ...jobs, columns: 'a' }], /^watches\[0\]\.columns is "a": give a list of 1/],
    ['no columns', [{ ...jobs, when: [] }], /^watches\[0\]\.when is \[\]: give a list of 1/],
    ['truncate', [{ ...jobs, truncate: 'x' }], /^watches\[0\]\.truncate is "x": give 'refuse'/],
    ['an option', [{ ...jobs, colums: [] }], /^watches\[0\]\.colums is not an option: use table/],
    ['a repeat', [jobs, jobs], /^watches\[1\] is .*: the same table and topic stand above/],
  ])('refuse %s', (_what, watches, words) => {
    expect(() => watchesKind('config.watches', watches)).toThrow(words);
  });
});
