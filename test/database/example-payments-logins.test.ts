// The logins of examples/payments where the processor has some of these roles already. Roles belong to the cluster, so
// the files are run with another prefix.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import path from 'node:path';

import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { only } from '../support/only.js';
import { alone, folder, inDefault, payloads } from '../support/payments.js';
import { testDatabase } from '../support/postgres.js';

const db = inDefault(testDatabase());
const prefix = `kept_${randomUUID().slice(0, 8)}`;
const sqlOf = (file: string) =>
  readFileSync(path.join(folder, file), 'utf8').replaceAll('symphony_', `${prefix}_`);
const install = () =>
  alone(async () => {
    for (const file of ['schema.sql', 'names.sql']) {
      const client = await db.connect();
      try {
        await client.query(sqlOf(file));
      } finally {
        await client.end();
      }
    }
  });

beforeAll(async () => {
  await db.query('DROP SCHEMA IF EXISTS outbox CASCADE');
  await migrateUp({ url: db.url });
});
afterAll(async () => {
  const client = new pg.Client({ connectionString: db.url });
  await client.connect();
  const { rows } = await client.query<{ name: string }>(
    'SELECT rolname AS name FROM pg_roles WHERE starts_with(rolname, $1)',
    [prefix],
  );
  for (const { name } of rows)
    await client.query(`DROP OWNED BY ${name} CASCADE; DROP ROLE ${name}`);
  await client.end();
});

describe('roles that exist already', () => {
  it('P13 an owner of the functions that can log in is refused', async () => {
    await db.query(`CREATE ROLE ${prefix}_control LOGIN; CREATE ROLE ${prefix}_auditor LOGIN`);
    await expect(install()).rejects.toThrow(`${prefix}_control can log in`);
    await db.query(`ALTER ROLE ${prefix}_control NOLOGIN`);
  });

  it('P13 get the rights that they lack, also when the files are run again', async () => {
    await install();
    await install();
    await db.query(
      `SELECT outbox.define_destination('rail.card'), outbox.define_route('payment.card', 'rail.card', 'payments')`,
    );
    const client = await db.connect();
    await client.query(`SET SESSION AUTHORIZATION ${prefix}_ingest`);
    const { rows } = await client.query<{ sequence_id: string }>(
      `SELECT * FROM payments.enqueue_payment_outbox('one', 'ada', 'k', 'card', $1)`,
      [payloads['card']],
    );
    expect(only(rows).sequence_id).toBe('1');
    await client.query(`SET SESSION AUTHORIZATION ${prefix}_auditor`);
    const read = await client.query('SELECT FROM payments.payment_outbox_pending');
    expect(read.rowCount).toBe(1);
  });
});
