// Isolation of tenants: hanging endpoints of one tenant do not delay the deliveries of another, and the number of
// endpoints of a tenant is limited.

import { describe, expect, it, onTestFinished } from 'vitest';

import {
  addEndpoint,
  endpointSettings,
  endpointsOf,
  startEndpointRelay,
  startReceiver,
} from '../support/endpoints.js';
import { testDatabase } from '../support/postgres.js';
import { waitLimitMs, send, sendOne } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const url = 'https://example.com/hooks';

async function addMany(count: number, tenantId: string, address = url): Promise<void> {
  for (let n = 0; n < count; n += 1) await addEndpoint(db, { url: address, tenantId });
}

describe('endpoints of one tenant that hang', () => {
  it('W2 P9 leave slots for another tenant, however many there are', async () => {
    const [hanging, well] = [await startReceiver(), await startReceiver()];
    let open: () => void = () => undefined;
    hanging.hold = new Promise((resolve) => (open = resolve));
    onTestFinished(() => open());
    // 30 endpoints with 5 calls each want 150 of 20 slots, and none of them answers before the end
    await addMany(30, 'greedy', hanging.url);
    await addEndpoint(db, { url: well.url, tenantId: 'modest' });
    await startEndpointRelay(db, { relay: { concurrency: 20, stopDeadlineMs: 500 } });

    await send(
      db,
      Array.from({ length: 10 }, () => ({ topic: 'call', tenantId: 'greedy' })),
    );
    await waitFor(() => hanging.requests.length >= 10, {
      what: 'the greedy tenant to take what it gets',
      timeoutMs: waitLimitMs,
    });
    const ids: string[] = [];
    for (let n = 0; n < 10; n += 1)
      ids.push(await sendOne(db, { topic: 'call', tenantId: 'modest' }));

    for (const id of ids) await well.has(id);
  });
});

describe('endpoints.maxPerTenant', () => {
  const limitTo = async (maxPerTenant: number) => {
    const relay = await startEndpointRelay(db, {
      endpoints: { ...endpointSettings, maxPerTenant },
    });
    await relay.stop();
  };

  it('W2 is 100 by default, and does not apply to endpoints of all tenants', async () => {
    const { rows } = await db.query(`SELECT max_per_tenant FROM ${db.quoted}.endpoint_settings`);
    expect(rows).toEqual([{ max_per_tenant: 100 }]);
    await limitTo(1);
    for (let n = 0; n < 3; n += 1) await addEndpoint(db, { url });
  });

  it('W2 refuses one more with a clear error, and keeps the existing ones', async () => {
    await limitTo(3);
    await addMany(3, 'full');
    await limitTo(2);
    await expect(addEndpoint(db, { url, tenantId: 'full' })).rejects.toMatchObject({
      code: '54000',
      message: 'tenant "full" has 3 endpoints, and at most 2 are allowed',
    });
    await addEndpoint(db, { url, tenantId: 'other' });
    const { rows } = await db.query<{ name: string }>(
      `SELECT d.name FROM ${db.quoted}.endpoints e JOIN ${db.quoted}.destinations d ON d.id = e.destination_id
        WHERE e.tenant_id = 'full'`,
    );
    expect(rows).toHaveLength(3);
    // removing an endpoint makes room
    for (const { name } of rows.slice(0, 2)) await endpointsOf(db).remove(db.pool, { name });
    await addEndpoint(db, { url, tenantId: 'full' });
  });

  it('W2 applies to concurrent additions', async () => {
    await limitTo(4);
    const added = await Promise.allSettled(
      Array.from({ length: 12 }, () => addEndpoint(db, { url, tenantId: 'crowd' })),
    );
    expect(added.filter(({ status }) => status === 'fulfilled')).toHaveLength(4);
  });

  it.each(['REPEATABLE READ', 'SERIALIZABLE'])(
    'W2 applies to a transaction in %s that began before another endpoint was added',
    async (level) => {
      await limitTo(1);
      const tenantId = level.toLowerCase().replace(' ', '-');
      const other = await db.connect();
      const { name } = await addEndpoint(db, { url, tenantId });
      await endpointsOf(db).remove(db.pool, { name, tenantId });
      await other.query(`BEGIN ISOLATION LEVEL ${level}`);
      await other.query('SELECT 1');
      await addEndpoint(db, { url, tenantId });
      const late = other.query(`SELECT ${db.quoted}.refuse_too_many_endpoints($1, 1)`, [tenantId]);
      await expect(late).rejects.toMatchObject({ code: '40001' });
      await other.query('ROLLBACK');
    },
  );
});
