// Secrets at rest: which key decrypts them, and which cannot.

import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it } from 'vitest';

import { fingerprint, openSealed, parseSecretKeys, seal } from '../../src/core/sealed-secret.js';
import { secretKeys } from '../../src/core/secret-keys.js';
import { temporaryDirectory } from '../support/cli.js';

const newKey = () => randomBytes(32).toString('base64');
const keysOf = (text: string) => {
  const keys = parseSecretKeys(text);
  if (keys === null) throw new Error('no keys');
  return keys;
};

describe('a sealed secret', () => {
  const text = newKey();
  const keys = keysOf(text);

  it('is decrypted by the key that encrypted it, and reveals nothing without it', () => {
    const sealed = seal(keys, 'secret of a', 'whsec_geheim');
    expect(sealed).toMatch(/^sealed:1:[0-9a-f]{8}:[A-Za-z0-9_-]+$/);
    expect(Buffer.from(sealed.split(':')[3] ?? '', 'base64url').toString()).not.toContain('geheim');
    expect(openSealed(keys, 'secret of a', sealed)).toBe('whsec_geheim');
    expect(seal(keys, 'secret of a', 'whsec_geheim')).not.toBe(sealed);
  });

  it('cannot be decrypted for another endpoint, or for another purpose of the same one', () => {
    const sealed = seal(keys, 'secret of a', 'x');
    for (const purpose of ['secret of b', 'headers of a'])
      expect(() => openSealed(keys, purpose, sealed)).toThrow(
        expect.objectContaining({ reason: 'damaged' }),
      );
  });

  it('cannot be decrypted when a single bit was changed', () => {
    const [prefix = '', version = '', id = '', body = ''] = seal(keys, 'p', 'text').split(':');
    const bytes = Buffer.from(body, 'base64url');
    for (let index = 0; index < bytes.length; index += 1) {
      const changed = Buffer.from(bytes);
      changed[index] = (changed[index] ?? 0) ^ 1;
      const forged = [prefix, version, id, changed.toString('base64url')].join(':');
      expect(() => openSealed(keys, 'p', forged)).toThrow(/changed/);
    }
  });

  it('names the key that it needs, if that is not among those given', () => {
    const sealed = seal(keys, 'p', 'text');
    const open = () => openSealed(keysOf(newKey()), 'p', sealed);
    expect(open).toThrow(expect.objectContaining({ reason: 'unknown_key' }));
    expect(open).toThrow(`sealed with the key ${keys[0]?.id}, which is not among those given`);
  });

  it('is decrypted by any of several keys, and encrypted with the first', () => {
    const old = seal(keys, 'p', 'text');
    const both = keysOf(`${newKey()}, ${text}`);
    expect(openSealed(both, 'p', old)).toBe('text');
    const fresh = seal(both, 'p', 'text');
    expect(fresh.split(':')[2]).toBe(both[0]?.id);
    expect(() => openSealed(keys, 'p', fresh)).toThrow(/sealed with the key/);
  });

  it.each(['plain', 'sealed:2:aaaaaaaa:AAAA', 'sealed:1:aaaaaaaa', ''])(
    'a text that is not a sealed secret (%j) is refused',
    (sealed) => {
      expect(() => openSealed(keys, 'p', sealed)).toThrow(/not a sealed text/);
    },
  );

  it('has a fingerprint that only the same secret has', () => {
    expect(fingerprint('a')).toBe(fingerprint('a'));
    expect(fingerprint('a')).not.toBe(fingerprint('b'));
    expect(fingerprint('a')).toMatch(/^[0-9a-f]{12}$/);
  });
});

describe('the key in the environment', () => {
  it('that is missing is named in the error, with how to make one', () => {
    expect(() => secretKeys({})).toThrow(/WAYBILL_SECRET_KEY is not set.*openssl rand -base64 32/);
  });

  it.each([
    ['too short', randomBytes(31).toString('base64')],
    ['too long', randomBytes(33).toString('base64')],
    ['no base64', `${'!'.repeat(43)}=`],
    ['one good and one bad', `${newKey()},short`],
  ])('that is %s is refused, and not shown', (_what, WAYBILL_SECRET_KEY) => {
    expect(() => secretKeys({ WAYBILL_SECRET_KEY })).toThrow(/32 bytes in base64/);
    expect(() => secretKeys({ WAYBILL_SECRET_KEY })).not.toThrow(WAYBILL_SECRET_KEY);
  });

  it('may be in a file', () => {
    const file = path.join(temporaryDirectory(), 'key');
    writeFileSync(file, `${newKey()}\n`);
    expect(secretKeys({ WAYBILL_SECRET_KEY_FILE: file })).toHaveLength(1);
    writeFileSync(file, '\n');
    expect(() => secretKeys({ WAYBILL_SECRET_KEY_FILE: file })).toThrow(/an empty file/);
    expect(() => secretKeys({ WAYBILL_SECRET_KEY_FILE: `${file}-2` })).toThrow(/cannot be read/);
  });
});
