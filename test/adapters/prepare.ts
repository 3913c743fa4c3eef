// Runs once before the tests of the project: puts generated files into an ignored folder. Prisma's client is generated
// with a schema engine that does nothing, so it needs no database and no download. The examples are copied to where
// their imports find the packages.

import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, rmSync, symlinkSync } from 'node:fs';
import path from 'node:path';

import { librariesMissing } from './installed.js';

const folder = path.resolve('test/adapters');
const generated = path.join(folder, 'generated');

export default function prepare(): void {
  if (librariesMissing() !== null) return;
  rmSync(generated, { recursive: true, force: true });
  execFileSync('node_modules/.bin/prisma', ['generate', '--schema', 'schema.prisma'], {
    cwd: folder,
    env: { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: '/bin/true', CHECKPOINT_DISABLE: '1' },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  for (const name of [
    'adapters',
    'cataloguing',
    'crm',
    'nestjs',
    'portal',
    'receivers',
    'recipes/cloudflare-worker',
    'runtimes',
    'testing',
  ])
    cpSync(path.join('examples', name), path.join(generated, 'examples', name), {
      recursive: true,
    });
  cpSync(path.join(folder, 'bundled'), path.join(generated, 'bundled'), { recursive: true });
  symlinkSync(
    path.join(generated, 'prisma'),
    path.join(generated, 'examples', 'adapters', 'generated'),
  );
  mkdirSync(path.join(generated, 'node_modules'));
  symlinkSync(path.resolve('.'), path.join(generated, 'node_modules', 'waybill'));
}
