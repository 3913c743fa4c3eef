// Housekeeping by relays and `waybill maintain`: rows are removed in short transactions with pauses and a report, and
// one of several relays does the daily work.

import { randomUUID } from 'node:crypto';

import { describe, expect, it, onTestFinished } from 'vitest';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { DeadlineError } from '../../src/core/errors.js';
import {
  beginMaintenance,
  endMaintenance,
  maintainPartitions,
  maintainRetention,
} from '../../src/relay/upkeep/daily-maintenance.js';
import { prune, resolveRetention } from '../../src/relay/upkeep/retention.js';
import type { RelayEvent } from '../../src/telemetry/events.js';
import { cliOn } from '../support/cli.js';
import { defineDestination } from '../support/destinations.js';
import { as } from '../support/logins.js';
import { expireHold, freeHold } from '../support/holds.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { openWire } from '../support/relay-proxy.js';
import { openDatabase } from '../support/relay.js';
import { oldMessage, partitionDays, pruneNow } from '../support/retention.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase({ allPartitions: true });

/** The retention of the day was never done, and no relay does it. */
async function neverDone(): Promise<void> {
  await db.query(
    `UPDATE ${db.quoted}.maintenance_runs SET done_at = '-infinity' WHERE task = 'retention'`,
  );
  await freeHold(db, 'retention');
}

describe('partitions', () => {
  async function dropDays(daysAhead: number): Promise<void> {
    const { rows } = await db.query<{ drop: string }>(
      `SELECT string_agg(format('DROP TABLE %s', partition), ';') AS drop
         FROM ${db.quoted}.partition_bounds('${db.quoted}.attempts') WHERE day > (now() AT TIME ZONE 'UTC')::date + $1::int`,
      [daysAhead],
    );
    await db.query(only(rows).drop);
  }

  async function maintained(): Promise<RelayEvent[]> {
    const events: RelayEvent[] = [];
    await maintainPartitions(openDatabase(db), (event) => void events.push(event));
    return events;
  }

  it('P14 are created ahead, and their number is reported; with enough of them nothing happens', async () => {
    await dropDays(50);
    expect(await maintained()).toEqual([{ name: 'partitions_made', count: 10 }]);
    expect(await maintained()).toEqual([]);
  });

  it('P14 that cannot be created raise an alarm when few are left', async () => {
    const blocker = await db.connect();
    const block = async () => {
      await blocker.query('BEGIN');
      await blocker.query(`LOCK TABLE ${db.quoted}.attempts IN SHARE UPDATE EXCLUSIVE MODE`);
    };
    await dropDays(30);
    await block();
    expect(await maintained()).toMatchObject([{ name: 'trouble', what: 'make partitions' }]);
    await blocker.query('ROLLBACK');
    await dropDays(29);
    await block();
    expect(await maintained()).toMatchObject([
      { name: 'trouble', what: 'make partitions' },
      { name: 'partition_alarm', daysAhead: 29 },
    ]);
    await blocker.query('ROLLBACK');
    await maintained();
  });
});

describe('a server that stops answering', () => {
  async function openBehindWire() {
    const wire = await openWire(db.url);
    const database = new Database(
      resolveDatabaseOptions({
        url: wire.url,
        schema: db.schema,
        statementTimeoutMs: 100,
        connectTimeoutMs: 500,
      }),
      { connections: 1, applicationName: 'waybill test' },
    );
    onTestFinished(() => database.close());
    // the pool's own connection is opened before
    await database.query('connect', 'SELECT 1');
    return { wire, database };
  }

  it.each(['pg_backend_pid', "SET lock_timeout = '2s'", 'expired_partitions'])(
    'C9 ends the run with an error instead of blocking it: %s',
    async (request) => {
      const { wire, database } = await openBehindWire();
      wire.holdAnswerTo(request);
      const retention = resolveRetention({ pauseMs: 0, dedupeKeysDays: null });
      await expect(prune(database, retention)).rejects.toThrow(DeadlineError);
      expect(wire.held).toBeGreaterThan(0);
    },
  );

  it('C9 does not block the end of a run either', async () => {
    const { wire, database } = await openBehindWire();
    await database.directly('waybill test', async (query) => {
      await query('ask', 'SELECT 1');
      wire.silent = true;
    });
  });
});

describe('rows', () => {
  it('N7 C9 old dedupe keys are removed in batches with pauses, with a report of rows and time', async () => {
    await db.query(
      `INSERT INTO ${db.quoted}.dedupe_keys (message_id, namespace, topic, dedupe_key)
       SELECT ${db.quoted}.id_at(now() - interval '40 days' + n * interval '1 ms'), 'default', 'old', n::text
         FROM generate_series(1, 2500) n
       UNION ALL SELECT ${db.quoted}.id_at(now() - interval '20 days'), 'default', 'old', 'remembered'`,
    );
    const { rows: before } = await db.query<{ xid: string }>(
      'SELECT pg_current_xact_id()::text AS xid',
    );
    const report = await pruneNow(db, { dedupeKeysDays: 30, batchSize: 1000, pauseMs: 50 });
    const { rows: after } = await db.query<{ xid: string }>(
      'SELECT pg_current_xact_id()::text AS xid',
    );
    expect(report['dedupe keys']).toMatchObject({ rows: 2500 });
    expect(report['dedupe keys']?.ms, 'two pauses').toBeGreaterThanOrEqual(100);
    // three transactions that wrote: 1,000, 1,000 and 500
    const transactions = Number(only(after).xid) - Number(only(before).xid) - 1;
    expect(transactions).toBeGreaterThanOrEqual(3);
    const { rows } = await db.query(`SELECT dedupe_key FROM ${db.quoted}.dedupe_keys`);
    expect(rows).toEqual([{ dedupe_key: 'remembered' }]);
  });

  it('N7 M11 records of the inbox are removed in batches after their time, and positions stay', async () => {
    await db.query(
      `INSERT INTO ${db.quoted}.inbox (consumer, dedupe_key, processed_at)
       SELECT 'billing', n::text, now() - interval '40 days' FROM generate_series(1, 25) n
       UNION ALL SELECT 'billing', 'remembered', now() - interval '20 days'`,
    );
    await db.query(
      `INSERT INTO ${db.quoted}.inbox_positions VALUES ('billing', 'default', '', 'k', 25)`,
    );
    expect((await pruneNow(db, { inboxDays: 60 }))['inbox']).toMatchObject({ rows: 0 });
    expect(Object.keys(await pruneNow(db, { inboxDays: null }))).not.toContain('inbox');
    const report = await pruneNow(db, { batchSize: 10, pauseMs: 50 });
    expect(report['inbox']).toMatchObject({ rows: 25 });
    expect(report['inbox']?.ms, 'two pauses').toBeGreaterThanOrEqual(100);
    const { rows } = await db.query(`SELECT dedupe_key FROM ${db.quoted}.inbox`);
    expect(rows).toEqual([{ dedupe_key: 'remembered' }]);
    const { rows: positions } = await db.query(`SELECT key FROM ${db.quoted}.inbox_positions`);
    expect(positions).toEqual([{ key: 'k' }]);
  });

  it('C9 dead letters are kept for an operator, unless a limit is set; then the record stays', async () => {
    const destinationId = await defineDestination(db, 'graves');
    const { rows } = await db.query<{ message_id: string }>(
      `INSERT INTO ${db.quoted}.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code)
       SELECT ${db.quoted}.new_id(), $1, now() - n * interval '4 days', 1, 1, 'rejected', 'refused'
         FROM generate_series(1, 3) n RETURNING message_id`,
      [destinationId],
    );
    expect(Object.keys(await pruneNow(db, { messagesDays: null }))).not.toContain('dead letters');
    const report = await pruneNow(db, { messagesDays: null, deadLettersDays: 7, batchSize: 1 });
    expect(report['dead letters']).toMatchObject({ rows: 2 });
    const { rows: record } = await db.query<{ message_id: string }>(
      `SELECT message_id FROM ${db.quoted}.attempts WHERE state = 'discarded' AND destination_id = $1`,
      [destinationId],
    );
    expect(record.map((row) => row.message_id).toSorted()).toEqual(
      rows
        .slice(1)
        .map((row) => row.message_id)
        .toSorted(),
    );
    const { rows: actions } = await db.query(
      `SELECT actor, action, count::int FROM ${db.quoted}.operator_actions WHERE actor = 'retention'`,
    );
    expect(actions).toEqual([
      { actor: 'retention', action: 'discard_dead_letters', count: 1 },
      { actor: 'retention', action: 'discard_dead_letters', count: 1 },
    ]);
  });
});

describe('the daily run', () => {
  const minute = 60_000;

  it('C9 is not due before the next time of day after it has run', async () => {
    const database = openDatabase(db);
    const { rows } = await db.query<{ earlier: string; later: string }>(
      `SELECT to_char(now() AT TIME ZONE 'UTC' - interval '2 minutes', 'HH24:MI') AS earlier,
              to_char(now() AT TIME ZONE 'UTC' + interval '2 minutes', 'HH24:MI') AS later`,
    );
    const { earlier, later } = only(rows);
    const begin = (at: string) => beginMaintenance(database, at, randomUUID(), minute);
    await endMaintenance(database, (await begin(earlier)) ?? '');
    expect(await begin(earlier)).toBeNull();
    // the time that comes in two minutes was due a day ago, before the last run
    expect(await begin(later)).toBeNull();
    await neverDone();
  });

  it('C9 that a relay reports as done without doing it does not stop waybill maintain from doing it', async () => {
    await oldMessage(db, 40);
    await as(db, 'test_maintenance', async (client) => {
      await client.query(
        `SELECT ${db.quoted}.end_maintenance(${db.quoted}.begin_maintenance(clock_timestamp(), gen_random_uuid(), 600000))`,
      );
    });
    expect(await partitionDays(db, 'messages')).toContain(40);
    expect((await cliOn(db, ['maintain'])).code).toBe(0);
    expect(await partitionDays(db, 'messages')).not.toContain(40);
    await neverDone();
  });

  it('C9 is done by one of several relays, and once a day', async () => {
    const database = openDatabase(db);
    const events: RelayEvent[] = [];
    const run = () =>
      maintainRetention(
        database,
        resolveRetention({ pauseMs: 0 }),
        randomUUID(),
        (event) => void events.push(event),
      );
    await Promise.all([run(), run(), run()]);
    await run();
    expect(events.filter((event) => event.name === 'pruned').map(({ what }) => what)).toEqual([
      'dedupe keys',
      'inbox',
      'shadow comparisons',
      'jobs',
      'discarded letters',
      'removed endpoints',
      'reports',
      'partitions',
      'statistics',
    ]);
    await db.query(
      `UPDATE ${db.quoted}.maintenance_runs SET done_at = done_at - interval '1 day' WHERE task = 'retention'`,
    );
    await run();
    expect(events, 'the next day').toHaveLength(18);
  });

  it('C9 is held for as long as it takes', async () => {
    const database = openDatabase(db);
    await neverDone();
    const heldUntil = async (): Promise<number> => {
      const { rows } = await db.query<{ until: number }>(
        `SELECT extract(epoch FROM expires_at)::float8 AS until FROM ${db.quoted}.holds WHERE name = 'retention'`,
      );
      return only(rows).until;
    };
    const blocker = await db.connect();
    await blocker.query('BEGIN');
    await blocker.query(`LOCK TABLE ${db.quoted}.unrouted_messages IN ACCESS EXCLUSIVE MODE`);
    const run = maintainRetention(
      database,
      resolveRetention({ pauseMs: 0 }),
      randomUUID(),
      () => undefined,
      600,
    );
    const first = await waitFor(async () => (await heldUntil()) > 0 && heldUntil(), {
      what: 'the run to begin',
    });
    await waitFor(async () => (await heldUntil()) > first + 0.6, { what: 'it to be held longer' });
    await blocker.query('ROLLBACK');
    await run;
  });

  it('C9 that fails in the middle is not done: another relay takes it over after a while', async () => {
    const database = openDatabase(db);
    await neverDone();
    const events: RelayEvent[] = [];
    const run = (relayId: string) =>
      maintainRetention(
        database,
        resolveRetention({ pauseMs: 0 }),
        relayId,
        (event) => void events.push(event),
      );
    const rename = (from: string, to: string) =>
      db.query(`ALTER TABLE ${db.quoted}.${from} RENAME TO ${to}`);
    const [first, second] = [randomUUID(), randomUUID()];
    await rename('unrouted_messages', 'hidden');
    await expect(run(first)).rejects.toThrow(/unrouted_messages/);
    await rename('hidden', 'unrouted_messages');
    events.length = 0;
    await run(second);
    expect(events, 'the first relay may still be running it').toEqual([]);
    await expireHold(db, 'retention');
    await run(second);
    expect(events).toHaveLength(9);
    await run(first);
    expect(events, 'done for today').toHaveLength(9);
  });
});
