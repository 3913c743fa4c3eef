// Runs the built package without client libraries, to see the error of a destination whose library is missing.

import { cpSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { runNode, temporaryDirectory } from '../support/cli.js';

/** Opens the destination that `source` makes from the exports of a file of dist/destinations; returns its error. */
export async function openWithoutLibraries(file: string, source: string): Promise<string> {
  const directory = temporaryDirectory();
  for (const name of ['dist', 'package.json'])
    cpSync(name, path.join(directory, name), { recursive: true });
  const url = pathToFileURL(path.join(directory, 'dist', 'destinations', file)).href;
  const script = `
    const destinations = await import(${JSON.stringify(url)});
    await destinations.${source}.open().catch((error) => console.log(error.code, error.message));
  `;
  const { stdout, stderr } = await runNode(['--input-type=module', '-e', script]).ended();
  if (stderr !== '') throw new Error(stderr);
  return stdout.trim();
}
