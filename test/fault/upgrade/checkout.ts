// Versions of Waybill to run side by side: this one, and a later one with a higher number and one more migration.

import {
  appendFileSync,
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

export class Checkout {
  readonly directory: string;

  constructor(directory: string) {
    this.directory = directory;
  }

  /** Its path for imports in scripts. */
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

/** This version with another number, and this migration after the others. */
export function laterVersion(version: string, migration: string): Checkout {
  const directory = temporary('later');
  for (const part of ['dist', 'test/fault'])
    cpSync(part, path.join(directory, part), { recursive: true });
  writeFileSync(
    path.join(directory, 'package.json'),
    JSON.stringify({ name: 'waybill', version, type: 'module' }),
  );
  // the build has put both texts into these modules
  const dist = path.join(directory, 'dist');
  writeFileSync(
    path.join(dist, 'core/package-version.js'),
    `export const version = ${JSON.stringify(version)};`,
  );
  appendFileSync(
    path.join(dist, 'database/sql-texts.js'),
    `sqlTexts['migrations/9000_later.sql'] = ${JSON.stringify(migration)};`,
  );
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
