// `waybill dev` as a new user meets it: one command, everything on this machine, and nothing left behind.

import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import path from 'node:path';

import { describe, expect, it, onTestFinished } from 'vitest';

import { startCli, temporaryDirectory } from '../support/cli.js';
import type { Running } from '../support/cli.js';
import { testDatabase } from '../support/postgres.js';
import { places } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

const startMs = 60_000;
const stopMs = 30_000;
/** How often it prints its state when there is no terminal. */
const liveLineMs = 5000;

type Health = { status: string; counts: Record<string, number> };

type Dev = { child: Running; url: string };

async function startDev(
  flags: string[] = [],
  environment: Record<string, string> = {},
  cwd?: string,
): Promise<Dev> {
  const child = startCli(['dev', '--rate', '100', ...flags], {
    environment,
    ...(cwd !== undefined && { cwd }),
  });
  await child.says(/health +http:\S+\/healthz/, startMs);
  const url = /health +(http:\S+)\/healthz/.exec(child.stdout)?.[1] ?? '';
  return { child, url };
}

async function freePort(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return String(port);
}

async function health(url: string): Promise<Health> {
  const response = await fetch(`${url}/healthz`);
  expect(response.status).toBe(200);
  expect(response.headers.get('content-type')).toBe('application/json');
  return (await response.json()) as Health;
}

/** The process id of the embedded server, asked from the server itself. */
async function serverProcess(child: Running): Promise<number> {
  const address = /PostgreSQL \S+ at (\S+)/.exec(child.stdout)?.[1];
  if (address === undefined) throw new Error(`no address in:\n${child.stdout}`);
  const { default: pg } = await import('pg');
  const client = new pg.Client({ connectionString: address });
  await client.connect();
  try {
    const { rows } = await client.query<{ pid: string }>(
      `SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1) AS pid`,
    );
    return Number(rows[0]?.pid);
  } finally {
    await client.end();
  }
}

function isAlive(processId: number): boolean {
  try {
    process.kill(processId, 0);
    return true;
  } catch {
    return false;
  }
}

async function stop({ child }: Dev, signal: NodeJS.Signals = 'SIGINT'): Promise<void> {
  child.process.kill(signal);
  const { code, stdout, stderr } = await child.ended(stopMs);
  expect({ code, stderr }).toEqual({ code: 0, stderr: expect.any(String) as unknown });
  expect(stdout.trimEnd().split('\n').at(-1)).toBe('stopped');
}

describe('waybill dev', { timeout: 300_000 }, () => {
  it('keeps its demo traffic away from the database that .env of a project names', async () => {
    const cwd = temporaryDirectory();
    writeFileSync(
      path.join(cwd, '.env'),
      `DATABASE_URL=${db.url}\nDATABASE_DIRECT_URL=${db.url}\n`,
    );
    const dev = await startDev(['--port', await freePort()], {}, cwd);
    expect(dev.child.stdout).toContain('database  PostgreSQL');
    await stop(dev);
    const { rows } = await db.query(`SELECT count(*)::int AS messages FROM ${db.quoted}.messages`);
    expect(rows).toEqual([{ messages: 0 }]);
  });

  it('starts, shows its health, delivers and retries, stops cleanly, and can be started again', async () => {
    const dev = await startDev(['--port', await freePort()]);
    const embedded = await serverProcess(dev.child);
    expect(isAlive(embedded)).toBe(true);
    expect((await fetch(`${dev.url}/readyz`)).status).toBe(200);
    const first = await health(dev.url);
    expect(first.status).toBe('ok');
    expect(Object.keys(first.counts)).toEqual(
      expect.arrayContaining(['waiting', 'retrying', 'processing', 'dead']),
    );
    for (const count of ['waiting', 'retrying', 'processing', 'dead'])
      expect(first.counts[count], count).toBeTypeOf('number');
    // the demo's destinations fail sometimes: some deliveries wait for a retry, and others continue
    await waitFor(async () => ((await health(dev.url)).counts['retrying'] ?? 0) > 0, {
      what: 'a retry',
      timeoutMs: 60_000,
    });
    await waitFor(async () => ((await health(dev.url)).counts['average_delivery_ms'] ?? 0) > 0, {
      what: 'deliveries',
      timeoutMs: 60_000,
    });
    await dev.child.says(/delivered [1-9]\d*\/s/, 60_000);
    await stop(dev);
    await waitFor(() => !isAlive(embedded), { what: 'the end of the embedded server' });

    const again = await startDev(['--port', await freePort()]);
    const second = await serverProcess(again.child);
    expect((await health(again.url)).status).toBe('ok');
    await stop(again, 'SIGTERM');
    await waitFor(() => !isAlive(second), { what: 'the end of the second server' });
  });

  it('stops also while it starts, and when its output is no longer read', async () => {
    const early = startCli(['dev', '--port', await freePort()]);
    await early.says(/schema +migrating/, startMs);
    await stop({ child: early, url: '' });
    expect(early.stdout).not.toContain('page ');

    const unread = await startDev(['--port', await freePort()]);
    const embedded = await serverProcess(unread.child);
    unread.child.process.stdout?.destroy();
    const { code, stderr } = await unread.child.ended(stopMs + liveLineMs);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    await waitFor(() => !isAlive(embedded), { what: 'the end of the embedded server' });
  });

  it('uses another port when its port is busy, and says so', async () => {
    const busy = createServer().listen(0, '127.0.0.1');
    await once(busy, 'listening');
    onTestFinished(() => void busy.close());
    const { port } = busy.address() as AddressInfo;
    const dev = await startDev(['--port', String(port)], {
      DATABASE_URL: db.url,
      WAYBILL_SCHEMA: db.schema,
    });
    expect(dev.url).not.toBe(`http://127.0.0.1:${port}`);
    expect(dev.child.stderr).toContain(`port ${port} is busy`);
    expect(dev.child.stderr).toContain('--port');
    expect((await fetch(`${dev.url}/readyz`)).status).toBe(200);
    await stop(dev);
  });

  it('uses the database of DATABASE_URL if it is set, and shows no password', async () => {
    const withPassword = new URL(db.url);
    withPassword.password = 'geh31m-wort';
    const dev = await startDev(['--port', await freePort(), '--schema', 'demo'], {
      DATABASE_URL: withPassword.href,
    });
    expect(dev.child.stdout).toContain('(from DATABASE_URL)');
    expect(dev.child.stdout).not.toContain('embedded');
    const demo = { ...db, schema: 'demo', quoted: 'demo' };
    await waitFor(async () => (await places(demo, 'crm')).delivered > 0, {
      what: 'deliveries in that database',
      timeoutMs: 60_000,
    });
    await stop(dev);
    expect(await places(demo, 'crm')).toMatchObject({ leased: 0 });
    expect(dev.child.stdout + dev.child.stderr).not.toContain('geh31m-wort');
  });
});
