// The seal chain as an auditor computes it, the exported heads, and the options that enable it.

import { describe, expect, it } from 'vitest';

import { resolveAuditOptions } from '../../src/features/audit/options.js';
import { OutsideHeads } from '../../src/features/audit/outside-heads.js';
import { headLine, headOf, parseHeads, timeOf } from '../../src/features/audit/chain.js';
import type { Seal } from '../../src/features/audit/chain.js';

const seal: Seal = {
  number: 2,
  kind: 'attempts',
  fromId: '01a1d75a-9400-0000-0000-000000000000',
  toId: '01a1dc80-f000-0000-0000-000000000000',
  since: '-Infinity',
  until: '1763227955.000012',
  rowCount: 0,
  digest: 'ab',
  details: '{}',
  sealedAt: '1763227956.000000',
  previous: 'cd',
  head: '',
};

describe('heads', () => {
  it('W8 every field of a seal is part of its head, and none can be mistaken for another', () => {
    const heads = new Set([headOf(seal)]);
    const others: Partial<Seal>[] = [
      { number: 3 },
      { kind: 'actions' },
      { fromId: null },
      { toId: null },
      { since: null },
      { until: null },
      { rowCount: 1 },
      { digest: 'abc' },
      { details: '{"a": 1}' },
      { sealedAt: '1' },
      { previous: '' },
      { fromId: seal.toId, toId: seal.fromId },
    ];
    for (const other of others) heads.add(headOf({ ...seal, ...other }));
    expect(heads.size).toBe(others.length + 1);
  });

  it('W8 times keep their microseconds', () => {
    expect(timeOf('1763227955.000012')).toBe('2025-11-15T17:32:35.000012Z');
    expect(timeOf('1763227955')).toBe('2025-11-15T17:32:35.000000Z');
    expect(timeOf('-Infinity')).toBe('-infinity');
    expect(timeOf('Infinity')).toBe('infinity');
  });

  it('W8 are found in files and logs among other lines', () => {
    const head = { number: 1, head: 'ab', sealedAt: 'x' };
    const log = `{"level":30,"number":2,"head":"cd","msg":"audit_sealed"}`;
    const text = `${headLine(head)}\nstarting\n${log}\n{"head": 1}\n{"number": 3, "head": "e`;
    expect(parseHeads(text)).toEqual([head, { number: 2, head: 'cd', sealedAt: '' }]);
  });

  it('W8 that contradict each other, or have a gap, are findings', () => {
    const head = (number: number, text = 'a') => ({ number, head: text, sealedAt: '' });
    const kinds = (heads: ReturnType<typeof head>[], last = 5, exported = 0) =>
      new OutsideHeads(heads).findings(last, exported).map(({ kind, seal: at }) => `${kind} ${at}`);
    expect(kinds([head(1), head(2), head(2), head(3)])).toEqual([]);
    expect(kinds([head(1), head(2), head(2, 'b')])).toEqual(['chain broken 2']);
    expect(kinds([head(1), head(4)])).toEqual(['head missing 2']);
    expect(kinds([head(2), head(3)], 5, 5)).toEqual(['head missing 4']);
    expect(kinds([head(6)])).toEqual(['chain broken 6']);
    expect(kinds([], 5, 5)).toEqual([]);
  });
});

describe('options', () => {
  it('W8 nothing is sealed by default', () => {
    expect(resolveAuditOptions()).toMatchObject({ seal: false, rangeRows: 10_000 });
    expect(resolveAuditOptions({ seal: true }).heads).toMatchObject({ log: true });
  });

  it.each([
    [{ heads: { file: 'x' } }, 'audit.heads is given, and audit.seal is not true'],
    [{ seal: true, heads: { file: '' } }, 'audit.heads.file is ""'],
    [{ seal: true, heads: { webhook: 'ftp://x' } }, 'audit.heads.webhook must be an http://'],
    [{ seal: true, heads: { webhook: 'https://u:pw@x' } }, 'without user and password'],
    [{ seal: true, heads: { headers: { a: 'b' } } }, 'audit.heads.headers is given without'],
    [
      { seal: true, heads: { webhook: 'https://x', headers: { 'a b': 'c' } } },
      'audit.heads.headers.a b',
    ],
    [{ seal: true, everyMs: 10 }, 'audit.everyMs is 10'],
    [{ sealing: true }, 'audit.sealing is not an option'],
  ])('W8 %j is refused', (options, words) => {
    expect(() => resolveAuditOptions(options as object)).toThrow(words);
    expect(() => resolveAuditOptions(options as object)).not.toThrow('pw');
  });
});
