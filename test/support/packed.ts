// The package as npm publishes it: packed, and unpacked into a project of its own. It needs `npm run build`.

import { execFile } from 'node:child_process';
import { mkdirSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const root = path.resolve(import.meta.dirname, '../..');

export type Packed = {
  /** The packed file. */
  file: string;
  /** The paths of the files in it. */
  names: string[];
  packedBytes: number;
  unpackedBytes: number;
};

/** Packs the package into a folder. */
export async function packInto(folder: string): Promise<Packed> {
  const parameters = ['pack', '--json', '--ignore-scripts', '--pack-destination', folder];
  const { stdout } = await run('npm', parameters, {
    cwd: root,
    shell: process.platform === 'win32',
  });
  type Report = { filename: string; size: number; unpackedSize: number; files: { path: string }[] };
  const [report] = JSON.parse(stdout) as Report[];
  if (report === undefined) throw new Error(`npm pack reported nothing: ${stdout}`);
  return {
    file: path.join(folder, report.filename),
    names: report.files.map((entry) => entry.path),
    packedBytes: report.size,
    unpackedBytes: report.unpackedSize,
  };
}

/** Unpacks it into node_modules of a project, with links to these other packages and none besides. */
export async function unpackInto(
  project: string,
  { file }: Packed,
  others: readonly string[],
): Promise<void> {
  const installed = path.join(project, 'node_modules');
  mkdirSync(path.join(installed, 'waybill'), { recursive: true });
  const parameters = ['-xzf', file, '--strip-components=1', '-C', path.join(installed, 'waybill')];
  await run('tar', parameters);
  for (const name of others) {
    mkdirSync(path.dirname(path.join(installed, name)), { recursive: true });
    symlinkSync(path.join(root, 'node_modules', name), path.join(installed, name), 'junction');
  }
}
