// The doctor's findings about the server: weak settings, what holds back dead rows, connections and clocks. It runs on
// its own server. Each problem is really caused, and fixed by the printed remedy.

import { execFileSync } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';

import { startPostgres } from '../../src/dev/embedded-postgres.js';
import { temporaryDirectory } from '../support/cli.js';
import {
  expectWell,
  follow,
  look,
  ownPrograms,
  ownServer,
  report,
  untilState,
} from '../support/doctor.js';
import { databaseUrl } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

const db = ownServer({
  max_prepared_transactions: '5',
  max_connections: '20',
  wal_level: 'logical',
});

it('a healthy server gives no finding, and every check is listed', async () => {
  const all = await report(db);
  expect(all.filter(({ state }) => state !== 'ok')).toEqual([]);
  expect(all.length).toBeGreaterThanOrEqual(40);
});

describe('settings', () => {
  it.each([
    ['fsync', 'error'],
    ['full_page_writes', 'error'],
    ['autovacuum', 'error'],
    ['track_counts', 'error'],
    ['synchronous_commit', 'warning'],
  ] as const)('%s off is found, and the remedy switches it on', async (name, state) => {
    const code = `${name}_off`;
    await expectWell(db, code);
    await db.query(`ALTER SYSTEM SET ${name} = off`);
    await db.query('SELECT pg_reload_conf()');
    const finding = await untilState(db, code, state);
    expect(finding.found).toContain(`${name} is off`);
    await follow(db, finding);
    await untilState(db, code, 'ok');
  });

  it('synchronous_commit off for another role, or for it in this database, is found', async () => {
    await db.query('CREATE ROLE "Hasty one"; ALTER ROLE "Hasty one" SET synchronous_commit = off');
    const finding = await look(db, 'synchronous_commit_off');
    expect(finding).toMatchObject({ state: 'warning' });
    expect(finding.found).toContain('for role Hasty one');
    await follow(db, finding);
    await expectWell(db, 'synchronous_commit_off');

    await db.query('ALTER ROLE "Hasty one" IN DATABASE postgres SET synchronous_commit = off');
    const inDatabase = await look(db, 'synchronous_commit_off');
    expect(inDatabase.found).toContain('role Hasty one in database postgres');
    await follow(db, inDatabase);

    await db.query('ALTER DATABASE postgres SET synchronous_commit = off');
    await follow(db, await untilState(db, 'synchronous_commit_off', 'warning'));
    await expectWell(db, 'synchronous_commit_off');
  });

  it('autovacuum off for one of the tables is found', async () => {
    await expectWell(db, 'autovacuum_off');
    await db.query(`ALTER TABLE ${db.quoted}.deliveries SET (autovacuum_enabled = false)`);
    const finding = await look(db, 'autovacuum_off');
    expect(finding).toMatchObject({
      state: 'error',
      found: `autovacuum is off for ${db.quoted.startsWith('"outbox"') ? 'outbox' : db.quoted}.deliveries`,
    });
    await follow(db, finding);
    await expectWell(db, 'autovacuum_off');
  });

  it('connections near their limit are found', async () => {
    await expectWell(db, 'connections_scarce');
    const clients: pg.Client[] = [];
    for (let n = 0; n < 14; n += 1) clients.push(await db.connect());
    const finding = await untilState(db, 'connections_scarce', 'warning');
    expect(finding.found).toMatch(/1[4-7] of 17 connections are taken/);
    await Promise.all(clients.map((client) => client.end()));
    await untilState(db, 'connections_scarce', 'ok');
  });
});

describe('what holds back dead rows', () => {
  const limits = { transactionSeconds: 0 };

  it('a long open transaction is found, with its holder', async () => {
    const client = await db.connect();
    await client.query("SET application_name = 'nightly report'");
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
    await expectWell(db, 'long_transactions');
    const finding = await look(db, 'long_transactions', { limits });
    expect(finding).toMatchObject({ state: 'warning' });
    expect(finding.found).toMatch(
      /^1 transaction keeps .* process \d+ \(postgres, nightly report, idle in transaction\) for/,
    );
    await follow(db, finding);
    await untilState(db, 'long_transactions', 'ok', { limits });
  });

  it('one without a snapshot or changes holds nothing, and is not reported', async () => {
    const client = await db.connect();
    await client.query('BEGIN; SELECT 1');
    await untilState(db, 'long_transactions', 'ok', { limits });
    await client.query('CREATE TABLE made (); SELECT 1');
    await untilState(db, 'long_transactions', 'warning', { limits });
    await client.end();
    await untilState(db, 'long_transactions', 'ok', { limits });
  });

  it('an open or prepared transaction in another database holds nothing here', async () => {
    await db.query('CREATE DATABASE elsewhere');
    const client = new pg.Client({ connectionString: databaseUrl(db.url, 'elsewhere') });
    await client.connect();
    onTestFinished(() => client.end());
    await client.query(`BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'elsewhere'`);
    await client.query('BEGIN; SELECT pg_current_xact_id()');
    await expectWell(db, 'prepared_transactions', { limits });
    await expectWell(db, 'long_transactions', { limits });
    await client.query('ROLLBACK');
    await client.query(`ROLLBACK PREPARED 'elsewhere'`);
  });

  it('a forgotten prepared transaction is found', async () => {
    await expectWell(db, 'prepared_transactions', { limits });
    const client = await db.connect();
    await client.query(`BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'the other''s'`);
    await expectWell(db, 'prepared_transactions');
    const finding = await look(db, 'prepared_transactions', { limits });
    expect(finding).toMatchObject({ state: 'warning' });
    expect(finding.found).toContain("the other's (postgres) for");
    await follow(db, finding);
    await expectWell(db, 'prepared_transactions', { limits });
  });

  it.each([
    ['physical', `SELECT pg_create_physical_replication_slot('forgotten', true)`],
    ['logical', `SELECT pg_create_logical_replication_slot('forgotten', 'pgoutput')`],
  ])('a %s replication slot without a reader is found', async (type, sql) => {
    await expectWell(db, 'replication_slots');
    await db.query(sql);
    const finding = await look(db, 'replication_slots');
    expect(finding).toMatchObject({ state: 'warning' });
    expect(finding.found).toMatch(
      new RegExp(`1 replication slot has no reader: forgotten \\(${type}, keeps .* of log\\)`),
    );
    await follow(db, finding);
    await expectWell(db, 'replication_slots');
  });
});

describe('a standby', () => {
  it('is refused for relays, and what its feedback holds back is found on the primary', async () => {
    await expectWell(db, 'server_standby');
    const { server } = db;
    const directory = temporaryDirectory();
    chmodSync(directory, 0o755);
    const dataDirectory = path.join(directory, 'standby');
    // a copy of a server that was shut down needs no log to be consistent
    await server.stop();
    execFileSync('cp', ['-a', server.dataDirectory, dataDirectory]);
    await server.restart();
    writeFileSync(path.join(dataDirectory, 'standby.signal'), '');
    const standby = await startPostgres({
      ...ownPrograms(),
      dataDirectory,
      settings: {
        primary_conninfo: `host=127.0.0.1 port=${server.port} user=postgres application_name=reader`,
        hot_standby_feedback: 'on',
        wal_receiver_status_interval: '1',
        max_prepared_transactions: '5',
        max_connections: '20',
      },
    });
    onTestFinished(() => standby.remove());

    const ofStandby = await report({ url: standby.url, schema: db.schema });
    const state = (code: string) => ofStandby.find((each) => each.code === code)?.state;
    expect({ standby: state('server_standby'), listen: state('listen_pooled') }).toEqual({
      standby: 'error',
      listen: 'skipped',
    });

    const limits = { feedbackTransactions: 20 };
    await waitFor(async () => (await db.query('SELECT FROM pg_stat_replication')).length > 0, {
      what: 'the standby to be connected',
      timeoutMs: 20_000,
    });
    await expectWell(db, 'standby_feedback', { limits });
    const client = new pg.Client({ connectionString: standby.url });
    onTestFinished(() => client.end().catch(() => undefined));
    await client.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
    for (let n = 0; n < 30; n += 1) await db.query('SELECT pg_current_xact_id()');
    const finding = await untilState(db, 'standby_feedback', 'warning', { limits });
    expect(finding.found).toMatch(/reader of \d+ transactions/);
    await client.query('COMMIT');
    await untilState(db, 'standby_feedback', 'ok', { limits });

    await db.query(`SELECT pg_create_physical_replication_slot('used', true)`);
    expect(await look(db, 'replication_slots')).toMatchObject({ state: 'warning' });
    await client.query(`ALTER SYSTEM SET primary_slot_name = 'used'`);
    await client.query('SELECT pg_reload_conf()');
    await untilState(db, 'replication_slots', 'ok');
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class');
    for (let n = 0; n < 30; n += 1) await db.query('SELECT pg_current_xact_id()');
    const bySlot = await untilState(db, 'standby_feedback', 'warning', { limits });
    expect(bySlot.found).toMatch(/used of \d+ transactions/);
  }, 90_000);
});

describe('clocks', () => {
  it.each([
    ['ahead of', 5000],
    ['behind', -5000],
  ])("a clock of this machine that is %s the database's is found", async (words, offMs) => {
    await expectWell(db, 'clock_skew');
    const finding = await look(db, 'clock_skew', { nowMs: () => Date.now() + offMs });
    expect(finding).toMatchObject({ state: 'warning' });
    expect(finding.found).toMatch(new RegExp(`clock is [45]\\.\\d s ${words} the database's`));
  });

  it('a slow response is not mistaken for a wrong clock', async () => {
    let asked = 0;
    const nowMs = () => Date.now() + (asked++ === 0 ? -6000 : 0);
    await expectWell(db, 'clock_skew', { nowMs });
  });
});
