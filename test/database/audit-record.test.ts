// The record of operators' actions: whom it names, and that it is append-only.

import { describe, expect, it } from 'vitest';

import { migrateUp } from '../../src/database/migrate.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { Records } from './audit/recorded.js';

const db = testDatabase();
const { call, recorded } = new Records(db);

describe('the actor', () => {
  it('W8 is the given name, else that of the session, else the login; the login is always recorded too', async () => {
    const { name } = await makeQueue(db);
    const client = await db.connect();
    const actors = async () => {
      const { rows } = await db.query<{ actor: string; database_user: string }>(
        `SELECT actor, database_user FROM ${db.quoted}.operator_actions ORDER BY id DESC LIMIT 1`,
      );
      return only(rows);
    };
    const { rows } = await db.query<{ login: string }>('SELECT session_user AS login');
    const { login } = only(rows);
    await call('set_paused($1, true)', [name], client);
    expect(await actors()).toEqual({ actor: login, database_user: login });
    await client.query("SET waybill.actor = 'bob'");
    await call('set_paused($1, false)', [name], client);
    expect(await actors()).toEqual({ actor: 'bob', database_user: login });
    await call("set_paused($1, true, 'ann')", [name], client);
    expect(await actors()).toEqual({ actor: 'ann', database_user: login });
  });

  it('W8 an action that is rolled back leaves no record', async () => {
    const { name } = await makeQueue(db);
    const work = () =>
      db.inTransaction(async (client) => {
        await call('set_paused($1, true)', [name], client);
        throw new Error('no');
      });
    expect(await recorded(() => work().catch(() => {}))).toEqual([]);
  });
});

describe('append-only', () => {
  it.each([
    'UPDATE operator_actions SET actor = actor',
    'DELETE FROM operator_actions WHERE false',
    'TRUNCATE operator_actions',
    'UPDATE seals SET row_count = 0',
    'DELETE FROM seals',
    'TRUNCATE seals',
  ])('W8 P5 %s is refused, with P0001', async (statement) => {
    await expect(
      db.query(statement.replace(/operator_actions|seals/, (table) => `${db.quoted}.${table}`)),
    ).rejects.toMatchObject({
      code: 'P0001',
      message: expect.stringContaining('it is a record') as string,
    });
  });

  it.each(['operator_actions', 'seals'])(
    'W8 a health check reports a disabled guard of %s, and a migration enables it',
    async (table) => {
      const check = async () => {
        const { rows } = await db.query<{ ok: boolean; detail: string }>(
          `SELECT ok, detail FROM ${db.quoted}.health_check() WHERE name = 'protection'`,
        );
        return only(rows);
      };
      expect(await check()).toMatchObject({ ok: true });
      const alter = `ALTER TABLE ${db.quoted}.${table}`;
      for (const state of ['DISABLE', 'ENABLE', 'ENABLE REPLICA']) {
        await db.query(`${alter} ${state} TRIGGER append_only`);
        expect(await check(), state).toMatchObject({
          ok: false,
          detail: expect.stringMatching(
            new RegExp(`run waybill migrate up: .*${table} ENABLE ALWAYS TRIGGER append_only$`),
          ) as string,
        });
      }
      await migrateUp({ url: db.url, schema: db.schema });
      expect(await check()).toMatchObject({ ok: true });
    },
  );
});
