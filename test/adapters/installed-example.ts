// An example as a project of its own: a copy of its folder in which its packages are installed, and the package of
// Waybill from its packed file, as applications get it.

import { execFileSync } from 'node:child_process';
import { cpSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { temporaryDirectory } from '../support/cli.js';

/** Returns the folder of the project. `dependencies`: the packages besides Waybill, with their versions. */
export function installExample(name: string, dependencies: Record<string, string>): string {
  const directory = temporaryDirectory();
  cpSync(path.join('examples', name), directory, { recursive: true });
  const packed = execFileSync('npm', ['pack', '--silent', '--pack-destination', directory], {
    encoding: 'utf8',
  });
  const waybill = `file:${packed.trim().split('\n').at(-1)}`;
  writeFileSync(
    path.join(directory, 'package.json'),
    JSON.stringify({
      private: true,
      type: 'module',
      dependencies: { ...dependencies, waybill },
    }),
  );
  execFileSync('npm', ['install', '--silent', '--no-audit', '--no-fund'], { cwd: directory });
  return directory;
}
