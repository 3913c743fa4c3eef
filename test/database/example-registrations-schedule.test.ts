// The schedule of the registrations site: schedule.sql in psql, with pg_cron where it knows seconds and where it does
// not, down to a request that drains. test/database/scheduled-drains.test.ts waits for a real pg_cron.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { text } from 'node:stream/consumers';

import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';

import { startPostgres } from '../../src/dev/embedded-postgres.js';
import { temporaryDirectory } from '../support/cli.js';
import { startPgNet } from '../support/pg-net.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';
import { findPgCron, hasPrograms, pgCronHasSeconds } from '../support/programs.js';
import { registrationsSite, sqlOf } from '../support/registrations.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const site = registrationsSite(db);
const pgCron = findPgCron();

/** Runs schedule.sql with the address of the processor in it; returns what psql complains about. */
async function runSchedule(url: string, processor: string): Promise<string> {
  const sql = sqlOf('schedule.sql').replace('https://site.example.com/process', processor);
  expect(sql).toContain(processor);
  const file = path.join(temporaryDirectory(), 'schedule.sql');
  writeFileSync(file, sql);
  const child = spawn(
    'psql',
    ['--no-psqlrc', '--quiet', '--set', 'ON_ERROR_STOP=1', '--file', file, url],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  const [complaints] = await Promise.all([text(child.stderr), once(child, 'close')]);
  expect(`${child.exitCode} ${complaints}`).toMatch(/^0 /);
  return complaints;
}

const jobs = async (client: pg.Client) =>
  (
    await client.query<{ schedule: string; command: string }>(
      'SELECT schedule, command FROM cron.job',
    )
  ).rows;
const command = 'SELECT public.drain_waybill()';

describe.skipIf(!hasPrograms({ psql: 'postgresql-client-15' }))('schedule.sql', () => {
  it('W9 schedules a drain every 10 seconds, whose request sends the events', async () => {
    const { url, client } = await otherDatabase('empty');
    await startPgNet(url, { cron: true });
    const token = randomUUID();
    await client.query("SELECT vault.create_secret($1, 'waybill_drain_token')", [token]);
    const processor = createServer((request, response) => {
      if (request.headers.authorization !== `Bearer ${token}`) response.writeHead(401).end();
      else void site.drain().then((report) => response.end(JSON.stringify(report)));
    });
    processor.listen(0, '127.0.0.1');
    await once(processor, 'listening');
    onTestFinished(() => void processor.close());
    const { port } = processor.address() as AddressInfo;
    expect(await runSchedule(url, `http://127.0.0.1:${port}/process`)).toBe('');
    expect(await jobs(client)).toEqual([{ schedule: '10 seconds', command }]);

    await db.query(
      `INSERT INTO webhook_outbox (event_type, aggregate_type, aggregate_id, payload)
       VALUES ('pair.created', 'pair', gen_random_uuid(), '{}')`,
    );
    await client.query(command);
    await waitFor(() => site.received.length > 0, { what: 'the event' });
    // the token is known to the function alone
    const role = `stranger_${randomUUID().slice(0, 8)}`;
    await client.query(`CREATE ROLE ${role}; SET ROLE ${role}`);
    await expect(client.query(command)).rejects.toMatchObject({ code: '42501' });
    await client.query(`RESET ROLE; DROP ROLE ${role}`);
  });

  it('W9 schedules every minute, and says so, where pg_cron knows no seconds', async () => {
    const { url, client } = await otherDatabase('empty');
    await startPgNet(url, { cron: true });
    await client.query(`ALTER TABLE cron.job ADD CHECK (schedule !~ 'seconds')`);
    expect(await runSchedule(url, 'http://127.0.0.1:1/process')).toMatch(/every minute instead/);
    expect(await jobs(client)).toEqual([{ schedule: '* * * * *', command }]);
  });

  it.skipIf(pgCron === undefined)('W9 a real pg_cron takes what its version knows', async () => {
    const server = await startPostgres({
      binDirectory: pgCron ?? '',
      settings: {
        shared_preload_libraries: 'pg_cron',
        'cron.database_name': 'postgres',
        fsync: 'off',
      },
    });
    onTestFinished(() => server.remove());
    const client = new pg.Client({ connectionString: server.url });
    client.on('error', () => undefined);
    await client.connect();
    onTestFinished(() => client.end());
    await client.query('CREATE EXTENSION pg_cron');
    await startPgNet(server.url, { cron: false });
    const hasSeconds = pgCronHasSeconds(pgCron ?? '');
    // twice: the second run replaces the first
    for (let run = 0; run < 2; run += 1) {
      const complaints = await runSchedule(server.url, 'http://127.0.0.1:1/process');
      expect(complaints.includes('every minute instead')).toBe(!hasSeconds);
    }
    expect(await jobs(client)).toEqual([
      { schedule: hasSeconds ? '10 seconds' : '* * * * *', command },
    ]);
  });
});
