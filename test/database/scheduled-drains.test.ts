// Runs the recipes of docs/guides/scheduled-drains.md word for word, except for paths and addresses: the crontab lines
// with sh, the command of the CronJob, and the psql blocks with pg_cron, against a real POST /drain. Where the recipe
// says that the token is in no statement, the server's statement log is searched for it.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';

import pg from 'pg';
import { describe, expect, inject, it, onTestFinished } from 'vitest';

import { createRelay } from '../../src/config.js';
import { migrateUp } from '../../src/database/migrate.js';
import { installRoles } from '../../src/database/roles.js';
import { handler } from '../../src/destinations/handler.js';
import { startPostgres } from '../../src/dev/embedded-postgres.js';
import { environmentOf, temporaryDirectory, writeConfig } from '../support/cli.js';
import { makeLogins, rolePrefix } from '../support/logins.js';
import { startPgNet } from '../support/pg-net.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';
import type { TestDatabase } from '../support/postgres.js';
import { findPgCron, hasPrograms, pgCronHasSeconds } from '../support/programs.js';
import { places, sendOne, untilPlaces } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import { waitFor } from '../support/wait.js';

type Block = { file: string; language: string; text: string };
const { blocks } = (await import(path.resolve('scripts/docs-blocks.mjs'))) as {
  blocks: (language: string) => Block[];
};

const db = testDatabase();
const page = 'docs/guides/scheduled-drains.md';
const ofPage = (language: string) =>
  blocks(language)
    .filter(({ file }) => file === page)
    .map((block) => block.text);
const hasAll = hasPrograms({ curl: 'curl', psql: 'postgresql-client-15', npx: 'npm' });
const pgCron = inject('postgresMajor') === 15 ? findPgCron() : undefined;
const hasSeconds = pgCron !== undefined && pgCronHasSeconds(pgCron);
if (pgCron !== undefined && !hasSeconds)
  console.warn('skipped here: a schedule of 10 seconds, which pg_cron has since 1.5');
if (inject('postgresMajor') !== 15)
  console.warn('skipped here: pg_cron is tried in the project database-15');

/** The command of a line of a crontab that runs every minute. */
function commandOf(line: string): string {
  const [, command = ''] = /^\* \* \* \* \* (.*)\n$/.exec(line) ?? [];
  // cron would take it for the end of the line
  expect(command).not.toContain('%');
  expect(command).not.toBe('');
  return command;
}

async function shell(
  command: string,
  { cwd, environment = {} }: { cwd: string; environment?: Record<string, string> },
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const { PATH = '', HOME = '' } = process.env;
  const child = spawn('sh', ['-c', command], { cwd, env: { PATH, HOME, ...environment } });
  const [stdout, stderr] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ]);
  return { code: child.exitCode, stdout, stderr };
}

/** A directory such as /srv/app: with a configuration for one destination, and the program where npx finds it. */
function application(name: string): string {
  const config = writeConfig(
    `{ destinations: { ${JSON.stringify(name)}: handler(() => {}) }, routes: [{ topic: ${JSON.stringify(name)}, to: ${JSON.stringify(name)} }] }`,
  );
  const directory = path.dirname(config);
  const program = path.join(directory, 'node_modules', '.bin', 'waybill');
  mkdirSync(path.dirname(program), { recursive: true });
  const main = path.resolve('dist/cli/main.js');
  writeFileSync(program, `#!/bin/sh\nexec '${process.execPath}' '${main}' "$@"\n`);
  chmodSync(program, 0o755);
  writeFileSync(path.join(directory, 'database-url'), `${db.url}\n`, { mode: 0o600 });
  return directory;
}

const config = (on: Pick<TestDatabase, 'url' | 'schema'>, name: string) => ({
  database: { url: on.url, schema: on.schema },
  destinations: { [name]: handler(() => {}) },
  routes: [{ topic: name, to: name }],
});

/** A real POST /drain, without a relay that would deliver by itself. */
async function served(on: TestDatabase, name: string) {
  const limits = { maxMs: 20_000, maxMessages: 1000, maintain: false };
  const drain = () => createRelay(config(on, name)).drain(limits);
  // once, to define the route
  await drain();
  return serveDatabase(on, { drain });
}

describe.skipIf(!hasAll)('crontab', () => {
  it('C7 the line with the command delivers what is due', async () => {
    const [line = ''] = ofPage('crontab');
    const name = 'cron-command';
    const directory = application(name);
    const command = commandOf(line)
      .replaceAll('/srv/app', directory)
      .replaceAll('/etc/waybill', directory);
    const { WAYBILL_SCHEMA = '' } = environmentOf(db);
    const run = () => shell(command, { cwd: '/', environment: { WAYBILL_SCHEMA } });
    // once, to define the route
    expect(await run()).toMatchObject({ code: 0 });
    await sendOne(db, { topic: name });
    expect(await run()).toMatchObject({ code: 0 });
    expect(await places(db, name)).toMatchObject({ delivered: 1, waiting: 0 });
  });

  it('C7 the line over HTTP does too, with a token in a file that other users cannot read', async () => {
    const [, line = ''] = ofPage('crontab');
    const [make = ''] = ofPage('shell');
    const name = 'cron-http';
    const cwd = application(name);
    const server = await served(db, name);
    const here = (words: string) => words.replaceAll('/etc/waybill', cwd);
    const made = await shell(here(make), { cwd, environment: environmentOf(db) });
    expect(made).toMatchObject({ code: 0, stdout: '' });
    const file = path.join(cwd, 'drain-header');
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const [, token = ''] =
      /^Authorization: Bearer (\S{20,})\n$/.exec(readFileSync(file, 'utf8')) ?? [];
    expect(token).not.toBe('');
    const command = here(commandOf(line)).replace('http://127.0.0.1:4980', server.url);
    expect(command).not.toContain(token);
    await sendOne(db, { topic: name });
    expect(await places(db, name)).toMatchObject({ delivered: 0, waiting: 1 });
    const { code, stdout, stderr } = await shell(command, { cwd });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(JSON.parse(stdout)).toMatchObject({ succeeded: 1, finished: true });
    expect(await places(db, name)).toMatchObject({ delivered: 1, waiting: 0 });
    writeFileSync(file, `Authorization: Bearer ${token}x\n`);
    expect(await shell(command, { cwd })).toMatchObject({ code: 22 });
  });
});

describe.skipIf(!hasAll)('Kubernetes', () => {
  it('C7 the command of the CronJob delivers what is due', async () => {
    const yaml = readFileSync('deploy/kubernetes/drain-cronjob.yaml', 'utf8');
    const [, list = ''] = /^ +command: (\[.*\])$/m.exec(yaml) ?? [];
    const command = JSON.parse(list.replaceAll("'", '"')) as string[];
    const [, name = '', value = ''] = /- name: (\w+)\n +value: (\S+)/.exec(yaml) ?? [];
    expect(yaml).toContain("schedule: '* * * * *'");
    expect(yaml).toContain('concurrencyPolicy: Forbid');
    const destination = 'kubernetes';
    const cwd = application(destination);
    const { WAYBILL_SCHEMA = '' } = environmentOf(db);
    const environment = { WAYBILL_SCHEMA, [name]: value.replace('/etc/waybill', cwd) };
    const run = () => shell(command.join(' '), { cwd, environment });
    expect(await run()).toMatchObject({ code: 0 });
    await sendOne(db, { topic: destination });
    expect(await run()).toMatchObject({ code: 0 });
    expect(await places(db, destination)).toMatchObject({ delivered: 1, waiting: 0 });
  });
});

/** Runs blocks of the page in psql, in a directory with the token file. */
async function psql(url: string, token: string, block: string): Promise<string> {
  const cwd = temporaryDirectory();
  writeFileSync(path.join(cwd, 'drain-token'), `${token}\n`, { mode: 0o600 });
  const file = path.join(cwd, 'block.sql');
  writeFileSync(file, block);
  const command = `psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --file '${file}' "$URL"`;
  const { code, stdout, stderr } = await shell(command, { cwd, environment: { URL: url } });
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return stdout;
}

type Target = { on: TestDatabase; url: string; client: pg.Client; logFile: string };

/** Follows the page up to the schedule; every statement is logged meanwhile. */
async function follow({ on, url, client, logFile }: Target, name: string): Promise<string> {
  const server = await served(on, name);
  const token = await server.token('operate');
  const [keep = '', schedule = ''] = ofPage('psql');
  const { rows } = await client.query<{ name: string }>('SELECT current_database() AS name');
  await client.query(
    `ALTER DATABASE ${pg.escapeIdentifier(rows[0]?.name ?? '')} SET log_statement = 'all'`,
  );
  await psql(url, token, keep);
  expect(
    await psql(url, token, schedule.replace('https://relay.example.com', server.url)),
  ).toBeTruthy();
  const { rows: jobs } = await client.query<{ schedule: string; command: string }>(
    "SELECT schedule, command FROM cron.job WHERE jobname = 'waybill-drain'",
  );
  expect(jobs).toEqual([{ schedule: '* * * * *', command: 'SELECT public.drain_waybill()' }]);
  // the recipe was logged, and the token was not
  const log = readFileSync(logFile, 'utf8');
  expect(log).toContain('vault.create_secret(token,');
  expect(log).toContain('CREATE FUNCTION public.drain_waybill()');
  expect(log).not.toContain(token);
  return token;
}

/** Waits for the result, as the page does; then ends the schedule as the page does. */
async function judge(
  { on, url, client, logFile }: Target,
  name: string,
  token: string,
  ms: number,
  messages = 1,
) {
  await untilPlaces(on, name, { delivered: messages, waiting: 0, leased: 0 }, ms);
  const [, , , look = '', end = ''] = ofPage('psql');
  const answer = await waitFor(
    async () => {
      const { rows } = await client.query<{ status_code: number; content: string }>(look);
      return rows.find(({ content }) => content.includes('"succeeded":1'));
    },
    { what: 'the answer' },
  );
  expect(answer.status_code).toBe(200);
  await psql(url, token, end);
  expect((await client.query('SELECT FROM cron.job')).rowCount).toBe(0);
  expect(readFileSync(logFile, 'utf8')).not.toContain(token);
}

describe.skipIf(!hasAll)('pg_cron and pg_net', () => {
  it('C7 the function drains over HTTP, and its token is in no statement', async () => {
    const { url, client } = await otherDatabase('migrated');
    const on: TestDatabase = {
      ...db,
      url,
      pool: db.pool,
      query: (sql, values) => client.query(sql, values),
    };
    const logFile = path.resolve('coverage', `postgres-${inject('postgresMajor')}.log`);
    await startPgNet(url, { cron: true });
    const target = { on, url, client, logFile };
    const token = await follow(target, 'net');
    await client.query(`SELECT FROM ${db.quoted}.enqueue('net', '{}')`);
    expect(await places(on, 'net')).toMatchObject({ delivered: 0, waiting: 1 });
    const { rows } = await client.query<{ command: string }>('SELECT command FROM cron.job');
    const command = rows[0]?.command ?? '';
    // runs that overlap do no harm
    await client.query(`BEGIN; ${command}; ${command}; COMMIT`);
    await judge(target, 'net', token, 20_000);
    expect(await places(on, 'net')).toMatchObject({ delivered: 1 });
  });

  it.skipIf(pgCron === undefined)(
    'C7 a real pg_cron drains within a minute',
    async () => {
      const target = await startPgCron();
      const token = await follow(target, 'minute');
      await target.client.query(`SELECT FROM ${db.quoted}.enqueue('minute', '{}')`);
      await judge(target, 'minute', token, 75_000);
    },
    120_000,
  );

  it.skipIf(pgCron === undefined || !hasSeconds)(
    'C7 W9 a real pg_cron that knows seconds drains every 10 seconds',
    async () => {
      const target = await startPgCron();
      const { url, client, on } = target;
      const token = await follow(target, 'seconds');
      const [, , often = ''] = ofPage('psql');
      expect(await psql(url, token, often)).toBeTruthy();
      // it replaced the schedule of every minute
      expect((await client.query('SELECT schedule FROM cron.job')).rows).toEqual([
        { schedule: '10 seconds' },
      ]);
      const startedMs = performance.now();
      for (let run = 1; run <= 3; run += 1) {
        await client.query(`SELECT FROM ${db.quoted}.enqueue('seconds', '{}')`);
        await untilPlaces(on, 'seconds', { delivered: run, waiting: 0, leased: 0 }, 20_000);
      }
      // with a run every minute, three messages would take two minutes at least
      expect(performance.now() - startedMs).toBeLessThan(60_000);
      await judge(target, 'seconds', token, 20_000, 3);
    },
    120_000,
  );

  it.skipIf(pgCron === undefined || hasSeconds)(
    'C7 an older pg_cron refuses a schedule of 10 seconds',
    async () => {
      const { client } = await startPgCron();
      const [, , often = ''] = ofPage('psql');
      await expect(client.query(often)).rejects.toThrow('invalid schedule: 10 seconds');
    },
    60_000,
  );
});

/** A server with a real pg_cron, and stand-ins for the extensions that Debian lacks. */
async function startPgCron(): Promise<Target> {
  const logFile = path.join(temporaryDirectory(), 'server.log');
  const server = await startPostgres({
    binDirectory: pgCron ?? '',
    logFile,
    settings: {
      shared_preload_libraries: 'pg_cron',
      'cron.database_name': 'postgres',
      'cron.use_background_workers': 'on',
      fsync: 'off',
    },
  });
  onTestFinished(() => server.remove());
  const { url } = server;
  await migrateUp({ url, schema: db.schema });
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  await client.connect();
  onTestFinished(() => client.end());
  await installRoles({ url, schema: db.schema }, rolePrefix);
  await makeLogins(client);
  await client.query('CREATE EXTENSION pg_cron');
  await startPgNet(url, { cron: false });
  const on: TestDatabase = {
    ...db,
    url,
    pool: db.pool,
    query: (sql, values) => client.query(sql, values),
  };
  return { on, url, client, logFile };
}
