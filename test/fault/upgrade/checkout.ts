// Other versions of Waybill to run beside this one: an earlier commit, taken from the repository's history and built as
// package.json builds it; and a later version, which is this one with another number and one migration more.

import { execFileSync } from 'node:child_process';
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { runNode } from '../../support/cli.js';
import type { Finished } from '../../support/cli.js';

/** The version before: relays and producers of this commit must go on with the schema of the present one. */
export const baseline = { tag: 'v0.1.0', commit: '0b737b8' };

export class Checkout {
  readonly directory: string;

  constructor(directory: string) {
    this.directory = directory;
  }

  /** As scripts import from it. */
  get root(): string {
    return pathToFileURL(`${this.directory}/`).href;
  }

  get version(): string {
    const text = readFileSync(path.join(this.directory, 'package.json'), 'utf8');
    return (JSON.parse(text) as { version: string }).version;
  }

  /** Runs a command of its command line to the end. */
  async waybill(databaseUrl: string, args: readonly string[]): Promise<Finished> {
    const main = path.join(this.directory, 'dist', 'cli', 'main.js');
    return runNode([main, ...args], { environment: { DATABASE_URL: databaseUrl } }).ended(60_000);
  }

  remove(): void {
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** Undefined where the history is not there, as in an archive of the sources; a line says so. */
export function findBaseline(): string | undefined {
  for (const name of [baseline.commit, baseline.tag]) {
    try {
      return git('rev-parse', '--verify', '--quiet', `${name}^{commit}`).toString().trim();
    } catch {
      // not here; the other name may be
    }
  }
  console.warn(
    `skipped: the commit ${baseline.commit} (${baseline.tag}) is not in the history here; fetch it whole to run this`,
  );
  return undefined;
}

export function checkOut(commit: string): Checkout {
  const directory = temporary('before');
  const archive = git(
    'archive',
    '--format=tar',
    commit,
    'package.json',
    'tsconfig.json',
    'tsconfig.build.json',
    'src',
    'sql',
    'test/fault',
  );
  execFileSync('tar', ['-x', '-C', directory], { input: archive });
  linkPackages(directory);
  const compiler = path.resolve('node_modules', 'typescript', 'bin', 'tsc');
  execFileSync(process.execPath, [compiler, '-p', 'tsconfig.build.json'], { cwd: directory });
  return new Checkout(directory);
}

/** This version with another number, and this migration behind the others. */
export function laterVersion(version: string, migration: string): Checkout {
  const directory = temporary('later');
  for (const part of ['dist', 'sql', 'test/fault'])
    cpSync(part, path.join(directory, part), { recursive: true });
  writeFileSync(
    path.join(directory, 'package.json'),
    JSON.stringify({ name: 'waybill', version, type: 'module' }),
  );
  writeFileSync(path.join(directory, 'sql', 'migrations', '9000_later.sql'), migration);
  linkPackages(directory);
  return new Checkout(directory);
}

function temporary(what: string): string {
  const directory = mkdtempSync(path.join(os.tmpdir(), `waybill-${what}-`));
  mkdirSync(path.join(directory, 'test'));
  return directory;
}

function linkPackages(directory: string): void {
  symlinkSync(path.resolve('node_modules'), path.join(directory, 'node_modules'));
}

function git(...args: string[]): Buffer {
  return execFileSync('git', args, {
    stdio: ['ignore', 'pipe', 'ignore'],
    maxBuffer: 256 * 1024 * 1024,
  });
}
