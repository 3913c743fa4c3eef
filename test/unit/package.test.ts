// The package as npm publishes it: what is in the packed file, whether tools and TypeScript find every entry point, and
// that both module systems load it.

import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';
import { afterAll, beforeAll, expect, it } from 'vitest';

import { packInto, unpackInto } from '../support/packed.js';
import type { Packed } from '../support/packed.js';

type Manifest = {
  bin: Record<string, string>;
  exports: Record<string, { types: string; default: string }>;
  dependencies: Record<string, string>;
};

const manifest = JSON.parse(readFileSync('package.json', 'utf8')) as Manifest;
const specifiers = Object.keys(manifest.exports).map((entry) => `waybill${entry.slice(1)}`);

const folder = mkdtempSync(path.join(os.tmpdir(), 'waybill-package-'));
/** These load or bundle the whole package. */
const slow = { timeout: 120_000 };
let packed: Packed;
beforeAll(async () => {
  packed = await packInto(folder);
  await unpackInto(folder, packed, Object.keys(manifest.dependencies));
}, slow.timeout);
afterAll(() => rmSync(folder, { recursive: true }));

it('has built modules, the page and the deployment files, and nothing else', () => {
  const { names } = packed;
  const isWanted = (name: string): boolean => {
    if (['LICENSE', 'README.md', 'package.json'].includes(name)) return true;
    if (
      /^deploy\/(container|grafana|helm\/waybill(\/templates)?|kubernetes|prometheus)\/[\w.-]+$/.test(
        name,
      )
    )
      return true;
    if (/^dist\/page\/(assets\/)?[\w.-]+\.(css|html|js|svg)$/.test(name)) return true;
    const [, module] = /^dist\/(.*?)(?:\.d\.ts|\.js)$/.exec(name) ?? [];
    return module !== undefined && existsSync(`src/${module}.ts`);
  };
  expect(names.filter((name) => !isWanted(name))).toEqual([]);
  expect(names.filter((name) => name.includes('.test.'))).toEqual([]);
  const targets = Object.values(manifest.exports).flatMap((entry) => Object.values(entry));
  for (const target of [...targets, ...Object.values(manifest.bin)])
    expect(names).toContain(path.posix.normalize(target));
});

it('passes publint without a message', slow, async () => {
  const { buffer, byteOffset, byteLength } = readFileSync(packed.file);
  const tarball = buffer.slice(byteOffset, byteOffset + byteLength);
  const { messages, pkg } = await publint({ pack: { tarball }, strict: true });
  expect(messages.map((message) => formatMessage(message, pkg))).toEqual([]);
});

it(
  'has types for every entry point, in every way that TypeScript resolves them',
  slow,
  async () => {
    const contents = createPackageFromTarballData(readFileSync(packed.file));
    const result = await checkPackage(contents);
    if (result.types === false) throw new Error('the package has no types');
    expect(Object.keys(result.entrypoints)).toEqual(Object.keys(manifest.exports));
    const unexpected = result.problems.filter((problem) => {
      // TypeScript 7 has no such resolution any more
      if (problem.kind === 'NoResolution') return problem.resolutionKind !== 'node10';
      // all supported versions of Node load ES modules with require: see the next test
      return problem.kind !== 'CJSResolvesToESM';
    });
    expect(unexpected).toEqual([]);
  },
);

it('every entry point is the same module for require and for import', slow, async () => {
  const file = path.join(folder, 'script.cjs');
  writeFileSync(
    file,
    `(async () => {
      for (const name of ${JSON.stringify(specifiers)}) {
        const required = require(name);
        const imported = await import(name);
        console.log(name, Object.keys(required).length > 0 && required === imported);
      }
    })();`,
  );
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [file]);
  expect(stderr).toBe('');
  expect(stdout.trim().split('\n')).toEqual(specifiers.map((name) => `${name} true`));
});

it('the command runs from the installed package', async () => {
  const file = path.join(folder, 'node_modules/waybill', manifest.bin['waybill'] ?? '');
  const { stdout } = await promisify(execFile)(process.execPath, [file, '--version']);
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  expect(stdout.trim()).toContain(version);
});

it('the README has its sizes, within 10 %', slow, async () => {
  const { sizesTable } = (await import(path.resolve('scripts/sizes.mjs'))) as {
    sizesTable: (sizes: Packed) => Promise<string>;
  };
  const table = await sizesTable(packed);
  const numbers = /\d+(?:\.\d+)?/g;
  const [, written = ''] =
    /<!-- sizes -->\n(.*?)<!-- \/sizes -->/s.exec(readFileSync('README.md', 'utf8')) ?? [];
  // the same words
  expect(written.replaceAll(numbers, 'N')).toBe(table.replaceAll(numbers, 'N'));
  const measured = (table.match(numbers) ?? []).map(Number);
  (written.match(numbers) ?? []).map(Number).forEach((number, index) => {
    expect(Math.abs(number / (measured[index] ?? 0) - 1), table).toBeLessThanOrEqual(0.1);
  });
});
