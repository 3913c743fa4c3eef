// A real PgBouncer in front of the tests' PostgreSQL. Without the program those tests are skipped with a message; on CI
// that is an error, because it would hide a gap.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import pg from 'pg';
import { onTestFinished } from 'vitest';

import { freePort } from './free-port.js';
import { waitFor } from './wait.js';

const usualProgram = '/usr/sbin/pgbouncer';

/** The path of PgBouncer, or undefined when the machine has none. */
export function findPgbouncer(): string | undefined {
  const program = process.env['WAYBILL_TEST_PGBOUNCER'] ?? usualProgram;
  if (existsSync(program)) return program;
  const reason =
    `no PgBouncer at ${program}: install it (Debian: pgbouncer) ` +
    'or set WAYBILL_TEST_PGBOUNCER to its program';
  if (process.env['CI']) throw new Error(reason);
  console.warn(`The tests behind a pooler are left out: ${reason}.`);
  return undefined;
}

type PoolOptions = { poolMode: 'transaction' | 'session'; connections: number };

/** Starts PgBouncer with few server connections until the test ends; returns the database's address behind it. */
export async function startPgbouncer(
  program: string,
  databaseUrl: string,
  options: PoolOptions,
): Promise<string> {
  const { url, stop } = await runPgbouncer(program, databaseUrl, options);
  onTestFinished(stop);
  return url;
}

/** The same, but the caller stops it. */
export async function runPgbouncer(
  program: string,
  databaseUrl: string,
  { poolMode, connections }: PoolOptions,
): Promise<{ url: string; stop: () => Promise<void> }> {
  const { hostname, port, username } = new URL(databaseUrl);
  const directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-pgbouncer-'));
  chmodSync(directory, 0o755);
  const pooled = new URL(databaseUrl);
  pooled.port = String(await freePort());
  const file = path.join(directory, 'pgbouncer.ini');
  writeFileSync(
    file,
    `[databases]
* = host=${hostname} port=${port} user=${username}
[pgbouncer]
listen_addr = ${pooled.hostname}
listen_port = ${pooled.port}
unix_socket_dir =
auth_type = any
pool_mode = ${poolMode}
default_pool_size = ${connections}
`,
  );
  // PgBouncer refuses to run as root
  const account = process.getuid?.() === 0 ? ['-u', 'nobody'] : [];
  const child = spawn(program, [...account, file], { stdio: ['ignore', 'ignore', 'pipe'] });
  let words = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (words += text));
  const stop = async (): Promise<void> => {
    const ended = child.exitCode === null ? once(child, 'exit') : undefined;
    child.kill('SIGKILL');
    await ended;
    rmSync(directory, { recursive: true, force: true });
  };
  try {
    await waitFor(() => answers(pooled.href), { what: `PgBouncer to answer:\n${words}` });
  } catch (error) {
    await stop();
    throw error;
  }
  return { url: pooled.href, stop };
}

async function answers(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.end();
    return true;
  } catch {
    return false;
  }
}
