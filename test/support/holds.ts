// Holds in tests: expired, taken or dated by a wrong clock, without waiting.

import { only } from './only.js';
import type { TestDatabase } from './postgres.js';

export type HoldRow = {
  name: string;
  token: string;
  holder: string | null;
  expires_at: unknown;
  duration: unknown;
};

export async function holdOf(db: TestDatabase, name: string): Promise<HoldRow> {
  const { rows } = await db.query<HoldRow>(`SELECT * FROM ${db.quoted}.holds WHERE name = $1`, [
    name,
  ]);
  return only(rows);
}

/** Makes the hold look as if its holder had not renewed it for too long. */
export async function expireHold(db: TestDatabase, name: string): Promise<void> {
  await db.query(
    `UPDATE ${db.quoted}.holds SET expires_at = clock_timestamp() - interval '1 ms' WHERE name = $1`,
    [name],
  );
}

/** Moves the end of the hold, as a clock that ran ahead by this much would have. */
export async function postponeHold(db: TestDatabase, name: string, by: string): Promise<void> {
  await db.query(
    `UPDATE ${db.quoted}.holds SET expires_at = expires_at + $2::interval WHERE name = $1`,
    [name, by],
  );
}

/** Lets a process that does nothing have the hold for a minute. */
export async function giveHold(db: TestDatabase, name: string): Promise<void> {
  await db.query(
    `INSERT INTO ${db.quoted}.holds AS h (name, token, holder, expires_at, duration)
     VALUES ($1, 1, gen_random_uuid(), clock_timestamp() + interval '1 minute', '1 minute')
     ON CONFLICT (name) DO UPDATE
        SET token = h.token + 1, holder = excluded.holder, expires_at = excluded.expires_at, duration = excluded.duration`,
    [name],
  );
}

/** Releases the hold, whichever process has it. */
export async function freeHold(db: TestDatabase, name: string): Promise<void> {
  await db.query(
    `UPDATE ${db.quoted}.holds SET holder = NULL, expires_at = '-infinity' WHERE name = $1`,
    [name],
  );
}
