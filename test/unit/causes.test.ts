// Causes of dead letters on the page: in words, and the code by which a list of messages finds them.

import { describe, expect, it } from 'vitest';

import { causeWords, codeOf } from '../../dashboard/src/screens/dead-letters/causes.js';

describe('a cause', () => {
  it.each([
    ['http_status', '500', 'HTTP 500', '500'],
    ['endpoint_gone', '410', 'HTTP 410, endpoint gone', '410'],
    ['timeout', 'TimeoutError', 'timeout', 'timeout'],
    ['connection_failed', 'ECONNREFUSED', 'connection refused', 'connection_failed'],
    ['amount_refused', null, 'amount refused', 'amount_refused'],
  ])('M13 %s %s reads "%s", and is found by the code %s', (errorCode, remoteCode, words, code) => {
    expect(causeWords({ errorCode, remoteCode })).toBe(words);
    expect(codeOf([errorCode, remoteCode].join(' ').trimEnd())).toBe(code);
  });
});
