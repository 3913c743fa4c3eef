// Endpoints that fail: the time of the first failure, the warning, the disabling, and the recovery. What relays do is
// in endpoints-failing-relay.test.ts.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { addEndpoint, endpointsOf } from '../support/endpoints.js';
import { waitUntilBlocking } from '../support/locks.js';
import { makeQueue, Queue } from '../support/outbox.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { deliverLeases, settle, settleMany } from '../support/settling.js';
import type { Ending } from '../support/settling.js';

const db = testDatabase();
const endpoints = endpointsOf(db);
const hour = '1 hour';

/** An endpoint that gets the topic of its name. */
async function makeEndpoint(fields: { tenantId?: string } = {}): Promise<Queue> {
  const name = `ep-${randomUUID()}`;
  await addEndpoint(db, { url: 'https://example.com', topics: [name], name, ...fields });
  const { rows } = await db.query<{ id: number }>(
    `SELECT id FROM ${db.quoted}.destinations WHERE name = $1`,
    [name],
  );
  return new Queue(db, name, only(rows).id);
}

async function end(endpoint: Queue, ending: Omit<Ending, 'id'>): Promise<string> {
  const id = await endpoint.enqueueOne();
  const claim = await endpoint.claim();
  await settle(db, claim, [{ id, ...ending }]);
  return id;
}

const fail = (endpoint: Queue, errorCode = 'http_status') =>
  end(endpoint, { outcome: 'retry', errorCode, remoteCode: '500', errorMessage: 'no' });

async function failingSince({ name }: Queue): Promise<string | null> {
  return only(await endpoints.list(db.pool, { name })).failingSince;
}

/** Lets the endpoint have failed for that long. */
async function age({ id }: Queue, by: string): Promise<void> {
  await db.query(
    `UPDATE ${db.quoted}.endpoint_failures
        SET failing_since = failing_since - $2::interval, warned_at = warned_at - $2::interval
      WHERE destination_id = $1`,
    [id, by],
  );
  await db.query(
    `UPDATE ${db.quoted}.destinations SET resumed_at = resumed_at - $2::interval WHERE id = $1`,
    [id, by],
  );
}

type Told = { topic: string; payload: Record<string, unknown>; tenant_id: string | null };

async function told({ name }: Queue): Promise<Told[]> {
  const { rows } = await db.query<Told>(
    `SELECT topic, payload, tenant_id FROM ${db.quoted}.messages
      WHERE aggregate_type = 'endpoint' AND aggregate_id = $1 ORDER BY id`,
    [name],
  );
  return rows;
}

async function enabled({ name }: Queue): Promise<boolean> {
  return only(await endpoints.list(db.pool, { name })).enabled;
}

describe('the first failure', () => {
  it('is kept by the clock of the database until a delivery succeeds', async () => {
    const endpoint = await makeEndpoint();
    await endpoint.enqueueOne();
    expect(await failingSince(endpoint)).toBeNull();
    await fail(endpoint);
    const since = await failingSince(endpoint);
    expect(Math.abs(Date.now() - Date.parse(since ?? ''))).toBeLessThan(60_000);
    await fail(endpoint);
    expect(await failingSince(endpoint)).toBe(since);
    await end(endpoint, {});
    expect(await failingSince(endpoint)).toBeNull();
  });

  it('is forgotten after a lease that was delivered completely, and only for its endpoint', async () => {
    const [mended, broken] = [await makeEndpoint(), await makeEndpoint()];
    await fail(mended);
    await fail(broken);
    await mended.enqueueOne();
    const claim = await mended.claim();
    expect(
      await deliverLeases(db, claim.relayId, [
        { leaseId: claim.leaseId, latencies: claim.ids.map(() => 1) },
      ]),
    ).toEqual([claim.leaseId]);
    expect(await failingSince(mended)).toBeNull();
    expect(await failingSince(broken)).not.toBeNull();
  });

  it('begins again if the same call has a success and a failure', async () => {
    const endpoint = await makeEndpoint();
    await fail(endpoint);
    await age(endpoint, hour);
    const before = await failingSince(endpoint);
    const [first = '', second = ''] = await endpoint.enqueue(2);
    await settle(db, await endpoint.claim(), [
      { id: first, outcome: 'delivered' },
      { id: second, outcome: 'retry', errorCode: 'timeout' },
    ]);
    const after = await failingSince(endpoint);
    expect(Date.parse(after ?? '')).toBeGreaterThan(Date.parse(before ?? ''));
  });

  it('is noted by two calls that saw opposite answers, without a deadlock', async () => {
    const [first, middle, last] = [
      await makeEndpoint(),
      await makeEndpoint(),
      await makeEndpoint(),
    ];
    for (const endpoint of [first, middle, last]) await fail(endpoint);
    const answers = async (relayId: string, given: [Queue, 'delivered' | 'retry'][]) => {
      const leases: Parameters<typeof settleMany>[2][number][] = [];
      for (const [endpoint, outcome] of given) {
        const id = await endpoint.enqueueOne();
        const { leaseId } = await endpoint.claim({ relayId });
        const endings = [{ id, outcome, errorCode: 'http_status' }];
        leases.push({ leaseId, destinationId: endpoint.id, endings });
      }
      return () => settleMany(db, relayId, leases);
    };
    const waits = await answers(randomUUID(), [
      [first, 'delivered'],
      [middle, 'retry'],
      [last, 'retry'],
    ]);
    const passes = await answers(randomUUID(), [
      [first, 'retry'],
      [last, 'delivered'],
    ]);
    const other = await db.connect();
    await other.query('BEGIN');
    await other.query(`DELETE FROM ${db.quoted}.endpoint_failures WHERE destination_id = $1`, [
      middle.id,
    ]);
    const waiting = waits();
    await waitUntilBlocking(db, other);
    // it does not wait for a call that waits itself
    expect(await passes()).toHaveLength(2);
    await other.query('ROLLBACK');
    expect(await waiting).toHaveLength(3);
    expect(await failingSince(first)).toBeNull();
    expect(await failingSince(last)).not.toBeNull();
  });

  it.each(['stopped', 'guard_refused', 'too_large_to_read'])(
    'is not one that is not the fault of the endpoint: %s',
    async (code) => {
      const endpoint = await makeEndpoint();
      await fail(endpoint, code);
      expect(await failingSince(endpoint)).toBeNull();
    },
  );

  it('of a destination of the configuration is not kept', async () => {
    const queue = await makeQueue(db);
    await fail(queue);
    const { rows } = await db.query(
      `SELECT FROM ${db.quoted}.endpoint_failures WHERE destination_id = $1`,
      [queue.id],
    );
    expect(rows).toEqual([]);
  });

  it('of a lease that another relay has by now does not count', async () => {
    const endpoint = await makeEndpoint();
    const id = await endpoint.enqueueOne();
    const claim = await endpoint.claim();
    await settle(db, { ...claim, relayId: randomUUID() }, [
      { id, outcome: 'retry', errorCode: 'timeout' },
    ]);
    expect(await failingSince(endpoint)).toBeNull();
  });

  it('that seems to be in the future, because the clock was set back, is now', async () => {
    const endpoint = await makeEndpoint();
    await fail(endpoint);
    await age(endpoint, '-1000 hours');
    await fail(endpoint);
    expect(Date.parse((await failingSince(endpoint)) ?? '')).toBeLessThanOrEqual(
      Date.now() + 60_000,
    );
  });
});

describe('the application', () => {
  it('is warned once after a day, and told once after 120 hours, when the endpoint is disabled', async () => {
    const endpoint = await makeEndpoint({ tenantId: 'acme' });
    const send = () => endpoint.enqueueOne({ tenantId: 'acme' });
    const failAgain = async () => {
      const id = await send();
      const ending: Ending = { id, outcome: 'retry', errorCode: 'http_status', remoteCode: '500' };
      await settle(db, await endpoint.claim(), [{ ...ending, errorMessage: 'status 500' }]);
    };
    await failAgain();
    await age(endpoint, '23 hours');
    await failAgain();
    expect(await told(endpoint)).toEqual([]);
    await age(endpoint, hour);
    await failAgain();
    await failAgain();
    const since = (await failingSince(endpoint)) ?? '';
    const error = { code: 'http_status', remoteCode: '500', message: 'status 500' };
    const [warning, ...none] = await told(endpoint);
    expect(none).toEqual([]);
    expect(warning).toMatchObject({
      topic: 'waybill.endpoint.failing',
      tenant_id: null,
      payload: { endpoint: endpoint.name, tenantId: 'acme', error },
    });
    expect(Date.parse(String(warning?.payload['failingSince']))).toBe(Date.parse(since));
    expect(Date.parse(String(warning?.payload['disablesAt'])) - Date.parse(since)).toBe(
      120 * 3_600_000,
    );
    expect(await enabled(endpoint)).toBe(true);

    await age(endpoint, '96 hours');
    const [first, second] = [await send(), await send()];
    const claim = await endpoint.claim();
    await settle(db, claim, [{ id: first, outcome: 'retry', errorCode: 'timeout' }]);
    expect(await enabled(endpoint)).toBe(false);
    await settle(db, claim, [{ id: second, outcome: 'retry', errorCode: 'timeout' }]);
    const [, disabled, ...more] = await told(endpoint);
    expect(more).toEqual([]);
    expect(disabled).toMatchObject({
      topic: 'waybill.endpoint.disabled',
      payload: { endpoint: endpoint.name, tenantId: 'acme', error: { code: 'timeout' } },
    });
    expect(only(await endpoints.list(db.pool, { name: endpoint.name })).disabledBecause).toMatch(
      /^it has only failed since .+, at last with timeout$/,
    );
    await send();
    expect((await endpoint.claim()).ids).toEqual([]);
  });

  it('gets no message about an endpoint that has succeeded in between', async () => {
    const endpoint = await makeEndpoint();
    await fail(endpoint);
    await age(endpoint, '119 hours');
    await end(endpoint, {});
    await fail(endpoint);
    expect([await told(endpoint), await enabled(endpoint)]).toEqual([[], true]);
  });

  it('is told at once about one that answered 410, and can recover it', async () => {
    const endpoint = await makeEndpoint();
    const id = await end(endpoint, { outcome: 'pause', errorCode: 'endpoint_gone' });
    expect(await told(endpoint)).toMatchObject([
      { topic: 'waybill.endpoint.disabled', payload: { error: { code: 'endpoint_gone' } } },
    ]);
    await endpoints.recover(db.pool, { name: endpoint.name });
    expect((await endpoint.claim()).ids).toEqual([id]);
  });

  it('is told as the settings of the relays say: sooner, or never', async () => {
    const settings = async (warn: number | null, disable: number | null) =>
      db.query(
        `UPDATE ${db.quoted}.endpoint_settings SET warn_after_ms = $1, disable_after_ms = $2`,
        [warn, disable],
      );
    try {
      await settings(null, null);
      const endpoint = await makeEndpoint();
      await fail(endpoint);
      await age(endpoint, '5000 hours');
      await fail(endpoint);
      expect([await told(endpoint), await enabled(endpoint)]).toEqual([[], true]);
      await settings(1000, null);
      await fail(endpoint);
      expect(await told(endpoint)).toMatchObject([{ payload: { disablesAt: null } }]);
      await settings(1000, 2000);
      await fail(endpoint);
      expect(await enabled(endpoint)).toBe(false);
    } finally {
      await settings(86_400_000, 432_000_000);
    }
  });

  it('is told by the next failure if the message could not be written; the failure is recorded', async () => {
    const endpoint = await makeEndpoint();
    await fail(endpoint);
    await age(endpoint, '130 hours');
    const waiting = await endpoint.enqueueOne();
    const claim = await endpoint.claim();
    const limits = await db.query(`DELETE FROM ${db.quoted}.message_limits RETURNING *`);
    try {
      await settle(db, claim, [{ id: waiting, outcome: 'retry', errorCode: 'timeout' }]);
    } finally {
      const { payload_bytes, header_bytes } = only(limits.rows) as Record<string, number>;
      await db.query(
        `INSERT INTO ${db.quoted}.message_limits (payload_bytes, header_bytes) VALUES ($1, $2)`,
        [payload_bytes, header_bytes],
      );
    }
    expect(await endpoint.attempts(waiting)).toMatchObject([{ state: 'retryable' }]);
    expect([await told(endpoint), await enabled(endpoint)]).toEqual([[], true]);
    await fail(endpoint);
    expect((await told(endpoint)).map(({ topic }) => topic)).toEqual(['waybill.endpoint.disabled']);
  });
});

describe('enabling', () => {
  it('lets the limits count again, and keeps the first failure', async () => {
    const endpoint = await makeEndpoint();
    await fail(endpoint);
    await age(endpoint, '120 hours');
    await fail(endpoint);
    const since = await failingSince(endpoint);
    await endpoints.enable(db.pool, { name: endpoint.name });
    await fail(endpoint);
    expect(await enabled(endpoint)).toBe(true);
    expect(await failingSince(endpoint)).toBe(since);
    await age(endpoint, '25 hours');
    await fail(endpoint);
    await age(endpoint, '95 hours');
    await fail(endpoint);
    expect((await told(endpoint)).map(({ topic }) => topic)).toEqual([
      'waybill.endpoint.disabled',
      'waybill.endpoint.failing',
      'waybill.endpoint.disabled',
    ]);
  });
});

describe('recovery', () => {
  it('resends dead letters since the first failure and what waits for a retry, and enables the endpoint', async () => {
    const endpoint = await makeEndpoint();
    const old = await end(endpoint, { outcome: 'reject', errorCode: 'http_status' });
    await end(endpoint, {});
    const dead = await end(endpoint, { outcome: 'reject', errorCode: 'http_status' });
    const retried = await fail(endpoint);
    await endpoints.disable(db.pool, { name: endpoint.name });
    const waiting = await endpoint.enqueueOne();
    const since = await failingSince(endpoint);
    expect(await endpoints.recover(db.pool, { name: endpoint.name })).toEqual({
      since,
      resent: 2,
      more: false,
    });
    expect(await enabled(endpoint)).toBe(true);
    const claim = await endpoint.claim();
    expect(claim.ids.toSorted()).toEqual([dead, retried, waiting].toSorted());
    expect((await endpoint.deadLetters()).map((row) => String(row['message_id']))).toEqual([old]);
  });

  it('takes a time, is refused without a failure, and for another tenant', async () => {
    const endpoint = await makeEndpoint({ tenantId: 'acme' });
    const which = { name: endpoint.name };
    await expect(endpoints.recover(db.pool, which)).rejects.toThrow(
      `since is null, and the endpoint "${endpoint.name}" has not failed since its last success: give since`,
    );
    await expect(endpoints.recover(db.pool, { ...which, tenantId: 'other' })).rejects.toThrow(
      'does not exist',
    );
    const id = await endpoint.enqueueOne({ tenantId: 'acme' });
    await endpoint.kill(id);
    const [later] = await endpoint.enqueue(1, { tenantId: 'acme' });
    await settle(db, await endpoint.claim(), [{ id: later ?? '' }]);
    const since = new Date(Date.now() - 3_600_000);
    expect(await endpoints.recover(db.pool, which, { since })).toMatchObject({ resent: 1 });
    expect((await endpoint.claim()).ids).toEqual([id]);
  });

  it('goes on in steps', async () => {
    const endpoint = await makeEndpoint();
    const ids = await endpoint.enqueue(5);
    const claim = await endpoint.claim();
    await settle(
      db,
      claim,
      ids.map((id) => ({ id, outcome: 'reject', errorCode: 'http_status' })),
    );
    const step = async () =>
      only(
        (
          await db.query(
            `SELECT resent, more FROM ${db.quoted}.recover_endpoint($1, max_count => 2)`,
            [endpoint.name],
          )
        ).rows,
      );
    expect([await step(), await step(), await step()]).toEqual([
      { resent: 2, more: true },
      { resent: 2, more: true },
      { resent: 1, more: false },
    ]);
  });
});

it('settling many endpoints at once notes each of them, and never waits in a circle', async () => {
  const all = await Promise.all(Array.from({ length: 6 }, () => makeEndpoint()));
  const claimAll = async (order: readonly Queue[], relayId: string) => {
    const leases: object[] = [];
    for (const [place, endpoint] of order.entries()) {
      const id = await endpoint.enqueueOne();
      const claim = await endpoint.claim({ relayId });
      leases.push({
        place,
        leaseId: claim.leaseId,
        destinationId: endpoint.id,
        ids: [id],
        outcomes: ['retry'],
        codes: ['timeout'],
      });
    }
    return leases;
  };
  for (let round = 0; round < 10; round += 1) {
    const relays = [randomUUID(), randomUUID()] as const;
    const calls = [
      [relays[0], await claimAll(all, relays[0])],
      [relays[1], await claimAll(all.toReversed(), relays[1])],
    ] as const;
    await Promise.all(
      calls.map(([relay, leases]) =>
        db.query(`SELECT * FROM ${db.quoted}.settle_many($1, $2)`, [relay, JSON.stringify(leases)]),
      ),
    );
    for (const endpoint of all) {
      expect(await failingSince(endpoint)).not.toBeNull();
      await end(endpoint, {});
    }
  }
});
