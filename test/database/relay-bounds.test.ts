// Limits of the roles relay and maintenance: they can neither discard young dead letters nor reserve anything for long, whatever it asks
// for.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { makeDead } from '../support/letters.js';
import { as } from '../support/logins.js';
import type { Login } from '../support/logins.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

async function asLogin(login: Login, call: string): Promise<unknown> {
  return as(db, login, async (client) => {
    await client.query(`SET search_path = ${db.quoted}`);
    const { rows } = await client.query<{ value: unknown }>(`SELECT (${call})::text AS value`);
    return only(rows).value;
  });
}

describe('dead letters', () => {
  it('P13 are discarded no sooner than the owner allows, by default after a week', async () => {
    const queue = await makeQueue(db);
    const [young = '', old = ''] = await makeDead(queue, 2, 'refused');
    await db.query(
      `UPDATE ${db.quoted}.dead_letters SET dead_at = now() - interval '8 days' WHERE message_id = $1`,
      [old],
    );
    expect(await asLogin('test_maintenance', `prune_dead_letters('0')`)).toBe('1');
    expect(await asLogin('test_maintenance', `prune_dead_letters('0')`)).toBe('0');
    const { rows } = await db.query(`SELECT message_id FROM ${db.quoted}.dead_letters`);
    expect(rows).toEqual([{ message_id: young }]);
    await expect(
      as(db, 'test_maintenance', (client) =>
        client.query(`UPDATE ${db.quoted}.retention_floors SET dead_letters_days = 0`),
      ),
    ).rejects.toMatchObject({ code: '42501' });
    await db.query(`UPDATE ${db.quoted}.retention_floors SET dead_letters_days = 0`);
    expect(await asLogin('test_maintenance', `prune_dead_letters('0')`)).toBe('1');
  });
});

describe('reservations', () => {
  it('P13 of maintenance last ten minutes at most, and longer by renewing them', async () => {
    const asMaintenance = (call: string) => asLogin('test_maintenance', call);
    const begin = (ms: number) =>
      asMaintenance(`begin_maintenance(clock_timestamp(), '${randomUUID()}', ${ms})`);
    await expect(begin(2_147_483_647)).rejects.toThrow(
      'p_held_ms is 2147483647: give a whole number from 1 to 600000',
    );
    const token = await begin(600_000);
    expect(Number(token)).toBeGreaterThan(0);
    expect(await begin(600_000)).toBeNull();
    expect(await asMaintenance(`renew_hold('retention', ${String(token)})`)).toBe('true');
    await expect(
      asMaintenance(`take_hold('retention', gen_random_uuid(), '1 year')`),
    ).rejects.toMatchObject({ code: '42501' });
  });

  it.each([
    [
      'a lease',
      `(SELECT count(*) FROM claim_batch(1::int, gen_random_uuid(), gen_random_uuid(), 1, 1, 2147483647))`,
    ],
    ['a cursor', `(SELECT count(*) FROM take_cursor('any', gen_random_uuid(), 'any', 2147483647))`],
    ['silence', `(SELECT register_listener(gen_random_uuid(), '{1}', 2147483647, 0) IS NULL)`],
    ['alerts', `(SELECT count(*) FROM take_alerts(gen_random_uuid(), '1 hour', '24 days'))`],
  ])('P13 of %s are bounded', async (_what, call) => {
    await expect(asLogin('test_relay', call)).rejects.toMatchObject({ code: '22023' });
  });

  it.each([
    ['the end of statistics', `prune_statistics('0')`],
    ['the end of comparisons', `prune_shadow_comparisons('0')`],
  ])('P13 of %s are bounded', async (_what, call) => {
    await expect(asLogin('test_maintenance', call)).rejects.toMatchObject({ code: '22023' });
  });
});
