// Secrets that the database has accepted: each wakes a sleeping relay once, until the database has accepted it again.

import { expect, it } from 'vitest';

import { AcceptedSecrets } from '../../src/server/accepted-secrets.js';

it('P13 X3 a secret serves once, and again only when it was accepted again', () => {
  const accepted = new AcceptedSecrets<string>();
  accepted.remember('token', { access: 'ada', validMs: null });
  expect(accepted.take('token')).toBe('ada');
  expect(accepted.take('token')).toBeUndefined();
  accepted.remember('token', { access: 'ada', validMs: 60_000 });
  expect(accepted.take('token')).toBe('ada');
});

it('P13 an expired, forgotten or unknown secret does not serve', () => {
  const accepted = new AcceptedSecrets<string>();
  accepted.remember('expired', { access: 'ada', validMs: 0 });
  accepted.remember('logged out', { access: 'bob', validMs: null });
  accepted.forget('logged out');
  for (const secret of ['expired', 'logged out', 'unknown'])
    expect(accepted.take(secret)).toBeUndefined();
});
