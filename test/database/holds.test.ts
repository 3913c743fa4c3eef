// Holds: the database elects one process for a task, lets another take over when it is gone, and refuses the token of a
// process that lost its hold.

import { randomUUID } from 'node:crypto';

import { describe, expect, test } from 'vitest';

import { expireHold, holdOf, postponeHold } from '../support/holds.js';
import { only } from '../support/only.js';
import type { Connection } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();

type Taken = { token: string | null; left_by: string | null };

async function take(
  name: string,
  { holder = randomUUID(), on = db.pool, held = '1 minute' }: TakeOptions = {},
): Promise<Taken> {
  const { rows } = await on.query<Taken>(`SELECT * FROM ${db.quoted}.take_hold($1, $2, $3)`, [
    name,
    holder,
    held,
  ]);
  return only(rows);
}
type TakeOptions = { holder?: string; on?: Connection; held?: string };

async function answer(call: string, ...values: unknown[]): Promise<unknown> {
  const { rows } = await db.query<{ answer: unknown }>(
    `SELECT ${db.quoted}.${call} AS answer`,
    values,
  );
  return only(rows).answer;
}
const renew = (name: string, token: string) => answer('renew_hold($1, $2)', name, token);
const release = (name: string, token: string) => answer('release_hold($1, $2)', name, token);

const free = { token: null, left_by: null };

describe('C9 P14 a hold', () => {
  test('is taken by one of many processes, and by another one when it was released', async () => {
    const asked = await Promise.all(Array.from({ length: 8 }, () => take('many')));
    expect(asked.filter(({ token }) => token !== null)).toEqual([{ token: '1', left_by: null }]);
    expect(await answer('is_taken($1)', 'many')).toBe(true);
    expect(await release('many', '1')).toBe(true);
    expect(await answer('is_taken($1)', 'many')).toBe(false);
    expect(await take('many')).toEqual({ token: '2', left_by: null });
  });

  test('is not taken again by the process that has it', async () => {
    const holder = randomUUID();
    expect((await take('twice', { holder })).token).toBe('1');
    expect(await take('twice', { holder })).toEqual(free);
  });

  test('is taken when its holder stopped renewing it, and the next holder learns who that was', async () => {
    const holder = randomUUID();
    await take('left', { holder });
    await expireHold(db, 'left');
    expect(await take('left')).toEqual({ token: '2', left_by: holder });
  });

  test('is taken when it ends later than its duration allows: the clock was set back', async () => {
    await take('ahead');
    await postponeHold(db, 'ahead', '1 minute');
    expect((await take('ahead')).token).toBe('2');
  });

  test('is renewed for its duration, also after it has expired, until another process takes it', async () => {
    await take('renewed');
    await expireHold(db, 'renewed');
    expect(await renew('renewed', '1')).toBe(true);
    expect(await take('renewed')).toEqual(free);
    await expireHold(db, 'renewed');
    await take('renewed');
    const before = await holdOf(db, 'renewed');
    expect(await renew('renewed', '1')).toBe(false);
    expect(await release('renewed', '1')).toBe(false);
    expect(await holdOf(db, 'renewed')).toEqual(before);
  });

  test('that was released is not held again by a late renewal', async () => {
    await take('late');
    await release('late', '1');
    expect(await renew('late', '1')).toBe(false);
    expect(await answer('has_hold($1, $2)', 'late', '1')).toBe(false);
    expect((await take('late')).token).toBe('2');
  });

  test('that was revoked is lost, and its next token is a new one', async () => {
    const holder = randomUUID();
    expect(await answer('revoke_hold($1)', 'never taken')).toBe('0');
    await take('revoked', { holder });
    expect(await answer('revoke_hold($1)', 'revoked')).toBe('2');
    for (const token of ['1', '2']) expect(await renew('revoked', token)).toBe(false);
    expect(await take('revoked', { holder })).toEqual({ token: '3', left_by: null });
    await answer('revoke_hold($1, true)', 'revoked');
    expect(await take('revoked')).toEqual({ token: '5', left_by: holder });
  });

  test('that another session is taking is not waited for', async () => {
    await take('open');
    await release('open', '1');
    const busy = await db.connect();
    await busy.query('BEGIN');
    expect((await take('open', { on: busy })).token).toBe('2');
    const other = await db.connect();
    await other.query("SET lock_timeout = '100ms'");
    expect(await take('open', { on: other })).toEqual(free);
    await busy.query('ROLLBACK');
    expect((await take('open', { on: other })).token).toBe('2');
  });
});
