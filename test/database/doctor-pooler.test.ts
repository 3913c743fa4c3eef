// The doctor's check of the address for LISTEN, with a real PgBouncer: a pooler in transaction mode is found, as the
// address or as the direct one; a pooler in session mode works.

import { describe, expect, it } from 'vitest';

import { expectWell, look } from '../support/doctor.js';
import { findPgbouncer, startPgbouncer } from '../support/pgbouncer.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
const program = findPgbouncer() ?? '';

const behind = (poolMode: 'transaction' | 'session', connections = 5) =>
  startPgbouncer(program, db.url, { poolMode, connections });

describe.skipIf(program === '')('the address for LISTEN', () => {
  it('PostgreSQL itself works', async () => {
    await expectWell(db, 'listen_pooled');
  });

  it('a pooler is found, and a direct address beside it fixes that', async () => {
    const url = await behind('transaction');
    const finding = await look({ ...db, url }, 'listen_pooled');
    expect(finding).toMatchObject({
      state: 'warning',
      paste: [expect.stringMatching(/^export DATABASE_DIRECT_URL=/)],
    });
    expect(finding.found).toMatch(/^DATABASE_URL leads through a pooler/);
    await expectWell({ ...db, url }, 'listen_pooled', { database: { directUrl: db.url } });
  });

  it.each([1, 5])(
    'a pooler in transaction mode is found as the direct address, with %i connections',
    async (connections) => {
      const directUrl = await behind('transaction', connections);
      const limits = { listenMs: 1000 };
      const beside = await look(db, 'listen_pooled', { limits, database: { directUrl } });
      expect(beside).toMatchObject({ state: 'warning' });
      expect(beside.found).toMatch(/^a notification was not heard with DATABASE_DIRECT_URL/);
      const through = await look({ ...db, url: directUrl }, 'listen_pooled', {
        limits,
        database: { directUrl },
      });
      expect(through).toMatchObject({ state: 'warning' });
    },
  );

  it('a pooler in session mode works as the direct address', async () => {
    const directUrl = await behind('session');
    await expectWell(db, 'listen_pooled', { database: { directUrl } });
  });

  it('an unreachable direct address is an error, and the other checks continue', async () => {
    const finding = await look(db, 'listen_pooled', {
      database: { directUrl: 'postgresql://app:geh31m@127.0.0.1:1/none' },
    });
    expect(finding).toMatchObject({ state: 'error' });
    expect(finding.found).toMatch(/^DATABASE_DIRECT_URL does not serve for LISTEN: .*ECONNREFUSED/);
    expect(JSON.stringify(finding)).not.toContain('geh31m');
  });
});
