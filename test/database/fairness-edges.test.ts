// Fairness in hard cases: while it is switched on, among very many tenants, for workers that remember nothing between
// two claims, and beside a session that keeps rows locked.

import { randomUUID } from 'node:crypto';

import type pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';

import { defineDestination } from '../support/destinations.js';
import { enqueueMany, isFair, makeQueue, untilFair } from '../support/outbox.js';
import type { Claim, Connection, MessageFields, Queue } from '../support/outbox.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { settleDelivered } from '../support/settling.js';

const db = testDatabase();

const times = (count: number, fields: MessageFields): MessageFields[] =>
  Array.from({ length: count }, () => fields);
const tenantNames = (count: number): string[] =>
  Array.from({ length: count }, (_, n) => `tenant-${String(n).padStart(6, '0')}`);
const tenantsOf = ({ rows }: Claim): string[] => [
  ...new Set(rows.map(({ tenant_id: tenant }) => tenant ?? 'none')),
];

async function begun(isolation = 'READ COMMITTED'): Promise<pg.Client> {
  const client = await db.connect();
  await client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
  return client;
}

/** The tenants that claims have served, in their order, and where the next claim goes on. */
class Served {
  readonly queue: string[] = [];
  readonly lanes: string[] = [];

  add({ rows }: Claim): void {
    for (const [served, isKeyed] of [
      [this.queue, false],
      [this.lanes, true],
    ] as const) {
      const own = rows.filter(({ key }) => (key !== null) === isKeyed);
      const tenants = [...new Set(own.map(({ tenant_id: tenant }) => tenant ?? ''))].toSorted();
      const last = served.at(-1) ?? '';
      served.push(...tenants.filter((tenant) => tenant > last));
      served.push(...tenants.filter((tenant) => tenant <= last));
    }
  }

  get after(): { afterTenant: string; afterLaneTenant: string } {
    return { afterTenant: this.queue.at(-1) ?? '', afterLaneTenant: this.lanes.at(-1) ?? '' };
  }
}

describe('while fairness is switched on', () => {
  const backlog = (): MessageFields[] => [
    ...times(40, { tenantId: 'a' }),
    ...times(40, { tenantId: 'b' }),
  ];
  const switchOn = (queue: Queue) => defineDestination(db, queue.name, { fairness: 'tenant' });
  const without = (queue: Queue, fields: MessageFields = {}): MessageFields[] =>
    times(2, { topic: queue.topic, ...fields });
  /** It has not begun, however often relays look. */
  const staysUnfair = async (queue: Queue) => {
    for (let look = 0; look < 4; look += 1) expect(await isFair(queue)).toBe(false);
  };

  it('C10 it begins when a transaction that did not see it has ended, and its messages are included', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll(backlog());
    const producer = await begun();
    await enqueueMany(db, producer, without(queue));
    await switchOn(queue);
    await staysUnfair(queue);
    expect(tenantsOf(await queue.claim({ limit: 6 })), 'the oldest first').toEqual(['a']);
    await producer.query('COMMIT');
    await untilFair(queue);
    expect(tenantsOf(await queue.claim({ limit: 6 })).toSorted()).toEqual(['a', 'b', 'none']);
  });

  it('C10 a key whose first message was claimed before is included', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll(without(queue, { key: 'k' }));
    const worker = await begun();
    const first = await queue.claim({ on: worker, limit: 1 });
    expect(first.rows).toMatchObject([{ sequence: '1' }]);
    await queue.enqueueAll(backlog());
    await switchOn(queue);
    await staysUnfair(queue);
    await worker.query('COMMIT');
    await settleDelivered(db, first);
    await untilFair(queue);
    const next = await queue.claim({ limit: 6, lanesFirst: true });
    expect(next.rows.find(({ tenant_id: tenant }) => tenant === null)).toMatchObject({
      sequence: '2',
    });
  });

  it('C10 messages of transactions that began after the switch and before its commit are included', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll(backlog());
    const switching = await begun();
    await defineDestination(db, queue.name, { fairness: 'tenant' }, switching);
    const [first, second] = [await begun(), await begun()];
    await enqueueMany(db, first, without(queue));
    await enqueueMany(db, second, without(queue));
    await switching.query('COMMIT');
    await staysUnfair(queue);
    await first.query('COMMIT');
    await staysUnfair(queue);
    await second.query('COMMIT');
    await untilFair(queue);
    const claim = await queue.claim({ limit: 12 });
    expect(claim.rows.filter(({ tenant_id: tenant }) => tenant === null)).toHaveLength(4);
  });

  it('C10 a message of a producer with an earlier snapshot is included', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll(backlog());
    const producer = await begun('REPEATABLE READ');
    await producer.query('SELECT count(*) FROM pg_class');
    await switchOn(queue);
    await untilFair(queue);
    await enqueueMany(db, producer, without(queue));
    await producer.query('COMMIT');
    expect(tenantsOf(await queue.claim({ limit: 6 }))).toContain('none');
  });

  it('C10 it begins when rows that another session has locked are free', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll([...without(queue), ...backlog()]);
    const operator = await begun();
    await operator.query(
      `SELECT FROM ${db.quoted}.deliveries WHERE destination_id = $1 AND tenant_id IS NULL FOR UPDATE`,
      [queue.id],
    );
    await switchOn(queue);
    await staysUnfair(queue);
    await operator.query('ROLLBACK');
    await untilFair(queue);
    expect(tenantsOf(await queue.claim({ limit: 6 }))).toContain('none');
  });

  it('C10 the transaction that switches it on may claim, and does not begin it', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll([...times(2, {}), ...backlog()]);
    const client = await begun();
    await defineDestination(db, queue.name, { fairness: 'tenant' }, client);
    expect(tenantsOf(await queue.claim({ on: client, limit: 6 }))).toEqual(['none', 'a']);
    await queue.claim({ on: client, limit: 6 });
    await queue.enqueueAll(without(queue));
    await client.query('COMMIT');
    expect(await isFair(queue)).toBe(false);
    await untilFair(queue);
    expect(tenantsOf(await queue.claim({ limit: 6 }))).toContain('none');
  });

  it('C10 the state of another server, from a dump, does not delay it', async () => {
    const queue = await makeQueue(db, { fairness: 'tenant' });
    await queue.enqueueAll([...times(2, {}), ...backlog()]);
    await db.query(
      `UPDATE ${db.quoted}.deliveries SET tenant_id = NULL WHERE destination_id = $1 AND tenant_id = ''`,
      [queue.id],
    );
    await db.query(
      `UPDATE ${db.quoted}.destinations SET is_fair = false,
              fair_from = (pg_current_xact_id()::text::bigint + 1000000000)::text::xid8 WHERE id = $1`,
      [queue.id],
    );
    await untilFair(queue);
    expect(tenantsOf(await queue.claim({ limit: 6 }))).toContain('none');
  });

  it('C10 it can be switched off and on again', async () => {
    const queue = await makeQueue(db, { fairness: 'tenant' });
    await queue.enqueueAll(backlog());
    await defineDestination(db, queue.name, { fairness: 'none' });
    await queue.enqueueAll(times(2, {}));
    expect(tenantsOf(await queue.claim({ limit: 6 })), 'the oldest first').toEqual(['a']);
    await switchOn(queue);
    await untilFair(queue);
    expect(tenantsOf(await queue.claim({ limit: 6 })).toSorted()).toEqual(['a', 'b', 'none']);
  });
});

describe('a worker in SQL', () => {
  const sqlClaim = async (
    queue: Queue,
    on: Connection,
    count: number,
  ): Promise<{ tenant_id: string | null }[]> => {
    const { rows } = await on.query<{ tenant_id: string | null }>(
      `SELECT tenant_id FROM ${db.quoted}.claim($1, $2, $3)`,
      [queue.name, randomUUID(), count],
    );
    return rows;
  };

  it('C10 C6 reaches every one of thousands of tenants before any for the second time', async () => {
    const queue = await makeQueue(db, { fairness: 'tenant' });
    const names = tenantNames(3000);
    await queue.enqueueAll(names.flatMap((tenantId) => times(2, { tenantId })));
    await queue.enqueueAll(times(100, {}));
    const client = await db.connect();
    const served = new Set<string | null>();
    for (let claim = 0; claim < Math.ceil(3001 / 100); claim += 1)
      for (const row of await sqlClaim(queue, client, 100)) served.add(row.tenant_id);
    expect(served.size).toBe(3001);
  });

  it('C10 C6 starts with a random tenant in a new session', async () => {
    const queue = await makeQueue(db, { fairness: 'tenant' });
    await queue.enqueueAll(tenantNames(5000).flatMap((tenantId) => times(2, { tenantId })));
    await queue.enqueueAll(times(2000, { tenantId: 'tenant-000000' }));
    const begins: string[] = [];
    for (let session = 0; session < 12; session += 1) {
      const client = await db.connect();
      begins.push(only(await sqlClaim(queue, client, 1)).tenant_id ?? '');
      await client.end();
    }
    // that twelve start in the same fifth happens once in fifty million runs
    expect(begins.toSorted().at(-1)).toMatch(/^tenant-00[1-4]/);
    expect(new Set(begins).size).toBeGreaterThan(6);
  });
});

describe('among very many tenants', () => {
  const many = 20_000;
  /** One pending delivery for each. */
  async function fill(queue: Queue, namespace: string, due: string, tenants: string[]) {
    await db.query(
      `INSERT INTO ${db.quoted}.deliveries (message_id, destination_id, available_at, bytes, namespace, tenant_id)
       SELECT gen_random_uuid(), $1, now() + $2::interval, 10, $3, t FROM unnest($4::text[]) t`,
      [queue.id, due, namespace, tenants],
    );
  }

  /** Rows of deliveries that the work fetches, by any plan, and the number of index scans. */
  async function reads(work: (on: pg.Client) => Promise<unknown>): Promise<number> {
    const client = await begun();
    const count = async (): Promise<number> => {
      const { rows } = await client.query<{ count: number }>(
        `SELECT (seq_tup_read + coalesce(idx_tup_fetch, 0) + coalesce(idx_scan, 0))::int AS count
           FROM pg_stat_xact_user_tables WHERE schemaname = $1 AND relname = 'deliveries'`,
        [db.schema],
      );
      return only(rows).count;
    };
    const before = await count();
    await work(client);
    const after = await count();
    await client.query('COMMIT');
    await client.end();
    return after - before;
  }

  it('C10 tenants without due work cost a claim no more than a bounded scan', async () => {
    const queue = await makeQueue(db, { fairness: 'tenant' });
    await fill(queue, 'default', '1 hour', tenantNames(many));
    const look = (on: pg.Client) => queue.claim({ on, limit: 25 });
    expect(await reads(look)).toBeLessThan(3000);
    const ids = await queue.enqueueAll(
      ['tenant-009000', 'tenant-019000'].flatMap((tenantId) => times(1, { tenantId })),
    );
    let claim: Claim | undefined;
    const read = await reads(async (on) => {
      claim = await queue.claim({ on, limit: 25, afterTenant: 'tenant-012000' });
    });
    expect(claim?.ids.toSorted()).toEqual(ids.toSorted());
    expect(read).toBeLessThan(4000);
  });

  it('C10 a tenant with due work does not wait for long behind a backlog among tenants without due work', async () => {
    const queue = await makeQueue(db, { fairness: 'tenant' });
    await fill(queue, 'default', '1 hour', tenantNames(many));
    await queue.enqueueAll(times(3000, { tenantId: 'tenant-012000' }));
    await queue.enqueueAll([{ tenantId: 'tenant-003000' }]);
    let afterTenant = '';
    let claims = 0;
    // of twenty thousand, each claim checks five hundred and more; and a backlog of 3000 ends before the thousandth
    for (; ; claims += 1) {
      const claim = await queue.claim({ limit: 2, afterTenant });
      const served = tenantsOf(claim);
      if (served.includes('tenant-003000')) break;
      expect(served).toEqual(['tenant-012000']);
      afterTenant = 'tenant-012000';
    }
    expect(claims).toBeLessThan(900);
  });

  it('C10 tenants with work in another namespace cost a claim no more than a bounded scan, and none is left out', async () => {
    const queue = await makeQueue(db, { fairness: 'tenant' });
    const names = tenantNames(many);
    await fill(queue, 'other', '-1 hour', names);
    const wanted = names.filter((_, n) => n % 100 === 0);
    await queue.enqueueAll(
      wanted.flatMap((tenantId) => [
        { tenantId, namespace: 'mine' },
        { tenantId, namespace: 'mine', key: 'k' },
      ]),
    );
    const served = new Served();
    const counts: number[] = [];
    let claims = 0;
    while (served.queue.length + served.lanes.length < 2 * wanted.length) {
      claims += 1;
      const read = await reads(async (on) => {
        const lanesFirst = claims % 2 === 0;
        const options = { on, limit: 25, namespace: 'mine', lanesFirst, ...served.after };
        served.add(await queue.claim(options));
      });
      // a claim that finds nothing in its namespace reads what is due in the others
      if (Math.max(served.queue.length, served.lanes.length) < wanted.length) counts.push(read);
    }
    expect(counts.length).toBeGreaterThan(5);
    expect(Math.max(...counts)).toBeLessThan(3000);
    expect(served.queue).toEqual(wanted);
    expect(served.lanes).toEqual(wanted);
    expect(claims).toBeLessThanOrEqual(wanted.length / 4);
  });
});

it('C10 tenants whose work is locked do not hide those behind them', async () => {
  const queue = await makeQueue(db, { fairness: 'tenant' });
  const names = tenantNames(40);
  await queue.enqueueAll(names.map((tenantId) => ({ tenantId })));
  const worker = await begun();
  onTestFinished(async () => void (await worker.query('ROLLBACK')));
  expect((await queue.claim({ on: worker, limit: 10 })).rows).toHaveLength(10);
  expect(
    (await queue.claim({ on: worker, limit: 10, afterTenant: 'tenant-000009' })).rows,
  ).toHaveLength(10);
  expect(tenantsOf(await queue.claim({ limit: 10 }))).toEqual(names.slice(20, 30));
  const listed = (afterTenant: string) => queue.claim({ limit: 20, tenantIds: names, afterTenant });
  expect(tenantsOf(await listed('tenant-000035'))).toEqual(names.slice(36));
  expect(tenantsOf(await listed('tenant-000039'))).toEqual(names.slice(30, 36));
});

it.each([
  ['messages', {}, { key: 'k' }],
  ['heads of keys', { key: 'k' }, {}],
])(
  'C10 P2 M6 quarantined %s are claimed alone, in every other claim',
  async (_what, own, other) => {
    const queue = await makeQueue(db, { fairness: 'tenant' });
    const names = tenantNames(60);
    const holders = names.filter((_, n) => n % 7 === 3);
    const quarantined = await queue.enqueueAll(holders.map((tenantId) => ({ tenantId, ...own })));
    await queue.enqueueAll(
      names.flatMap((tenantId) => [
        ...times(9, { tenantId, ...other }),
        ...(holders.includes(tenantId) ? [] : times(9, { tenantId, ...own })),
      ]),
    );
    await db.query(
      `UPDATE ${db.quoted}.deliveries SET quarantined = true WHERE destination_id = $1 AND message_id = ANY ($2)`,
      [queue.id, quarantined],
    );
    await db.query(
      `SELECT ${db.quoted}.wake_lanes(d, 10000) FROM ${db.quoted}.destinations d WHERE id = $1`,
      [queue.id],
    );
    const alone: string[] = [];
    for (let claims = 0; claims < 2 * holders.length; claims += 1) {
      const claim = await queue.claim({ limit: 10, lanesFirst: claims % 2 === 1 });
      expect(claim.rows.map((row) => row.quarantined)).toEqual(
        claims % 2 === 0 ? [true] : Array.from({ length: 10 }, () => false),
      );
      if (claims % 2 === 0) alone.push(...claim.ids);
      await settleDelivered(db, claim);
    }
    expect(alone.toSorted()).toEqual(quarantined.toSorted());
  },
);

it('C10 P2 with keys and without, every tenant is served before any for the second time', async () => {
  const queue = await makeQueue(db, { fairness: 'tenant' });
  const names = tenantNames(1002);
  const inQueue = names.filter((_, n) => n % 3 !== 0);
  const inLanes = names.filter((_, n) => n % 3 !== 1);
  await queue.enqueueAll([
    ...inQueue.flatMap((tenantId) => times(3, { tenantId })),
    ...inLanes.flatMap((tenantId) => [
      ...times(3, { tenantId, key: 'k' }),
      { tenantId, key: 'other' },
    ]),
  ]);
  const served = new Served();
  const claimsOfEach = Math.ceil(668 / 7);
  for (let claims = 0; claims < 2 * claimsOfEach; claims += 1) {
    const claim = await queue.claim({ limit: 7, lanesFirst: claims % 2 === 1, ...served.after });
    expect(claim.rows).toHaveLength(7);
    served.add(claim);
  }
  expect(served.queue.slice(0, inQueue.length)).toEqual(inQueue);
  expect(served.lanes.slice(0, inLanes.length)).toEqual(inLanes);
});
