// A login without rights in the schema cannot block Waybill: not with advisory locks, whatever their numbers, nor with
// locks on tables or rows.

import { randomUUID } from 'node:crypto';

import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { migrateUp } from '../../src/database/migrate.js';
import { only } from '../support/only.js';
import { makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { numbered, send, sendOne, startRelay, untilCount } from '../support/relay.js';
import { Rollouts } from '../support/rollouts.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase({ allPartitions: true });
const login = `stranger_${randomUUID().slice(0, 8)}`;
let stranger: pg.Client;

/** The names of former advisory locks, and other easy guesses. */
const names = [
  'partitions',
  'dead letters',
  'move',
  'alerts',
  'seal',
  'sync',
  'sample',
  'compact',
  'watch',
  'rollout',
  'rollout locked',
  'endpoint',
  'endpoint added',
  'lanes',
  'migrate',
];

beforeAll(async () => {
  await db.query(`CREATE ROLE ${login} LOGIN`);
  const url = new URL(db.url);
  url.username = login;
  stranger = new pg.Client({ connectionString: url.href });
  await stranger.connect();
  await stranger.query(
    `SELECT pg_advisory_lock(hashtextextended(n, i))
       FROM generate_series(0, 60) i,
            (SELECT 'waybill ' || split_part(name, ' ', 1) || ' ' || s || coalesce(' ' || nullif(split_part(name, ' ', 2), ''), '') AS n
               FROM unnest($1::text[]) name, unnest($2::text[]) s
             UNION SELECT 'waybill ' || name || ' ' || s FROM unnest($1::text[]) name, unnest($2::text[]) s) t`,
    [names, [db.schema, db.quoted]],
  );
});

afterAll(async () => {
  await stranger.end();
  await db.query(`DROP ROLE ${login}`);
});

async function value(call: string): Promise<unknown> {
  const client = await db.connect();
  await client.query(`SET lock_timeout = '5s'; SET search_path = ${db.quoted}`);
  const { rows } = await client.query<{ value: unknown }>(`SELECT ${call} AS value`);
  return only(rows).value;
}

describe('a login without rights', () => {
  it('P13 cannot lock a table or a row of the schema', async () => {
    const { rows } = await db.query<{ name: string }>(
      `SELECT format('%I.%I', n.nspname, c.relname) AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')`,
      [db.schema],
    );
    expect(rows.length).toBeGreaterThan(30);
    for (const { name } of rows) {
      for (const mode of ['ACCESS SHARE', 'ROW SHARE', 'EXCLUSIVE']) {
        await expect(
          stranger.query(`BEGIN; LOCK TABLE ${name} IN ${mode} MODE`),
        ).rejects.toMatchObject({ code: '42501' });
        await stranger.query('ROLLBACK');
      }
      await expect(stranger.query(`SELECT FROM ${name} FOR UPDATE`)).rejects.toMatchObject({
        code: '42501',
      });
    }
  });

  it('P13 P2 cannot keep a relay from starting, delivering keyed messages, sealing and watching', async () => {
    await db.query(
      `CREATE TABLE IF NOT EXISTS people (id int PRIMARY KEY); GRANT TRIGGER ON people TO PUBLIC`,
    );
    const received: string[] = [];
    await startRelay(db, {
      destinations: { keyed: handler((message) => void received.push(message.topic)) },
      routes: [
        { topic: 'keyed', to: 'keyed' },
        { topic: 'person.*', to: 'keyed' },
      ],
      watches: [{ table: 'people', topic: 'person' }],
      audit: { seal: true, delayMs: 0, everyMs: 1000 },
    });
    await send(
      db,
      numbered('keyed', 20).map((message, n) => ({ ...message, key: `key-${n % 7}` })),
    );
    await db.query('INSERT INTO people SELECT count(*) FROM people');
    await untilCount(received, 21, 'messages');
    expect(received).toContain('person.created');
    await waitFor(
      async () =>
        (await db.query(`SELECT FROM ${db.quoted}.seals WHERE kind = 'attempts'`)).rows.length > 0,
      // a seal waits for transactions that were writing attempts when it began, and relays seal every 10 s
      { what: 'a seal', timeoutMs: 60_000 },
    );
  }, 90_000);

  it('P13 cannot block changes or decisions of a rollout', async () => {
    const rollouts = new Rollouts(db);
    await rollouts.define('locked');
    await rollouts.set('locked', 100);
    expect(await rollouts.decide('locked', 'a')).toBe('new');
    await sendOne(db, { topic: 'locked', key: 'a' });
    await rollouts.set('locked', 0);
    expect(await rollouts.decide('locked', 'a')).toBe('old');
  });

  it('P13 cannot block operators or maintenance', async () => {
    const [from, to] = [await makeQueue(db), await makeQueue(db)];
    await makeDead(from, 2, 'refused');
    expect(await value(`retry_dead_letters('${from.name}')`)).toBe(2);
    expect(await value(`(move_deliveries('${from.name}', '${to.name}'))::text`)).toBe('2');
    expect(await value(`take_sample(now() + interval '1 minute')`)).toBe(true);
    expect(await value('prune_statistics()')).toBe('0');
    expect(await value('make_partitions(63)')).toBeGreaterThan(0);
    expect(
      await value(
        `(SELECT count(*) >= 0 FROM take_alerts(gen_random_uuid(), '1 hour', '1 minute'))`,
      ),
    ).toBe(true);
    expect(await value(`sync_alert_thresholds('{}')`)).toBe('');
    expect(await value('mend_watches()')).toBe(0);
  });

  it('N12 P13 cannot block a migration', async () => {
    expect((await migrateUp({ url: db.url, schema: db.schema })).applied).toEqual(['partitions']);
  });
});
