// Functions with the owner's rights, called by an attacker with prepared traps: tables, types, functions and operators
// of the same names, in pg_temp and in a schema at the front of the search path. No code of the attacker may run with
// the owner's rights, and the functions must use the real tables.

import { randomUUID } from 'node:crypto';

import type pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';

import { as, rolePrefix } from '../support/logins.js';
import type { Login } from '../support/logins.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase({ allPartitions: true });
let queue: Queue;

beforeAll(async () => {
  queue = await makeQueue(db);
  await db.query(`CREATE SCHEMA traps; GRANT USAGE ON SCHEMA traps TO PUBLIC;
    CREATE TABLE traps.caught (who text, what text); GRANT INSERT ON traps.caught TO PUBLIC`);
});

/** Every name in our schema also exists in the attacker's, and every trap records which role ran it. */
async function prepare(client: pg.Client, evil: string): Promise<void> {
  // the attackers may create anything outside our schema
  await db.query(`CREATE SCHEMA ${evil}; GRANT ALL ON SCHEMA ${evil} TO PUBLIC`);
  const { rows } = await db.query<{ name: string; arguments: string; result: string }>(
    `SELECT p.proname AS name, string_agg(format_type(t.type, NULL), ', ' ORDER BY t.place) AS arguments, format_type(p.prorettype, NULL) AS result
       FROM pg_proc p LEFT JOIN LATERAL unnest(p.proargtypes) WITH ORDINALITY t(type, place) ON true
      WHERE p.pronamespace = $1::text::regnamespace AND NOT p.proretset
        AND NOT EXISTS (SELECT FROM unnest(p.proargtypes || p.prorettype) u JOIN pg_type y ON y.oid = u WHERE y.oid >= 16384 OR y.typtype = 'p')
      GROUP BY p.oid`,
    [db.quoted],
  );
  expect(rows.length).toBeGreaterThan(20);
  const trap = (name: string) =>
    `$$ BEGIN INSERT INTO traps.caught VALUES (current_user, '${name}'); RETURN NULL; END $$`;
  await client.query(
    rows
      .map(
        (row) =>
          `CREATE OR REPLACE FUNCTION ${evil}.${row.name}(${row.arguments ?? ''}) RETURNS ${row.result} LANGUAGE plpgsql AS ${trap(row.name)}`,
      )
      .join(';\n'),
  );
  // a better match than PostgreSQL's own, if it is found
  await client.query(`
    CREATE OR REPLACE FUNCTION ${evil}.same(uuid, uuid) RETURNS boolean LANGUAGE plpgsql AS ${trap('=')};
    CREATE OR REPLACE FUNCTION ${evil}.later(timestamptz, timestamptz) RETURNS boolean LANGUAGE plpgsql AS ${trap('>')};
    CREATE OPERATOR ${evil}.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = ${evil}.same);
    CREATE OPERATOR ${evil}.> (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = ${evil}.later);
    CREATE OPERATOR ${evil}.<= (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = ${evil}.later);
    CREATE OR REPLACE FUNCTION ${evil}.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS ${trap('clock_timestamp')};
    CREATE OR REPLACE FUNCTION ${evil}.pg_notify(text, text) RETURNS text LANGUAGE plpgsql AS ${trap('pg_notify')};`);
  const tables = await db.query<{ name: string }>(
    `SELECT c.relname AS name FROM pg_class c
      WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition`,
    [db.quoted],
  );
  await client.query(
    tables.rows.map(({ name }) => `CREATE TEMP TABLE ${name} (id uuid)`).join(';\n'),
  );
  await client.query(`SET search_path = ${evil}, pg_temp, pg_catalog`);
}

async function caught(): Promise<string[]> {
  const { rows } = await db.query<{ what: string }>(
    `SELECT DISTINCT what FROM traps.caught WHERE who = $1 OR who = 'postgres'`,
    [`${rolePrefix}owner`],
  );
  return rows.map((row) => row.what);
}

describe('an attacker who is', () => {
  const token = randomUUID();
  const attacks: [Login, string[]][] = [
    ['test_producer', ["enqueue('{topic}', key => 'k', dedupe_key => 'd')", "enqueue('{topic}')"]],
    ['test_consumer', [`inbox_begin('c', message_id => gen_random_uuid())`]],
    [
      'test_relay',
      [
        `claim('{queue}', '${token}')`,
        `mark_delivered('${token}', (SELECT array_agg(message_id) FROM {schema}.claim('{queue}', '${token}')))`,
        `heartbeat(gen_random_uuid(), 'a', 'b', 'c', '{}')`,
        'reap()',
        'next_due()',
        'take_sample()',
        'make_partitions(61)',
        `mend_watches()`,
      ],
    ],
    [
      'test_maintenance',
      [
        `expired_partitions('7 days', '7 days')`,
        `remove_partition('messages_20200101', '7 days', '7 days')`,
        `prune_dedupe_keys('30 days')`,
        `prune_dead_letters('30 days')`,
        `forget_keys('30 days')`,
        `limited_settings(1, 1, 1, 1, 1)`,
      ],
    ],
    [
      'test_operator',
      [
        `cancel(gen_random_uuid())`,
        `set_paused('{queue}', true)`,
        `set_paused('{queue}', false)`,
        `retry_dead_letters('{queue}')`,
        `route_unrouted()`,
      ],
    ],
    ['test_control', ['health_check()', 'alerts()', 'explain(gen_random_uuid())']],
  ];

  it.each(attacks)('P13 %s runs none of its code with the owner’s rights', async (login, calls) => {
    await as(db, login, async (client) => {
      await prepare(client, `of_${login}`);
      for (const call of calls) {
        const text = call
          .replaceAll('{topic}', queue.topic)
          .replaceAll('{queue}', queue.name)
          .replaceAll('{schema}', db.quoted);
        await client.query(`SELECT * FROM ${db.quoted}.${text}`);
        expect(await caught(), text).toEqual([]);
      }
    });
  });

  it('P13 the traps work: a function without its search path runs them with the owner’s rights', async () => {
    await db.query(`ALTER FUNCTION ${db.quoted}.partition_days_ahead() RESET search_path`);
    try {
      await as(db, 'test_relay', async (client) => {
        const evil = 'of_the_test';
        await prepare(client, evil);
        await client.query(`CREATE FUNCTION ${evil}.partition_bounds(regclass)
          RETURNS TABLE (partition regclass, day date, detaching boolean) LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO traps.caught VALUES (current_user, 'partition_bounds'); END $$`);
        await client.query(`SELECT * FROM ${db.quoted}.partition_days_ahead()`);
      });
      expect(await caught()).toEqual(['partition_bounds']);
    } finally {
      await db.query(`DELETE FROM traps.caught;
        ALTER FUNCTION ${db.quoted}.partition_days_ahead() SET search_path = ${db.quoted}, pg_temp`);
    }
  });
});
