// The meaning of a failure is decided by its codes and by nothing else.

import { describe, expect, it } from 'vitest';

import { classified, classifyKind } from '../../src/core/classify.js';
import { delivered, pause, reject, release, retry, thrown } from '../../src/core/outcome.js';

const classify = classifyKind('classify', {
  '422': 'reject',
  '401': 'pause',
  timeout: 'reject',
  http_status: 'retry',
  ECONNREFUSED: 'pause',
});

describe('classify', () => {
  it('P10 the other side’s code takes precedence over Waybill’s', () => {
    const failure = { code: 'http_status', remoteCode: '422', message: 'no', response: '{}' };
    expect(classified(retry({ ...failure, afterMs: 7 }), classify)).toEqual(reject(failure));
    expect(classified(reject({ code: 'http_status', remoteCode: '500' }), classify)).toEqual(
      retry({ code: 'http_status', remoteCode: '500' }),
    );
    expect(classified(retry({ code: 'http_status', remoteCode: '401' }), classify).kind).toBe(
      'pause',
    );
    expect(classified(retry({ code: 'timeout' }), classify).kind).toBe('reject');
  });

  it('P10 a delay that the destination asked for is kept if the outcome stays the same', () => {
    const outcome = retry({ code: 'http_status', remoteCode: '503', afterMs: 5000 });
    expect(classified(outcome, classify)).toBe(outcome);
  });

  it('P10 the code of a thrown error counts, and its text never does', () => {
    const error = Object.assign(new Error('422 timeout 401'), { code: 'ECONNREFUSED' });
    expect(classified(thrown(error), classify).kind).toBe('pause');
    expect(classified(thrown(new Error('422 timeout 401')), classify).kind).toBe('retry');
  });

  it('P10 unknown codes get the default, and without a default the destination’s own outcome', () => {
    const unknown = reject({ code: 'odd', remoteCode: 'odder' });
    expect(classified(unknown, classify)).toBe(unknown);
    expect(classified(unknown, { default: 'retry' }).kind).toBe('retry');
    expect(classified(pause({ code: 'odd' }), { default: 'retry' }).kind).toBe('retry');
    expect(classified(retry({ code: 'toString', remoteCode: '__proto__' }), classify).kind).toBe(
      'retry',
    );
  });

  it('P10 does not apply to messages that were delivered, released, refused by a guard or aborted by a stop', () => {
    const all = { default: 'pause', shape: 'pause' } as const;
    for (const outcome of [
      delivered(),
      release(),
      reject({ code: 'guard_refused', remoteCode: 'shape' }),
      retry({ code: 'guard_failed' }),
      retry({ code: 'stopped' }),
    ])
      expect(classified(outcome, all)).toBe(outcome);
  });

  it.each([
    ['x', 'classify is "x"'],
    [['retry'], 'classify is ["retry"]'],
    [{ '422': 'drop' }, "classify.422 is \"drop\": give 'retry', 'reject' or 'pause'"],
    [new Map([['E1', 'reject']]), /give codes and what they mean/],
  ])('%j is refused', (value, words) => {
    expect(() => classifyKind('classify', value)).toThrow(words);
  });
});
