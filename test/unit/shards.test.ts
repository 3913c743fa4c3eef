// The map from tenants to shards: listed tenants first, a hash for the others, the same everywhere. Unusable
// definitions are refused.

import { writeFileSync } from 'node:fs';
import path from 'node:path';

import { afterEach, describe, expect, it, vi } from 'vitest';

import { resolveDatabaseOptions } from '../../src/database/connection.js';
import { createOutbox } from '../../src/producer/outbox.js';
import { defineShards } from '../../src/features/shards/shards.js';
import type { ShardsOptions } from '../../src/features/shards/shards.js';
import { temporaryDirectory } from '../support/cli.js';

const url = (name: string) => `postgresql://app:secret@db-${name}.example:5432/app`;

function shardsNamed(...names: string[]) {
  return defineShards({
    shards: Object.fromEntries(names.map((name) => [name, { url: url(name) }])),
  });
}

const tenants = Array.from({ length: 6000 }, (_, index) => `tenant-${index}`);

afterEach(() => vi.unstubAllEnvs());

describe('shardOf', () => {
  it('N9 is the same in every process and on every platform, whatever the order of the names', () => {
    const shards = shardsNamed('eu', 'us', 'ap');
    // computed once with sha256sum, so that a change of the hash is noticed
    expect(
      Object.fromEntries(
        ['acme', 'globex', 'umbrella', 'hooli', 'Ünïcödé ✓'].map((name) => [
          name,
          shards.shardOf(name),
        ]),
      ),
    ).toEqual({ acme: 'ap', globex: 'us', umbrella: 'eu', hooli: 'ap', 'Ünïcödé ✓': 'us' });
    const turned = shardsNamed('ap', 'us', 'eu');
    expect(tenants.filter((name) => turned.shardOf(name) !== shards.shardOf(name))).toEqual([]);
  });

  it.each([1, 2, 3, 5, 8])(
    'N9 a shard that joins %i others takes its share, and no tenant moves between the others',
    (count) => {
      const names = Array.from({ length: count }, (_, index) => `shard-${index}`);
      const place = (map: { shardOf(tenant: string): string }) =>
        tenants.map((tenant) => map.shardOf(tenant));
      const [before, after] = [place(shardsNamed(...names)), place(shardsNamed(...names, 'new'))];
      const moved = after.filter((shard, index) => shard !== before[index]);
      expect(new Set(moved)).toEqual(new Set(['new']));
      const expected = tenants.length / (count + 1);
      expect(moved.length).toBeGreaterThan(expected * 0.9);
      expect(moved.length).toBeLessThan(expected * 1.1);
      for (const name of names) {
        const share = before.filter((shard) => shard === name).length;
        expect(share).toBeGreaterThan((tenants.length / count) * 0.9);
        expect(share).toBeLessThan((tenants.length / count) * 1.1);
      }
    },
  );

  it('N9 a listed tenant takes precedence over the hash, and stays when shards are added', () => {
    const hashed = shardsNamed('eu', 'us');
    const elsewhere = hashed.shardOf('acme') === 'eu' ? 'us' : 'eu';
    const written = defineShards({
      shards: { eu: { url: url('eu') }, us: { url: url('us') }, ap: { url: url('ap') } },
      tenants: { acme: elsewhere },
    });
    expect(written.shardOf('acme')).toBe(elsewhere);
    // a property name of every object is not a tenant of the map
    expect(['eu', 'us', 'ap']).toContain(written.shardOf('constructor'));
  });

  it('N9 a message without a tenant goes to the default shard, or is refused', () => {
    const options = { shards: { eu: { url: url('eu') }, us: { url: url('us') } } };
    const withDefault = defineShards({ ...options, default: 'us' });
    expect([null, undefined].map((tenant) => withDefault.shardOf(tenant))).toEqual(['us', 'us']);
    expect(() => defineShards(options).shardOf(null)).toThrow(
      'there is no tenant, and no shard for those without one: give a tenant, or declare default in defineShards, one of eu, us',
    );
    expect(() => withDefault.shardOf('')).toThrow('the tenant is "": give a tenant id, or null');
  });
});

describe('defineShards', () => {
  it.each<[string, unknown, string]>([
    ['no shards', { shards: {} }, 'defineShards.shards is {}: give names and databases'],
    ['no object', { shards: [] }, 'defineShards.shards is "object": give names and databases'],
    ['an unknown option', { shards: {}, tenant: {} }, 'defineShards.tenant is not an option'],
    [
      'a name with capitals',
      { shards: { EU: { url: url('eu') } } },
      'defineShards.shards has the name "EU": use small letters, digits and -, at most 63',
    ],
    [
      'an unknown option of a shard',
      { shards: { eu: { url: url('eu'), shema: 'x' } } },
      'defineShards.shards.eu.shema is not an option',
    ],
    [
      'a limit out of range',
      { shards: { eu: { url: url('eu'), lockTimeoutMs: 1 } } },
      'defineShards.shards.eu.lockTimeoutMs is 1: give a whole number from 100',
    ],
    [
      'an unknown shard of a tenant',
      { shards: { eu: { url: url('eu') } }, tenants: { acme: 'us' } },
      'defineShards.tenants["acme"] is "us": give eu',
    ],
    [
      'an unknown default',
      { shards: { eu: { url: url('eu') } }, default: 'us' },
      'defineShards.default is "us": give eu',
    ],
    [
      'one database twice, with different logins',
      { shards: { eu: { url: url('x') }, us: { url: url('x').replace('app:secret', 'other') } } },
      'defineShards.shards.us.url is postgresql://other@db-x.example:5432/app, the database of eu too: give each shard one of its own',
    ],
    [
      'names that would share a variable',
      { shards: { eu: { url: url('eu') }, 'eu-direct': { url: url('b') } } },
      'which would share the variable WAYBILL_SHARD_EU_DIRECT_URL: rename one of them',
    ],
    [
      'an address with another scheme',
      { shards: { eu: { url: 'mysql://root:secret@db/x' } } },
      'defineShards.shards.eu.url (WAYBILL_SHARD_EU_URL) begins with mysql://',
    ],
  ])('N9 refuses %s, and shows no password', (_what, options, words) => {
    const define = () => defineShards(options as ShardsOptions);
    expect(define).toThrow(words);
    expect(define).not.toThrow('secret');
  });

  it('two schemas of one database are two shards', () => {
    const shards = defineShards({
      shards: { eu: { url: url('x') }, us: { url: url('x'), schema: 'outbox_us' } },
    });
    expect(shards.names).toEqual(['eu', 'us']);
  });

  it('an address that is not text is refused without being shown', () => {
    const address = new URL(url('eu')) as unknown as string;
    expect(() => defineShards({ shards: { eu: { url: address } } })).toThrow(
      'defineShards.shards.eu.url is "object": give a postgresql:// address, as text',
    );
  });

  it('N9 addresses come from the environment before the file, and never from the variables of a single database', () => {
    vi.stubEnv('DATABASE_URL', url('single'));
    vi.stubEnv('DATABASE_DIRECT_URL', url('single-direct'));
    vi.stubEnv('DATABASE_REPLICA_URL', url('single-replica'));
    vi.stubEnv('WAYBILL_SHARD_EU_WEST_REPLICA_URL', url('replica'));
    vi.stubEnv('WAYBILL_SHARD_EU_WEST_URL', url('from-environment'));
    vi.stubEnv('WAYBILL_SHARD_US_SERVER_URL', url('us-server'));
    const file = path.join(temporaryDirectory(), 'url');
    writeFileSync(file, `${url('from-file')}\n`);
    vi.stubEnv('WAYBILL_SHARD_AP_URL_FILE', file);
    const shards = defineShards({
      shards: {
        'eu-west': { url: url('written'), directUrl: url('direct') },
        us: { url: url('us'), schema: 'other' },
        ap: {},
        none: {},
      },
    });
    expect(shards.databaseOf('eu-west')).toEqual({
      url: url('from-environment'),
      directUrl: url('direct'),
      replicaUrl: url('replica'),
    });
    expect(shards.databaseOf('us')).toEqual({
      url: url('us'),
      schema: 'other',
      directUrl: null,
      replicaUrl: null,
    });
    const resolved = resolveDatabaseOptions(shards.databaseOf('us'));
    expect([resolved.directUrl, resolved.replicaUrl]).toEqual([undefined, undefined]);
    expect(shards.serverDatabaseOf('us')).toMatchObject({ url: url('us-server') });
    expect(shards.databaseOf('ap')).toMatchObject({ url: url('from-file') });
    expect(() => shards.databaseOf('none')).toThrow(
      'the shard none has no address: set WAYBILL_SHARD_NONE_URL, or defineShards.shards.none.url',
    );
    expect(() => shards.databaseOf('mars')).toThrow(
      'the shard is "mars": give ap, eu-west, none, us',
    );
  });
});

describe('the shard of an outbox', () => {
  it('N9 must be in the map', () => {
    const of = shardsNamed('eu', 'us');
    expect(() => createOutbox({ shard: { of, name: 'mars' } })).toThrow(
      'outbox.shard.name is "mars": give eu, us',
    );
    const nothing = { of: {} as typeof of, name: 'eu' };
    expect(() => createOutbox({ shard: nothing })).toThrow('give the result of defineShards');
  });
});
