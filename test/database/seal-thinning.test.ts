// Seals and thinning: rows that retention removes from a day are no finding, and the rows that it keeps stay protected:
// an edited, deleted or added one is still found.

import { beforeAll, describe, expect, it } from 'vitest';

import { readSealRows, sealNow, searchNow, tamper, verify } from '../support/audit.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { agePending, deliveredDay, pruneNow } from '../support/retention.js';
import { settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();
const kept = { messagesDays: 7, attemptsDays: 9 };
let queue: Queue;

/** A day with delivered messages and dead letters, all of it sealed in ranges of ten rows. */
async function sealedDay(daysAgo: number, dead = 1): Promise<string[]> {
  await deliveredDay(db, daysAgo, 30, queue.id);
  const ids: string[] = [];
  for (let n = 0; n < dead; n += 1) {
    const id = await agePending(db, await queue.enqueueOne(), daysAgo);
    await queue.kill(id);
    ids.push(id);
  }
  // as if they had failed long ago
  await tamper(
    db,
    `UPDATE ${db.quoted}.attempts SET claimed_at = now() - interval '5 days', ended_at = now() - interval '5 days'
      WHERE message_id IN ('${ids.join("','")}')`,
  );
  await sealNow(db, 10);
  return ids;
}

async function attemptsOf(daysAgo: number): Promise<number> {
  const { rows } = await db.query<{ count: number }>(
    `SELECT count(*)::int AS count FROM ${db.quoted}.attempts
      WHERE (${db.quoted}.id_time(message_id) AT TIME ZONE 'UTC')::date = (now() AT TIME ZONE 'UTC')::date - $1::int`,
    [daysAgo],
  );
  return only(rows).count;
}

async function leavesOf(daysAgo: number): Promise<{ wide: number; narrow: number }> {
  const { rows } = await db.query<{ wide: number; narrow: number }>(
    `SELECT count(*) FILTER (WHERE octet_length(leaves) = 32 * row_count)::int AS wide,
            count(*) FILTER (WHERE octet_length(leaves) = 8 * row_count)::int AS narrow
       FROM ${db.quoted}.seal_leaves JOIN ${db.quoted}.seals USING (number)
      WHERE kind = 'attempts' AND (${db.quoted}.id_time(from_id) AT TIME ZONE 'UTC')::date = (now() AT TIME ZONE 'UTC')::date - $1::int`,
    [daysAgo],
  );
  return only(rows);
}

beforeAll(async () => {
  queue = await makeQueue(db);
});

describe('a thinned day', () => {
  it.each([
    ['the role maintenance', 'test_maintenance', 20],
    ['the owner', undefined, 21],
  ] as const)(
    'W8 C9 verifies after %s has thinned it, with late attempts, thinned again, and dropped',
    async (_who, login, day) => {
      const [first = '', second = '', third = ''] = await sealedDay(day, 3);
      expect((await pruneNow(db, kept, login))['partitions']).toMatchObject({ thinned: 2 });
      expect(await attemptsOf(day)).toBe(3);
      expect((await readSealRows(db)).at(-1)).toMatchObject({ kind: 'thinned', row_count: 3 });
      const report = await verify(db);
      expect(report).toMatchObject({ intact: true, findings: [], keptDays: 9 });
      expect(report.expired, 'the ranges without a row').toBeGreaterThanOrEqual(2);
      expect(await leavesOf(day), 'no leaves of removed rows').toEqual({ wide: 1, narrow: 0 });
      const strict = await verify(db, { attemptsDays: 30 });
      expect(strict.findings.map(({ kind }) => kind)).toContain('deleted');

      // two are tried again and delivered, the third stays
      await db.query(`SELECT ${db.quoted}.retry_dead_letters($1, ids => $2)`, [
        queue.name,
        [first, second],
      ]);
      const claim = await queue.claim();
      await settle(
        db,
        claim,
        claim.ids.map((id) => ({ id, outcome: 'retry', retryAfterMs: 0 })),
      );
      const again = await queue.claim();
      expect(again.ids.toSorted()).toEqual([first, second].toSorted());
      await settleDelivered(db, again);
      expect(await verify(db), 'not sealed yet').toMatchObject({ intact: true });
      expect(await searchNow(db)).toBe(4);
      expect(await verify(db)).toMatchObject({ intact: true });

      await pruneNow(db, kept, login);
      expect(await attemptsOf(day)).toBe(1);
      expect(await verify(db), 'thinned again').toMatchObject({ intact: true, findings: [] });
      expect(await queue.attempts(third)).toHaveLength(1);

      await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
      await pruneNow(db, kept, login);
      expect(await attemptsOf(day)).toBe(0);
      expect(await verify(db), 'dropped').toMatchObject({ intact: true, findings: [] });
    },
  );

  it('W8 an edited, deleted or added row of it is found', async () => {
    const [id = ''] = await sealedDay(22);
    await pruneNow(db, kept);
    expect(await verify(db)).toMatchObject({ intact: true });
    const row = `message_id = '${id}' AND claim_no = 1`;
    const found = async (...statements: string[]) => {
      await db.query(`CREATE TABLE before AS SELECT * FROM ${db.quoted}.attempts WHERE ${row}`);
      await tamper(db, ...statements);
      const { findings } = await verify(db);
      await tamper(
        db,
        `DELETE FROM ${db.quoted}.attempts WHERE message_id = '${id}'`,
        `INSERT INTO ${db.quoted}.attempts SELECT * FROM before`,
        'DROP TABLE before',
      );
      expect(await verify(db), 'put back').toMatchObject({ intact: true });
      return findings.map(({ kind }) => kind);
    };
    expect(
      await found(`UPDATE ${db.quoted}.attempts SET error_code = 'forged' WHERE ${row}`),
    ).toEqual(['edited', 'edited']);
    expect(await found(`DELETE FROM ${db.quoted}.attempts WHERE ${row}`)).toEqual(['deleted']);
    expect(
      await found(
        `INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
         SELECT message_id, destination_id, 7, 7, 'dispatched', ended_at FROM ${db.quoted}.attempts WHERE ${row}`,
      ),
    ).toEqual(['edited', 'added']);
  });

  it('W8 a record that says it kept other rows does not hide a change: the seals from before do not fit', async () => {
    const [id = ''] = await sealedDay(23);
    await pruneNow(db, kept);
    // as a superuser could: another ending, and the chain computed again from there
    await tamper(
      db,
      `UPDATE ${db.quoted}.attempts SET state = 'dispatched' WHERE message_id = '${id}'`,
      `CREATE TABLE forged AS SELECT sha256(${db.quoted}.attempt_digest(a)) AS digest FROM ${db.quoted}.attempts a
        WHERE a.message_id = '${id}'`,
      `UPDATE ${db.quoted}.seals s SET digest = f.digest FROM forged f
        WHERE s.number = (SELECT max(number) FROM ${db.quoted}.seals WHERE kind = 'thinned')`,
    );
    const { findings } = await verify(db);
    expect(findings.map(({ kind, sentence }) => `${kind}: ${sentence}`)).toContain(
      'edited: 1 of the rows that retention has kept are not as they were',
    );
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1)`, [queue.name]);
  });
});

describe('a day that was changed before', () => {
  const changed = async (daysAgo: number) => {
    await pruneNow(db, kept);
    const { rows } = await db.query<{ count: number }>(
      `SELECT count(*)::int AS count FROM ${db.quoted}.seals WHERE kind = 'thinned'
          AND details ->> 'day' = ((now() AT TIME ZONE 'UTC')::date - $1::int)::text`,
      [daysAgo],
    );
    return { thinned: only(rows).count, findings: (await verify(db)).findings };
  };

  it('W8 is not thinned, so that the change is still found', async () => {
    const [id = ''] = await sealedDay(24);
    await tamper(
      db,
      `UPDATE ${db.quoted}.attempts SET error_code = 'forged' WHERE message_id = '${id}'`,
    );
    await pruneNow(db, kept);
    expect(await attemptsOf(24)).toBe(31);
    expect((await verify(db)).findings.map(({ rows }) => rows.join())).toContainEqual(
      expect.stringContaining(id),
    );
  });

  it('W8 is not thinned either if the attempt that had to stay was deleted', async () => {
    const [id = ''] = await sealedDay(25);
    await tamper(db, `DELETE FROM ${db.quoted}.attempts WHERE message_id = '${id}'`);
    const { thinned, findings } = await changed(25);
    expect(thinned).toBe(0);
    expect(findings.map(({ sentence }) => sentence)).toContainEqual(
      expect.stringContaining('1 of its rows are gone'),
    );
  });

  it('W8 is not thinned again if an attempt that was kept was deleted', async () => {
    const ids = await sealedDay(26, 5);
    expect(await changed(26)).toMatchObject({ thinned: 1 });
    await tamper(db, `DELETE FROM ${db.quoted}.attempts WHERE message_id = '${ids[0]}'`);
    await db.query(`SELECT ${db.quoted}.discard_dead_letters($1, ids => $2)`, [
      queue.name,
      ids.slice(1, 4),
    ]);
    const { thinned, findings } = await changed(26);
    expect(thinned).toBe(1);
    expect(findings.map(({ kind, sentence }) => `${kind}: ${sentence}`)).toContain(
      'deleted: it had 5 rows and has 4',
    );
  });
});
