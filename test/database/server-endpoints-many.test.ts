// A hundred thousand endpoints: a page of their list and of the list of destinations, a search, and the detail and the
// statistics of one read about as much as with a few.

import { createHash } from 'node:crypto';

import { beforeAll, expect, it } from 'vitest';

import {
  listEndpoints,
  listProblemsFirst,
  readListedEndpoint,
} from '../../src/features/endpoints/listing.js';
import type { EndpointFilter } from '../../src/features/endpoints/listing.js';
import type { QueryOrder } from '../../src/features/endpoints/listing-order.js';
import { readDestination } from '../../src/listing/destination-detail.js';
import { destinationOrders, listDestinations } from '../../src/listing/destination-list.js';
import { alertsOf } from '../../src/features/alerts/database.js';
import { groupDeadLetters } from '../../src/features/dead-letters/database.js';
import { lanes, lanesOfKey, queue, retrying } from '../../src/listing/message-ranges.js';
import { chooseStart } from '../../src/listing/message-starts.js';
import { readHealth } from '../../src/listing/reports.js';
import { readDestinationStatistics } from '../../src/listing/destination-statistics.js';
import type { Database } from '../../src/database/connection.js';
import { pagesOf } from '../support/pages.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';

const db = testDatabase();
const count = 100_000;
const nameOf = (n: number): string => `ep_${createHash('md5').update(String(n)).digest('hex')}`;
/** Both are enabled; the first has many retries, the second a dead letter. */
const failing = [nameOf(99_002), nameOf(3)] as const;
const disabled = nameOf(7);

beforeAll(async () => {
  await db.query(
    `INSERT INTO ${db.quoted}.destinations (name, kind, max_attempts, retry_base_ms, retry_max_ms, origin, paused_at)
     SELECT 'ep_' || md5(n::text), 'endpoint', 10, 0, 0, 'database', CASE WHEN n = 7 THEN clock_timestamp() END
       FROM generate_series(1, ${count}) n`,
  );
  await db.query(
    `INSERT INTO ${db.quoted}.endpoints (destination_id, url, topics, tenant_id, secrets, removed_at)
     SELECT d.id, 'https://customer-' || d.id || '.example/hooks', '{*}', 'tenant-' || d.id / 50, '[]',
            CASE WHEN d.id % 10 = 0 THEN clock_timestamp() END
       FROM ${db.quoted}.destinations d WHERE d.origin = 'database'`,
  );
  await db.query(
    `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
     SELECT date_bin('10 seconds', statement_timestamp(), 'epoch') - n * interval '10 seconds', d.id, 1, 0, 0
       FROM (SELECT id FROM ${db.quoted}.destinations WHERE origin = 'database' ORDER BY id LIMIT 200) d,
            generate_series(1, 1000) n WHERE n <= 2 OR d.id % 200 <> 1`,
  );
  await db.query(
    `INSERT INTO ${db.quoted}.endpoint_failures (destination_id, failing_since)
     SELECT d.id, clock_timestamp() FROM ${db.quoted}.destinations d WHERE d.name = ANY ($1)`,
    [failing],
  );
  // many deliveries and dead letters of few
  await db.query(
    `INSERT INTO ${db.quoted}.deliveries (message_id, destination_id, available_at, tries, bytes, namespace)
     SELECT gen_random_uuid(), d.id, clock_timestamp(), 1, 10, 'default'
       FROM ${db.quoted}.destinations d, generate_series(1, 20000) n WHERE d.name = $1`,
    [failing[0]],
  );
  await db.query(
    `INSERT INTO ${db.quoted}.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason)
     SELECT gen_random_uuid(), d.id, clock_timestamp() - CASE d.name WHEN $1 THEN interval '0' ELSE interval '2 days' END,
            1, 1, 'rejected'
       FROM ${db.quoted}.destinations d WHERE d.name = $1 OR d.id % 4 = 1 AND d.id < 40000`,
    [failing[1]],
  );
  await db.query(
    `ANALYZE ${db.quoted}.endpoints, ${db.quoted}.destinations, ${db.quoted}.statistics,
             ${db.quoted}.deliveries, ${db.quoted}.dead_letters`,
  );
}, 120_000);

/** What is asked for, how many a page finds, and the most pages of the database that it may read. */
const filters: [string, EndpointFilter, number, number][] = [
  ['without a filter', {}, 50, 1000],
  ['of a tenant', { tenantId: 'tenant-1000' }, 45, 1000],
  ['that are enabled', { state: 'enabled' }, 50, 10_000],
  ['that are failing', { state: 'failing' }, 2, 1000],
  ['that are disabled', { state: 'disabled' }, 1, 100],
  ['that are healthy', { state: 'healthy' }, 50, 20_000],
  ['of a name', { search: 'ep_c4ca4238' }, 1, 100],
  ['of an address', { search: 'https://customer-4999' }, 10, 300],
  ['of the beginning of a tenant', { search: 'tenant-199' }, 50, 2000],
  ['of a wide search', { search: 'https://customer-' }, 50, 10_000],
];

it.each(filters)(
  'W5 a page of endpoints %s reads a bounded part',
  async (_what, filter, found, most) => {
    const { pages, answer } = await pagesOf(db, (database) =>
      listEndpoints(database, filter, { limit: 50 }),
    );
    expect(answer.endpoints).toHaveLength(found);
    expect(pages).toBeLessThan(most);
  },
);

it('W5 P14 health, alerts and groups of dead letters visit only endpoints with work', async () => {
  const health = await pagesOf(db, (database) => readHealth(database));
  expect(health.answer.find(({ metric }) => metric === 'waiting')).toMatchObject({ value: 20_000 });
  // one step for each of the ten thousand endpoints with a dead letter
  expect(health.pages).toBeLessThan(120_000);
  const alerts = await pagesOf(db, (database) => alertsOf(database, health.answer));
  expect(alerts.answer.find(({ alert }) => alert === 'retrying')).toMatchObject({
    firing: true,
    destination: failing[0],
  });
  expect(alerts.pages).toBeLessThan(400_000);
  const groups = await pagesOf(db, (database) => groupDeadLetters(database));
  expect(groups.answer).toMatchObject([{ cause: 'unknown', isExact: false }]);
  expect(groups.pages).toBeLessThan(1000);
});

it.each([
  { status: 'pending', tenantId: 'none' },
  { status: 'pending', key: 'none' },
  { status: 'retrying', topic: 'none' },
] as const)('W5 the choice of a start for %j visits only endpoints with work', async (filter) => {
  const { pages } = await pagesOf(db, (database) => chooseStart(database, filter));
  expect(pages).toBeLessThan(10_000);
});

it.each([queue(null), retrying(null), lanes(null), lanesOfKey({ key: 'none' })])(
  'W5 the range "$name" of a list of messages visits only endpoints with work',
  async ({ sql, start, values }) => {
    const { pages, answer } = await pagesOf(db, (database) =>
      database.query('read a range', sql(database.schema), [...start, 50, ...values]),
    );
    expect(answer.length).toBeLessThanOrEqual(50);
    expect(pages).toBeLessThan(10_000);
  },
);

it('W5 the last page reads no more than the first', async () => {
  const page = (next: string) => (database: Database) =>
    listEndpoints(database, {}, { limit: 50, next });
  const first = await pagesOf(db, page(String(count)));
  const last = await pagesOf(db, page('200'));
  expect(last.answer.endpoints).toHaveLength(50);
  expect(last.pages).toBeLessThan(first.pages * 2);
});

/** All endpoints of a list, page by page, and the number of pages. */
async function walked(
  list: typeof listEndpoints,
  filter: EndpointFilter,
  most = Number.POSITIVE_INFINITY,
): Promise<{ names: string[]; pages: number; slowestMs: number }> {
  const database = openDatabase(db, 'test_server');
  const names: string[] = [];
  let [pages, slowestMs] = [0, 0];
  for (let next: string | null | undefined; next !== null && pages < most; pages += 1) {
    const startedMs = performance.now();
    const page = await list(database, filter, { limit: 50, ...(next !== undefined && { next }) });
    slowestMs = Math.max(slowestMs, performance.now() - startedMs);
    names.push(...page.endpoints.map(({ name }) => name));
    ({ next } = page);
  }
  return { names, pages, slowestMs };
}

it('W5 the few that are disabled or failing are found at once', async () => {
  expect(await walked(listEndpoints, { state: 'disabled' })).toMatchObject({
    names: [disabled],
    pages: 1,
  });
  expect(await walked(listEndpoints, { state: 'failing' })).toMatchObject({
    names: failing,
    pages: 1,
  });
});

it('W5 problems come first, then all others once', async () => {
  const first = await walked(listProblemsFirst, {}, 10);
  expect(first.names.slice(0, 3)).toEqual([...failing, disabled]);
  expect(new Set(first.names).size).toBe(first.names.length);
  const tenant = await walked(listProblemsFirst, { tenantId: 'tenant-0' });
  expect(tenant.names.slice(0, 2)).toEqual([failing[1], disabled]);
  expect(tenant.names.toSorted()).toEqual(
    (await walked(listEndpoints, { tenantId: 'tenant-0' })).names.toSorted(),
  );
  await expect(
    listProblemsFirst(openDatabase(db), {}, { limit: 50, next: 'elsewhere.1' }),
  ).rejects.toThrow('next is "elsewhere.1": pass next from the previous page');
});

const inOrder: [QueryOrder, EndpointFilter, number][] = [
  ['name', {}, 50],
  ['name', { tenantId: 'tenant-1000' }, 45],
  ['name', { state: 'failing' }, 2],
  ['name', { state: 'healthy' }, 50],
  ['name', { search: 'https://customer-' }, 50],
  ['name', { search: 'https://customer-4999' }, 10],
  ['waiting', {}, 50],
  ['waiting', { search: 'tenant-199' }, 50],
  ['dead', {}, 50],
  ['dead', { tenantId: 'tenant-0' }, 45],
  ['dead', { state: 'disabled' }, 1],
];

it.each(inOrder)(
  'W5 a page of endpoints in the order %s with the filter %j reads a bounded part',
  async (order, filter, found) => {
    const page = (next: string | null) =>
      pagesOf(db, (database) =>
        listEndpoints(database, filter, { limit: 50, order, ...(next !== null && { next }) }),
      );
    const first = await page(null);
    expect(first.answer.endpoints).toHaveLength(found);
    expect(first.pages).toBeLessThan(50_000);
    if (found < 50) return;
    const second = await page(first.answer.next);
    expect(second.pages).toBeLessThan(50_000);
    const names = [first, second].flatMap(({ answer }) => answer.endpoints.map(({ name }) => name));
    expect(new Set(names).size).toBe(100);
  },
);

it('W5 one endpoint and its statistics are read by indexes', async () => {
  const name = 'ep_c4ca4238a0b923820dcc509a6f75849b';
  const one = await pagesOf(db, (database) => readListedEndpoint(database, { name }));
  expect(one.answer).toMatchObject({ name });
  expect(one.pages).toBeLessThan(50);
  const statistics = await pagesOf(db, (database) =>
    readDestinationStatistics(database, name, 240),
  );
  expect(statistics.answer).toMatchObject({ delivered: 2 });
  expect(statistics.pages).toBeLessThan(600);
});

it.each(destinationOrders)(
  'W5 a page of all destinations by %s reads a bounded part',
  async (order) => {
    const page = (next: string | undefined) =>
      pagesOf(db, (database) =>
        listDestinations(database, {}, { order, limit: 20, ...(next !== undefined && { next }) }),
      );
    const first = await page(undefined);
    expect(first.answer.destinations).toHaveLength(20);
    expect(first.pages).toBeLessThan(30_000);
    const second = await page(first.answer.next ?? '');
    expect(second.pages).toBeLessThan(30_000);
    const names = [first, second].flatMap(({ answer }) =>
      answer.destinations.map(({ name }) => name),
    );
    expect(new Set(names).size).toBe(40);
  },
);

it('W5 a search for a text in a name, and the detail of one destination, read a bounded part', async () => {
  const found = await pagesOf(db, (database) =>
    listDestinations(database, { search: 'CA4238A0B9' }, { order: 'problems', limit: 20 }),
  );
  expect(found.answer).toMatchObject({ destinations: [{ name: nameOf(1) }], next: null });
  expect(found.pages).toBeLessThan(30_000);
  const one = await pagesOf(db, (database) => readDestination(database, nameOf(1)));
  expect(one.answer).toMatchObject({ name: nameOf(1), kind: 'endpoint', failingSince: null });
  expect(one.pages).toBeLessThan(3000);
});
