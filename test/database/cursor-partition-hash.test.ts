// The hash that decides which partition of a cursor a message belongs to. Cursors rely on it: a change would make them
// skip messages.

import { describe, expect, test } from 'vitest';

import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

describe('the hash of a message', () => {
  test('N4 is the same on every server: it depends on the id of the key, or on the id of a message without one', async () => {
    const id = '01890000-0000-7000-8000-00000000a1b2';
    const { rows } = await db.query<{ hashes: number[] }>(
      `SELECT ARRAY (SELECT ${db.quoted}.partition_hash(k, $1) FROM unnest('{1,2,3,1000,123456789012345,NULL}'::bigint[]) k) AS hashes`,
      [id],
    );
    expect(only(rows).hashes).toEqual([40503, 15470, 55974, 2227, 28470, 0xa1b2]);
  });

  test('N4 every hash is in exactly one partition, and the number of each row is found from its first hash', async () => {
    const { rows } = await db.query<{ partitions: number }>(
      `SELECT n AS partitions
         FROM generate_series(1, 64) n
        CROSS JOIN LATERAL (
               SELECT count(*) AS hashes, bool_and(${db.quoted}.partition_number(h, n) = p.number) AS agree
                 FROM generate_series(0, n - 1) p(number)
                CROSS JOIN LATERAL generate_series(${db.quoted}.partition_start(p.number, n),
                                                   ${db.quoted}.partition_start(p.number + 1, n) - 1) h) x
        WHERE x.hashes = 65536 AND x.agree`,
    );
    expect(rows).toHaveLength(64);
  });

  test.each([
    ['consecutive keys', 'n', 'NULL'],
    ['every second key', 'n * 2', 'NULL'],
    ['every eighth key', 'n * 8', 'NULL'],
    ['messages without a key', 'NULL', 'md5(n::text)::uuid'],
  ])('spreads %s evenly', async (_what, key, id) => {
    const { rows } = await db.query<{ share: number }>(
      `SELECT count(*) / (10000.0 / p.partitions)::float8 AS share
         FROM generate_series(1, 10000) n
        CROSS JOIN (VALUES (2), (3), (4), (7), (16)) p(partitions)
        CROSS JOIN LATERAL (SELECT ${db.quoted}.partition_hash(${key}, ${id}) AS hash) h
        GROUP BY p.partitions, h.hash * p.partitions / 65536`,
    );
    expect(rows).toHaveLength(2 + 3 + 4 + 7 + 16);
    for (const { share } of rows) expect(Math.abs(share - 1)).toBeLessThan(0.25);
  });
});
