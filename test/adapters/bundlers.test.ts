// Bundlers: a producer, a drain handler and a relay become one file each, which needs nothing beside it. Client
// libraries of destinations that they do not use are not looked for.

import path from 'node:path';

import { describe, expect, test } from 'vitest';

import { runNode, temporaryDirectory } from '../support/cli.js';
import { otherDatabase } from '../support/postgres.js';
import { librariesMissing } from './installed.js';

const missing = librariesMissing();
const sources = path.resolve('test/adapters/generated/bundled');

type Bundle = (source: string, target: string) => Promise<void>;

async function withEsbuild(source: string, target: string): Promise<void> {
  const { build } = await import('esbuild');
  const isModule = target.endsWith('.mjs');
  const { warnings } = await build({
    entryPoints: [source],
    outfile: target,
    bundle: true,
    platform: 'node',
    format: isModule ? 'esm' : 'cjs',
    logLevel: 'silent',
    // this project's own paths lead to the sources, not to the package
    tsconfigRaw: '{}',
    // import.meta.url is empty in CommonJS, which the parts that read files allow for
    logOverride: { 'empty-import-meta': 'silent' },
    // pg is CommonJS, and calls require for modules of Node also inside an ES module
    ...(isModule && {
      banner: {
        js: "import { createRequire as makeRequire } from 'node:module'; const require = makeRequire(import.meta.url);",
      },
    }),
  });
  expect(warnings).toEqual([]);
}

async function withVite(source: string, target: string): Promise<void> {
  const { build } = await import('vite');
  await build({
    configFile: false,
    logLevel: 'error',
    ssr: { noExternal: true },
    build: {
      ssr: source,
      outDir: path.dirname(target),
      rolldownOptions: { output: { entryFileNames: path.basename(target), codeSplitting: false } },
    },
  });
}

describe.each([
  ['esbuild, as an ES module', 'mjs', withEsbuild],
  ['esbuild, as CommonJS', 'cjs', withEsbuild],
  ['Vite', 'mjs', withVite],
] satisfies [string, string, Bundle][])('%s', (_name, extension, bundle) => {
  test.skipIf(missing !== null)(
    'bundles of producer, drain handler and relay run alone',
    async () => {
      const { url } = await otherDatabase('empty');
      const directory = temporaryDirectory();
      const programs: Record<string, string> = {};
      for (const name of ['producer', 'drain', 'relay']) {
        programs[name] = path.join(directory, `${name}.${extension}`);
        await bundle(path.join(sources, `${name}.mjs`), programs[name]);
      }
      const start = (name: string) =>
        runNode([programs[name] ?? ''], { environment: { DATABASE_URL: url } });

      const relay = start('relay');
      await relay.says('started');
      const producing = async () =>
        expect((await start('producer').ended()).stdout).toBe('enqueued\n');
      await producing();
      expect(await relay.ended()).toMatchObject({ code: 0, stderr: '' });
      await producing();
      expect((await start('drain').ended()).stdout).toBe('delivered 1\n200\n');
    },
  );
});
