// Finds the runtimes among the packages of test/adapters, and the flags with which the tests run them.

import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';

/** The program in the package for this platform; packages of other platforms are not installed. */
export function programOf(scope: string, ...inside: string[]): string | undefined {
  const folder = path.resolve('test/adapters/node_modules', scope);
  return (existsSync(folder) ? readdirSync(folder) : [])
    .flatMap((name) => [path.join(folder, name, ...inside)])
    .map((file) => (process.platform === 'win32' ? `${file}.exe` : file))
    .find((file) => existsSync(file));
}

/** Before the script. Deno may only reach this machine, and resolves packages from node_modules. */
export const denoFlags = [
  'run',
  '--no-prompt',
  '--no-remote',
  '--node-modules-dir=manual',
  '--allow-net=127.0.0.1',
  '--allow-env',
  '--allow-read',
  '--allow-sys',
];
