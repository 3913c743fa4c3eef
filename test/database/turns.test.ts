// Whose turn is next, where it is hardest to tell: while turns begin, among very many tenants, for whoever remembers
// nothing between two claims, and beside somebody who holds on to what it has claimed.

import { randomUUID } from 'node:crypto';

import type pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';

import { defineDestination } from '../support/destinations.js';
import { enqueueMany, makeQueue } from '../support/outbox.js';
import type { Claim, Connection, MessageFields, Queue } from '../support/outbox.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { settleDelivered } from '../support/settling.js';
import { waitFor } from '../support/wait.js';

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

describe('while turns begin', () => {
  const backlog = (): MessageFields[] => [
    ...times(40, { tenantId: 'a' }),
    ...times(40, { tenantId: 'b' }),
  ];
  const switchOn = (queue: Queue) => defineDestination(db, queue.name, { fairness: 'tenant' });
  const without = (queue: Queue, fields: MessageFields = {}): MessageFields[] =>
    times(2, { topic: queue.topic, ...fields });

  const owed = async (queue: Queue): Promise<number> => {
    const { rowCount } = await db.query(
      `SELECT FROM ${db.quoted}.lane_tickets WHERE destination_id = $1 AND id < 0`,
      [queue.id],
    );
    return rowCount ?? 0;
  };
  const untilNothingIsOwed = (queue: Queue) =>
    waitFor(
      async () => {
        await queue.claim({ limit: 1 });
        return (await owed(queue)) === 0;
      },
      { what: 'the end of the debt' },
    );

  it('C10 what a producer had enqueued and commits later takes its turn', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll(backlog());
    const producer = await begun();
    await enqueueMany(db, producer, without(queue));
    await switchOn(queue);
    expect(tenantsOf(await queue.claim({ limit: 6 }))).toEqual(['a', 'b']);
    await producer.query('COMMIT');
    expect(tenantsOf(await queue.claim({ limit: 6 }))).toContain('none');
  });

  it('C10 so does a key whose first message somebody had claimed', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll(without(queue, { key: 'k' }));
    const worker = await begun();
    const first = await queue.claim({ on: worker, limit: 1 });
    expect(first.rows).toMatchObject([{ sequence: '1' }]);
    await queue.enqueueAll(backlog());
    await switchOn(queue);
    await queue.claim({ limit: 2 });
    await worker.query('COMMIT');
    await settleDelivered(db, first);
    const next = await queue.claim({ limit: 6, lanesFirst: true });
    expect(next.rows.find(({ tenant_id: tenant }) => tenant === null)).toMatchObject({
      sequence: '2',
    });
  });

  it('C10 so does what comes from one that began after the switch and before its commit', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll(backlog());
    const switching = await begun();
    await switching.query(
      `SELECT ${db.quoted}.define_destination($1, 'test', p_fairness => 'tenant')`,
      [queue.name],
    );
    const [first, second] = [await begun(), await begun()];
    await enqueueMany(db, first, without(queue));
    await enqueueMany(db, second, without(queue));
    await switching.query('COMMIT');
    expect(tenantsOf(await queue.claim({ limit: 6 }))).toEqual(['a', 'b']);
    await first.query('COMMIT');
    expect(tenantsOf(await queue.claim({ limit: 6 }))).toContain('none');
    expect(tenantsOf(await queue.claim({ limit: 6 }))).toEqual(['a', 'b']);
    await second.query('COMMIT');
    expect(tenantsOf(await queue.claim({ limit: 6 }))).toContain('none');
  });

  it('C10 so does what a producer enqueues that sees the state of before', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll(backlog());
    const producer = await begun('REPEATABLE READ');
    await producer.query('SELECT count(*) FROM pg_class');
    await switchOn(queue);
    await untilNothingIsOwed(queue);
    await enqueueMany(db, producer, without(queue));
    await producer.query('COMMIT');
    expect(tenantsOf(await queue.claim({ limit: 6 }))).toContain('none');
  });

  it('C10 so does what was locked while turns were given', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll(backlog());
    const producer = await begun();
    await enqueueMany(db, producer, without(queue));
    await switchOn(queue);
    await queue.claim({ limit: 2 });
    await producer.query('COMMIT');
    const operator = await begun();
    await operator.query(
      `SELECT FROM ${db.quoted}.deliveries WHERE destination_id = $1 AND tenant_id IS NULL FOR UPDATE`,
      [queue.id],
    );
    expect(tenantsOf(await queue.claim({ limit: 6 }))).toEqual(['a', 'b']);
    await operator.query('ROLLBACK');
    expect(tenantsOf(await queue.claim({ limit: 6 }))).toContain('none');
  });

  it('C10 who switches them on may claim in the same transaction', async () => {
    const queue = await makeQueue(db);
    await queue.enqueueAll([...times(2, {}), ...backlog()]);
    const client = await begun();
    await client.query(
      `SELECT ${db.quoted}.define_destination($1, 'test', 10, 1000, 300000, p_fairness => 'tenant')`,
      [queue.name],
    );
    await db.query('SELECT pg_current_xact_id()');
    expect(tenantsOf(await queue.claim({ on: client, limit: 6 }))).toEqual(['none', 'a', 'b']);
    await db.query('SELECT pg_current_xact_id()');
    await queue.claim({ on: client, limit: 6 });
    await queue.enqueueAll(without(queue));
    await client.query('COMMIT');
    const later = [await queue.claim({ limit: 6 }), await queue.claim({ limit: 6 })];
    expect(later.flatMap(tenantsOf)).toContain('none');
    await untilNothingIsOwed(queue);
  });

  it.each([0, 1, 2])(
    'C10 a debt of another server, from a dump, is paid (step %i)',
    async (step) => {
      const queue = await makeQueue(db, { fairness: 'tenant' });
      await queue.enqueueAll([...times(2, {}), ...backlog()]);
      await db.query(
        `UPDATE ${db.quoted}.deliveries SET tenant_id = NULL WHERE destination_id = $1 AND tenant_id = ''`,
        [queue.id],
      );
      await db.query(
        `INSERT INTO ${db.quoted}.lane_tickets (destination_id, id, stream_id, recheck) OVERRIDING SYSTEM VALUE
         VALUES ($1, -(pg_current_xact_id()::text::bigint + 1000000000), $2, $3)`,
        [queue.id, step, step > 0],
      );
      await untilNothingIsOwed(queue);
      expect(tenantsOf(await queue.claim({ limit: 6 }))).toContain('none');
    },
  );

  it('C10 it is over when those who were at work have ended', async () => {
    const queue = await makeQueue(db);
    const producer = await begun();
    await enqueueMany(db, producer, without(queue));
    await switchOn(queue);
    await queue.claim();
    await queue.claim();
    expect(await owed(queue)).toBeGreaterThan(0);
    const { rows } = await db.query(
      `SELECT FROM ${db.quoted}.next_due() WHERE destination_id = $1`,
      [queue.id],
    );
    expect(rows, 'nobody is woken for it').toEqual([]);
    await producer.query('COMMIT');
    await untilNothingIsOwed(queue);
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

  it('C10 C6 begins with any of them in a new session', async () => {
    const queue = await makeQueue(db, { fairness: 'tenant' });
    await queue.enqueueAll(tenantNames(5000).flatMap((tenantId) => times(2, { tenantId })));
    await queue.enqueueAll(times(2000, { tenantId: 'tenant-000000' }));
    const begins: string[] = [];
    for (let session = 0; session < 12; session += 1) {
      const client = await db.connect();
      begins.push(only(await sqlClaim(queue, client, 1)).tenant_id ?? '');
      await client.end();
    }
    // that twelve begin in the same fifth happens once in fifty million runs
    expect(begins.toSorted().at(-1)).toMatch(/^tenant-00[1-4]/);
    expect(new Set(begins).size).toBeGreaterThan(6);
  });
});

describe('among very many tenants', () => {
  const many = 20_000;
  /** One waiting delivery for each. */
  async function fill(queue: Queue, namespace: string, due: string, tenants: string[]) {
    await db.query(
      `INSERT INTO ${db.quoted}.deliveries (message_id, destination_id, available_at, bytes, namespace, tenant_id)
       SELECT gen_random_uuid(), $1, now() + $2::interval, 10, $3, t FROM unnest($4::text[]) t`,
      [queue.id, due, namespace, tenants],
    );
  }

  /** Rows of deliveries that the work fetches, by whatever way, and how often an index is asked. */
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

  it('C10 those whose work is not due cost a claim no more than a bounded look', async () => {
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

  it('C10 nobody waits for long behind a backlog among tenants whose work is not due', async () => {
    const queue = await makeQueue(db, { fairness: 'tenant' });
    await fill(queue, 'default', '1 hour', tenantNames(many));
    await queue.enqueueAll(times(3000, { tenantId: 'tenant-012000' }));
    await queue.enqueueAll([{ tenantId: 'tenant-003000' }]);
    let afterTenant = '';
    let claims = 0;
    // of twenty thousand, each claim looks at five hundred and more; and a backlog of 3000 ends before the thousandth
    for (; ; claims += 1) {
      const claim = await queue.claim({ limit: 2, afterTenant });
      const served = tenantsOf(claim);
      if (served.includes('tenant-003000')) break;
      expect(served).toEqual(['tenant-012000']);
      afterTenant = 'tenant-012000';
    }
    expect(claims).toBeLessThan(900);
  });

  it('C10 those with work in another namespace cost a claim no more than a bounded look, and keep their turns', async () => {
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
    const served = new Map<string, number>();
    let afterTenant = '';
    let claims = 0;
    while (served.size < wanted.length) {
      claims += 1;
      let claim: Claim | undefined;
      const read = await reads(async (on) => {
        claim = await queue.claim({
          on,
          limit: 25,
          namespace: 'mine',
          afterTenant,
          lanesFirst: claims % 2 === 0,
        });
      });
      expect(read).toBeLessThan(3000);
      if (claim === undefined) throw new Error('no answer');
      await settleDelivered(db, claim);
      const tenants = tenantsOf(claim).toSorted();
      for (const tenant of tenants) served.set(tenant, (served.get(tenant) ?? 0) + 1);
      expect(tenants.every((tenant) => tenant > afterTenant)).toBe(true);
      afterTenant = tenants.at(-1) ?? '';
    }
    expect(claims).toBeLessThanOrEqual(wanted.length / 4);
    expect([...served.keys()]).toEqual(wanted);
  });
});

it('C10 tenants whose work somebody holds locked do not hide those behind them', async () => {
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
  ['a message', {}, { key: 'k' }],
  ['the head of a key', { key: 'k' }, {}],
])('C10 P2 %s that had a dead holder is reached within one round', async (_what, own, other) => {
  const queue = await makeQueue(db, { fairness: 'tenant' });
  const names = tenantNames(60);
  const holders = names.filter((_, n) => n % 7 === 3);
  const suspects = await queue.enqueueAll(holders.map((tenantId) => ({ tenantId, ...own })));
  await queue.enqueueAll(
    names.flatMap((tenantId) => [
      ...times(9, { tenantId, ...other }),
      ...(holders.includes(tenantId) ? [] : times(9, { tenantId, ...own })),
    ]),
  );
  await db.query(
    `UPDATE ${db.quoted}.deliveries SET alone = true WHERE destination_id = $1 AND message_id = ANY ($2)`,
    [queue.id, suspects],
  );
  const alone: string[] = [];
  for (let claims = 0, afterTenant = ''; afterTenant < names.slice(-1).join(); claims += 1) {
    const claim = await queue.claim({ limit: 10, afterTenant, lanesFirst: claims % 2 === 0 });
    if (claim.rows[0]?.alone) alone.push(...claim.ids);
    const tenants = tenantsOf(claim).toSorted();
    expect(tenants.every((tenant) => tenant > afterTenant)).toBe(true);
    afterTenant = tenants.slice(-1).join();
    await settleDelivered(db, claim);
  }
  expect(alone).toEqual(suspects);
});

it.each([
  ['in turn', (claims: number) => claims % 2 === 0],
  ['lanes first', () => true],
  ['the queue first', () => false],
])('C10 P2 with keys and without, %s, nobody is passed over', async (_how, lanesFirst) => {
  const queue = await makeQueue(db, { fairness: 'tenant' });
  const names = tenantNames(1002);
  await queue.enqueueAll(
    names.flatMap((tenantId, n) => [
      ...(n % 3 === 0 ? [] : times(3, { tenantId })),
      ...(n % 3 === 1 ? [] : [...times(3, { tenantId, key: 'k' }), { tenantId, key: 'other' }]),
    ]),
  );
  const served = new Set<string>();
  let claims = 0;
  for (let afterTenant = ''; afterTenant < names.slice(-1).join(); claims += 1) {
    const claim = await queue.claim({ limit: 7, afterTenant, lanesFirst: lanesFirst(claims) });
    expect(claim.rows).toHaveLength(7);
    const tenants = tenantsOf(claim).filter((tenant) => tenant > afterTenant);
    for (const tenant of tenants) served.add(tenant);
    afterTenant = tenants.toSorted().slice(-1).join();
  }
  expect(names.filter((name) => !served.has(name))).toEqual([]);
  expect(claims).toBe(Math.ceil(names.length / 7));
});

it.each([true, false])(
  'C10 P2 who has keys gets a place however many keys the others have, lanes first: %s',
  async (lanesFirst) => {
    const queue = await makeQueue(db, { fairness: 'tenant' });
    const names = tenantNames(8);
    await queue.enqueueAll(
      names.flatMap((tenantId, n) =>
        n % 3 === 2
          ? times(9, { tenantId })
          : ['a', 'b'].slice(n % 2).flatMap((key) => times(9, { tenantId, key })),
      ),
    );
    const claim = await queue.claim({ limit: 9, lanesFirst });
    expect(tenantsOf(claim).toSorted()).toEqual(names);
    expect(claim.rows).toHaveLength(9);
  },
);
