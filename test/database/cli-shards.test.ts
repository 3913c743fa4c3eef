// Shards from the command line: processes that share them, commands that apply to all of them, and commands that need
// one named.

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it, onTestFinished } from 'vitest';

import { addToken } from '../../src/features/tokens/database.js';
import { cli, json, startCli, temporaryDirectory, writeConfig } from '../support/cli.js';
import type { Running } from '../support/cli.js';
import { urlAs } from '../support/logins.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';
import {
  numbered,
  openDatabase,
  waitLimitMs,
  places,
  send,
  untilPlaces,
} from '../support/relay.js';
import { silentAddress } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait.js';

const [eu, us] = [testDatabase(), testDatabase()];
const nowhere = 'postgresql://unknown:secret@127.0.0.1:1/none';

const environment = () => ({
  WAYBILL_SCHEMA: eu.schema,
  WAYBILL_SHARD_EU_URL: eu.url,
  WAYBILL_SHARD_US_URL: us.url,
});

/** Deliveries are written to a file, with the process and the message. */
function configFor(topic: string, more = ''): { config: string; log: string } {
  const log = path.join(temporaryDirectory(), 'log');
  const config = writeConfig(`{
    shards: defineShards({ shards: { eu: {}, us: {} }, tenants: { acme: 'us', globex: 'eu' } }),
    destinations: { ${JSON.stringify(topic)}: handler(async (message) => {
      const { appendFileSync } = await import('node:fs');
      appendFileSync(${JSON.stringify(log)}, process.pid + ' ' + message.id + '\\n');
    }, { concurrency: 2 }) },
    routes: [{ topic: ${JSON.stringify(topic)}, to: ${JSON.stringify(topic)} }],
    ${more}
  }`);
  return { config, log };
}

function logged(log: string): [pid: string, id: string][] {
  if (!existsSync(log)) return [];
  const lines = readFileSync(log, 'utf8').trimEnd().split('\n');
  return lines.map((line) => line.split(' ') as [string, string]);
}

async function started(child: Running, shards: readonly string[]): Promise<void> {
  for (const shard of shards)
    await child.says(new RegExp(`"shard":"${shard}".*"msg":"relay_started"`));
}

async function stop(child: Running): Promise<void> {
  child.process.kill('SIGTERM');
  expect(await child.ended(15_000)).toMatchObject({ code: 0 });
}

describe('an address of a single database', () => {
  it('N9 does not hide the shards of the configuration file', async () => {
    const { config } = configFor('hidden');
    const directory = temporaryDirectory();
    const file = readFileSync(config, 'utf8');
    writeFileSync(path.join(directory, 'waybill.config.mjs'), file);
    for (const command of [['status'], ['migrate', 'status'], ['dead-letters', 'list']]) {
      const told = await cli(command, {
        cwd: directory,
        environment: { ...environment(), DATABASE_URL: nowhere },
      });
      expect([command, told.code]).toEqual([command, 2]);
      expect(told.stderr).toContain(
        'DATABASE_URL is set (in the environment or in .env), and the configuration has shards',
      );
    }
  });
});

describe('start', () => {
  it('N9 two processes on the same shards share the work, and deliver each message once', async () => {
    const { config, log } = configFor('fleet', 'relay: { batchSize: 5 }');
    const args = ['start', '--config', config, '--no-server'];
    const fleet = [startCli(args, { environment: environment() })];
    await started(fleet[0] as Running, ['eu', 'us']);
    fleet.push(startCli(args, { environment: environment() }));
    await started(fleet[1] as Running, ['eu', 'us']);
    let sent = 0;
    // until both have delivered something of both shards
    const shared = async () => {
      for (const db of [eu, us]) await send(db, numbered('fleet', 50));
      sent += 50;
      for (const db of [eu, us]) await untilPlaces(db, 'fleet', { delivered: sent, waiting: 0 });
      return new Set(logged(log).map(([pid]) => pid)).size === 2;
    };
    await waitFor(shared, { what: 'both to deliver', timeoutMs: waitLimitMs });
    const ids = logged(log).map(([, id]) => id);
    expect(ids).toHaveLength(2 * sent);
    expect(new Set(ids).size).toBe(ids.length);
    for (const child of fleet) await stop(child);
  });

  it('N9 --shard limits a process, logs name the shard, and the port serves it', async () => {
    const { config } = configFor('limited', 'server: { port: 0 }');
    const args = ['start', '--config', config, '--shard', 'us'];
    const child = startCli(args, { environment: environment() });
    await started(child, ['us']);
    await send(us, numbered('limited', 1));
    await untilPlaces(us, 'limited', { delivered: 1 });
    expect(child.stderr).not.toContain('"shard":"eu"');
    const [, url = ''] = /"url":"([^"]+)","msg":"serving"/.exec(child.stderr) ?? [];
    expect(await (await fetch(`${url}/`)).json()).toEqual({ count: 1 });
    const ready = await (await fetch(`${url}/readyz`)).json();
    expect(ready).toEqual({ ready: true, shards: { running: 1, refused: 0, waiting: 0 } });
    await stop(child);
  });

  it('N9 continues with the others while one is away, and shows no password', async () => {
    const { config } = configFor('half');
    const child = startCli(['start', '--config', config, '--no-server'], {
      environment: { ...environment(), WAYBILL_SHARD_US_URL: nowhere },
    });
    await started(child, ['eu']);
    await child.says('shard_unavailable');
    await send(eu, numbered('half', 2));
    await untilPlaces(eu, 'half', { delivered: 2 });
    await stop(child);
    expect(child.stderr).toMatch(/"shard":"us".*ECONNREFUSED.*"msg":"shard_unavailable"/);
    expect(child.stderr).not.toContain('secret');
  });

  it('N9 opens its port, and serves the others, however long a database with a replica stays silent', async () => {
    const silent = await silentAddress();
    const config = writeConfig(`{
      shards: defineShards({ shards: { eu: {}, us: { connectTimeoutMs: 600_000 } } }),
      destinations: {}, routes: [], server: { port: 0 },
    }`);
    const child = startCli(['start', '--config', config], {
      environment: {
        ...environment(),
        WAYBILL_SHARD_US_URL: silent,
        WAYBILL_SHARD_US_REPLICA_URL: silent,
      },
    });
    await child.says('"msg":"serving"');
    await started(child, ['eu']);
    const [, url = ''] = /"url":"([^"]+)","msg":"serving"/.exec(child.stderr) ?? [];
    const ready = await (await fetch(`${url}/readyz`)).json();
    expect(ready).toEqual({ ready: true, shards: { running: 1, refused: 0, waiting: 1 } });
  });

  it('N9 reports which shard refuses this version, continues with the others, and ends when all refuse', async () => {
    const { config } = configFor('past', 'server: { port: 0 }');
    const works = (db: typeof us, oldest: string | null) =>
      db.query(
        `UPDATE ${db.quoted}.applied_files SET works_with = $1 WHERE file = 'migrations/0001_storage.sql'`,
        [oldest],
      );
    onTestFinished(async () => {
      for (const db of [eu, us]) await works(db, null);
    });
    const child = startCli(['start', '--config', config], { environment: environment() });
    await started(child, ['eu', 'us']);
    const [, url = ''] = /"url":"([^"]+)","msg":"serving"/.exec(child.stderr) ?? [];
    const token = await addToken(openDatabase(eu), { name: 'probe', scope: 'read' }, 'test');
    const headers = { authorization: `Bearer ${token}` };
    const readyz = async (shard = '') => {
      const answer = await fetch(`${url}${shard}/readyz`, { headers });
      return { status: answer.status, body: (await answer.json()) as { shards?: unknown } };
    };
    expect(await readyz('/shards/us')).toMatchObject({ status: 200 });
    await works(us, '99.0.0');
    await child.says(/"shard":"us".*"msg":"relay_refused"/);
    const refused = expect.stringContaining('works with relays of Waybill 99.0.0') as string;
    expect(await readyz()).toEqual({
      status: 200,
      body: {
        ready: true,
        shards: { running: 1, refused: 1, waiting: 0 },
        names: { eu: true, us: false },
        refused: { us: refused },
      },
    });
    expect(await readyz('/shards/us')).toMatchObject({ status: 503 });
    const status = (...args: string[]) =>
      cli(['status', '--config', config, ...args], { environment: environment() });
    expect((await status()).stderr.match(/works with relays of Waybill 99\.0\.0/g)).toHaveLength(1);
    expect(json(await status('--json'))).toMatchObject({
      eu: { neededVersion: null },
      us: { neededVersion: '99.0.0' },
    });
    await send(eu, numbered('past', 1));
    await untilPlaces(eu, 'past', { delivered: 1 });
    await works(eu, '99.0.0');
    const { code, stderr } = await child.ended(waitLimitMs);
    expect(code).toBe(8);
    expect(stderr).toMatch(/^waybill: the schema .* works with relays of Waybill 99\.0\.0/m);
  });

  it('N9 refuses an address of a single database beside the shards, and an unknown shard', async () => {
    const { config } = configFor('refused');
    const both = await cli(['start', '--config', config], {
      environment: { ...environment(), DATABASE_URL: eu.url },
    });
    expect(both.code).toBe(2);
    expect(both.stderr).toContain(
      "DATABASE_URL is set (in the environment or in .env), and the configuration has shards: unset it (WAYBILL_ENV_FILE= reads no .env), or name the shard's own, such as WAYBILL_SHARD_EU_URL",
    );
    const unknown = await cli(['start', '--config', config, '--shard', 'eu', 'mars'], {
      environment: environment(),
    });
    expect(unknown).toMatchObject({ code: 2 });
    expect(unknown.stderr).toContain('the shard is "mars": give eu, us');
  });
});

describe('drain', () => {
  it('C7 N9 empties all shards, or the named ones, and fails if one is away', async () => {
    const { config } = configFor('drained');
    const drain = (args: string[], more = {}) =>
      cli(['drain', '--config', config, ...args], { environment: { ...environment(), ...more } });
    expect(await drain([])).toMatchObject({ code: 0 });
    await send(eu, numbered('drained', 2));
    await send(us, numbered('drained', 3));
    expect(await drain(['--shard', 'us', '--json'])).toMatchObject({ code: 0 });
    expect(await places(eu, 'drained')).toMatchObject({ waiting: 2 });
    expect(await places(us, 'drained')).toMatchObject({ delivered: 3 });
    const finished = await drain([], { WAYBILL_SHARD_US_URL: nowhere });
    expect(finished).toMatchObject({
      code: 1,
      stdout:
        'processed 2, succeeded 2, failed 0, released 0, unrouted 0\neu: processed 2, succeeded 2, failed 0, released 0, unrouted 0\n',
    });
    expect(finished.stderr).toMatch(/waybill: us: .*ECONNREFUSED/);
  });
});

describe('other commands', () => {
  it('N9 migrate, roles, status and doctor apply to all shards, each under its name', async () => {
    const { config } = configFor('everywhere');
    const empty = await otherDatabase('empty');
    const over = { ...environment(), WAYBILL_SHARD_US_URL: empty.url };
    const run = (...args: string[]) => cli([...args, '--config', config], { environment: over });
    const planned = await run('migrate', 'status', '--json');
    const states = json(planned) as Record<string, { state: string }[]>;
    expect(Object.keys(states)).toEqual(['eu', 'us']);
    expect(new Set(states['eu']?.map(({ state }) => state))).toEqual(new Set(['applied']));
    expect(new Set(states['us']?.map(({ state }) => state))).toEqual(new Set(['pending']));
    const up = await run('migrate', 'up');
    expect(up.code, up.stderr).toBe(0);
    expect(up.stdout).toMatch(/^== eu ==\nok [^]*\n\n== us ==\nok /);
    const roles = await run('roles', 'install', '--dry-run', '--json');
    expect(json(roles)).toMatchObject({ eu: { dryRun: true }, us: { dryRun: true } });
    expect(json(await run('status', '--json'))).toMatchObject({
      eu: { health: expect.any(Array) as unknown },
      us: { health: expect.any(Array) as unknown },
    });
    expect(json(await run('doctor', 'partitions_missing', '--json'))).toMatchObject({
      eu: [{ code: 'partitions_missing' }],
      us: [{ code: 'partitions_missing' }],
    });
    const one = await run('status', '--json', '--shard', 'us');
    expect(json(one)).toHaveProperty('health');
  });

  it('N9 a shard that is away does not affect the others, and makes the command fail', async () => {
    const { config } = configFor('partly');
    const over = { ...environment(), WAYBILL_SHARD_EU_URL: nowhere };
    const run = (...args: string[]) =>
      cli(['status', '--config', config, ...args], { environment: over });
    const shown = await run();
    expect(shown.code).toBe(1);
    expect(shown.stdout).toMatch(/^== eu ==\n\n== us ==\nmetric/);
    expect(shown.stderr).toContain('waybill: eu: no database answers at 127.0.0.1:1');
    const asJson = await run('--json');
    expect(asJson.code).toBe(1);
    expect(json(asJson)).toMatchObject({
      eu: { error: expect.stringContaining('ECONNREFUSED') as unknown },
      us: { health: expect.any(Array) as unknown },
    });
  });

  it('N9 the other commands need --shard, and list the known shards', async () => {
    const { config } = configFor('named');
    const run = (...args: string[]) =>
      cli(args, { environment: environment(), cwd: path.dirname(config) });
    const unnamed = await run('dead-letters', 'list');
    expect(unnamed).toMatchObject({ code: 2, stdout: '' });
    expect(unnamed.stderr).toContain(
      'the configuration has shards: name one with --shard, of eu, us',
    );
    const wrong = await run('dead-letters', 'list', '--shard', 'mars');
    expect(wrong.stderr).toContain('--shard is "mars": give eu, us');
    expect(json(await run('dead-letters', 'list', '--json', '--shard', 'eu'))).toEqual([]);
    const { config: single } = { config: writeConfig('{ destinations: {}, routes: [] }') };
    const none = await cli(['status', '--shard', 'eu', '--config', single], {
      environment: { DATABASE_URL: eu.url },
    });
    expect(none.stderr).toContain('--shard is given, and the configuration has no shards');
  });

  it('N9 enqueue uses the shard of the tenant, and refuses another', async () => {
    const { config } = configFor('by-hand');
    const producers = {
      ...environment(),
      WAYBILL_SHARD_EU_URL: urlAs(eu.url, 'test_producer'),
      WAYBILL_SHARD_US_URL: urlAs(us.url, 'test_producer'),
    };
    const enqueue = (...args: string[]) =>
      cli(['enqueue', 'by-hand', ...args, '--config', config], { environment: producers });
    for (const tenant of ['acme', 'globex'])
      expect(await enqueue('--tenant', tenant)).toMatchObject({ code: 0 });
    const tenantsIn = async (db: typeof eu) => {
      const { rows } = await db.query<{ tenant_id: string }>(
        `SELECT tenant_id FROM ${db.quoted}.messages WHERE topic = 'by-hand'`,
      );
      return rows.map(({ tenant_id }) => tenant_id);
    };
    expect([await tenantsIn(eu), await tenantsIn(us)]).toEqual([['globex'], ['acme']]);
    const wrong = await enqueue('--tenant', 'acme', '--shard', 'eu');
    expect(wrong).toMatchObject({ code: 2 });
    expect(wrong.stderr).toContain('tenantId "acme" belongs to the shard us');
    expect(await tenantsIn(eu)).toEqual(['globex']);
  });
});
