// Outcomes are plain values, and their texts can always be stored.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { cleanText, delivered, reject, release, retry } from '../../src/core/outcome.js';

describe('outcomes', () => {
  it('M11 carry their result and its details', () => {
    expect(delivered()).toEqual({ kind: 'delivered' });
    expect(delivered('receipt')).toEqual({ kind: 'delivered', reference: 'receipt' });
    expect(release()).toEqual({ kind: 'release' });
    const failure = { code: 'http_status', remoteCode: '503', message: 'busy' };
    expect(retry({ ...failure, afterMs: 5 })).toEqual({ kind: 'retry', ...failure, afterMs: 5 });
    expect(reject(failure)).toEqual({ kind: 'reject', ...failure });
  });
});

describe('an error text', () => {
  it('P4 is always well-formed, without NUL, and no longer than allowed', () => {
    const unit = fc.constantFrom('\u0000', '\ud83d', '\ude9a', 'a', 'ü', '\n');
    fc.assert(
      fc.property(fc.array(unit), fc.integer({ min: 1, max: 20 }), (units, maxLength) => {
        const clean = cleanText(units.join(''), maxLength);
        expect(clean.isWellFormed()).toBe(true);
        expect(clean).not.toContain('\u0000');
        expect(clean.length).toBeLessThanOrEqual(maxLength);
      }),
    );
  });

  it('P4 that can be stored is unchanged', () => {
    expect(cleanText('żółć 🚚\n')).toBe('żółć 🚚\n');
    expect(cleanText('x'.repeat(2000))).toHaveLength(2000);
    expect(cleanText('x'.repeat(2001))).toBe(`${'x'.repeat(1999)}…`);
  });
});
