// The pages of a window: planned first, several read at once, and together exactly the messages of the window, in
// order, with any limits.

import { beforeAll, expect, test } from 'vitest';

import { resolveDatabaseOptions, Database } from '../../src/database/connection.js';
import type { CursorFilter } from '../../src/database/cursors.js';
import { openWindow } from '../../src/database/windows.js';
import type { PageSize } from '../../src/database/windows.js';
import { pagesOf } from '../../src/relay/log/window-pages.js';
import type { Page } from '../../src/relay/log/window-pages.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import {
  enqueue,
  makeStreams,
  randomFrom,
  snapshotWithoutOpenTransactions,
} from '../support/streams.js';

const db = testDatabase();
const everything: CursorFilter[] = [{ topic: '*' }];

beforeAll(() => makeStreams(db));

/** Counts the pages that are requested. */
class CountingDatabase extends Database {
  readonly asked: Record<string, number> = {};

  override async queryTexts(what: string, sql: string, values: unknown[]) {
    this.asked[what] = (this.asked[what] ?? 0) + 1;
    return super.queryTexts(what, sql, values);
  }
}

async function withDatabase<T>(run: (database: CountingDatabase) => Promise<T>): Promise<T> {
  const options = resolveDatabaseOptions({ url: db.url, schema: db.schema });
  const database = new CountingDatabase(options, { connections: 4, applicationName: 'windows' });
  try {
    return await run(database);
  } finally {
    await database.close();
  }
}

async function snapshot(): Promise<string> {
  return only((await db.query<{ s: string }>('SELECT pg_current_snapshot()::text AS s')).rows).s;
}

async function pagesSince(
  database: Database,
  seen: string,
  size: PageSize,
  filters = everything,
): Promise<Page[]> {
  const place = { seen, target: null, position: null };
  const window = await openWindow(database, place, { filters }, size);
  const pages: Page[] = [];
  for await (const page of pagesOf(database, window, { filters }, () => size)) pages.push(page);
  return pages;
}

const idsOf = (pages: readonly Page[]): string[] =>
  pages.flatMap(({ messages }) => messages.map(({ id }) => id));

test('N4 the pages contain the whole window, each within its limits, with any limits', async () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const random = randomFrom(seed);
  const late = await db.connect();
  await late.query('BEGIN');
  const expected: string[] = [];
  const other: string[] = [];
  for (let index = 0; index < 16; index += 1)
    expected.push(...(await enqueue(db, late, { payload: { text: 'x'.repeat(random() * 400) } })));
  await enqueue(db, db.pool, {}); // so that the late ones are below the fresh ones
  const seen = await snapshot();
  await late.query('COMMIT');
  for (let index = 0; index < 24; index += 1) {
    const topic = random() < 0.25 ? 'other' : 'user.registered';
    const ids = await enqueue(db, db.pool, {
      topic,
      payload: { text: 'x'.repeat(random() * 400) },
    });
    (topic === 'other' ? other : expected).push(...ids);
  }
  await withDatabase(async (database) => {
    for (const limit of [1, 7, 16, 1000])
      for (const maxBytes of [1, 1000, 1_000_000])
        for (const pages of [1, 4]) {
          const size = { limit, maxBytes, pages };
          const note = `seed ${seed}, ${JSON.stringify(size)}`;
          const all = await pagesSince(database, seen, size);
          expect(idsOf(all), note).toEqual([...expected, ...other].toSorted());
          expect(
            all.filter(({ finished }) => finished),
            note,
          ).toEqual([all.at(-1)]);
          for (const { messages } of all) {
            expect(messages.length, note).toBeLessThanOrEqual(limit);
            // a single message may be larger than a page
            const bytes = messages
              .slice(1)
              .reduce((sum, { payloadText }) => sum + payloadText.length, 0);
            expect(bytes, note).toBeLessThanOrEqual(maxBytes);
          }
          const some = await pagesSince(database, seen, size, [{ topic: 'user.*' }]);
          expect(idsOf(some), note).toEqual(expected.toSorted());
        }
  });
});

test('N4 while a page is processed the next two are being read, and no more', async () => {
  const seen = await snapshotWithoutOpenTransactions(db);
  for (let index = 0; index < 20; index += 1) await enqueue(db, db.pool, {});
  const askedAfterFirst = async (pages: number): Promise<number> =>
    withDatabase(async (database) => {
      const size = { limit: 2, maxBytes: 1_000_000, pages };
      const place = { seen, target: null, position: null };
      const window = await openWindow(database, place, { filters: everything }, size);
      const reading = pagesOf(database, window, { filters: everything }, () => size);
      await reading.next();
      await reading.return(undefined);
      return database.asked['read page'] ?? 0;
    });
  expect(await askedAfterFirst(4)).toBe(3);
  expect(await askedAfterFirst(1)).toBe(1);
});

/** How many rows of the log were read. */
async function touched(): Promise<number> {
  await db.query('SELECT pg_stat_force_next_flush()');
  const { rows } = await db.query<{ n: string }>(
    `SELECT sum(seq_tup_read + idx_tup_fetch) AS n FROM pg_stat_user_tables
      WHERE schemaname = $1 AND relname LIKE 'messages_%'`,
    [db.schema],
  );
  return Number(only(rows).n);
}

test('N4 a large transaction that commits late is scanned a few times, and not once for each page', async () => {
  const late = await db.connect();
  await late.query('BEGIN');
  const count = 3000;
  await late.query(
    `INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
     SELECT 2, ${db.quoted}.new_id(), now(), pg_current_xact_id(), 'default', 'user.registered', '{}' FROM generate_series(1, ${count})`,
  );
  await enqueue(db, db.pool, {});
  const seen = await snapshot();
  await late.query('COMMIT');
  await enqueue(db, db.pool, {});
  await db.query(`ANALYZE ${db.quoted}.messages`);
  const before = await touched();
  const pages = await withDatabase((database) =>
    pagesSince(database, seen, { limit: 100, maxBytes: 1_000_000, pages: 4 }),
  );
  expect(idsOf(pages)).toHaveLength(count + 1);
  // once to plan and once to read, and a little more; with a plan for each page it would be 30 times
  expect((await touched()) - before).toBeLessThan(5 * count);
});
