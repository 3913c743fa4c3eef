// Checks the imports between the parts of src against the table in ARCHITECTURE.md. Imports point down, so a part can
// be read without the parts above it. A new folder fails until it has a place in the table.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { expect, test } from 'vitest';

const ground = ['core', 'telemetry', 'destinations', 'database'];
// Features hook into the relay and use its parts. The test of import cycles keeps them apart, file by file.
const delivery = ['relay', 'features', 'listing', ...ground];

/** Each part of src, and the parts that it may import; top to bottom. */
const allowedImports: Record<string, string[]> = {
  index: ['server', 'config', 'consumer', 'producer', ...delivery],
  testing: ['config', 'producer', ...delivery],
  nestjs: ['config', 'consumer', 'producer', ...delivery],
  cli: [
    'descriptors',
    'commands',
    'doctor',
    'dev',
    'init',
    'server',
    'config',
    'consumer',
    'producer',
    ...delivery,
  ],
  commands: ['cli', 'doctor', 'config', ...delivery],
  doctor: ['descriptors', 'cli', 'commands', ...delivery],
  dev: ['config', 'producer', ...delivery],
  init: ['database', 'core'],
  server: ['descriptors', 'routes', 'config', ...delivery],
  descriptors: ['commands', 'routes', 'checks', 'doctor', 'server', 'config', ...delivery],
  checks: ['doctor', ...delivery],
  routes: ['server', ...delivery],
  config: ['server', 'producer', ...delivery],
  receiver: ['consumer', 'producer', 'core'],
  consumer: ['producer', ...delivery],
  producer: ['consumer', 'features', ...ground],
  relay: delivery,
  features: ['producer', ...delivery],
  listing: ['features', ...ground],
  database: ['core', 'telemetry'],
  destinations: ['core'],
  telemetry: ['core'],
  core: [],
};

/** Files of a feature that belong to the command line, the HTTP server or the doctor, and its descriptor with its parts. */
const kinds: [RegExp, string][] = [
  [/^(command|job-command|secret-commands|tools|flags|each-shard)$/, 'commands'],
  [/^((job-|message-)?routes|access|app|reads)$/, 'routes'],
  [/^doctor$/, 'checks'],
  [/^(feature|all|event-level|reports|reference)$/, 'descriptors'],
];

const source = path.resolve('src');

/** The folder of src that contains a file, or the name of a file at the top. */
function partOf(file: string): string {
  const [first = '', ...rest] = path.relative(source, file).split(path.sep);
  const name = path.basename(file).replace(/\.[jt]s$/, '');
  if (rest.length === 0) return name;
  if (first === 'doctor' && name === 'command') return 'commands';
  if (first !== 'features') return first;
  return kinds.find(([pattern]) => pattern.test(name))?.[1] ?? 'features';
}

type Import = { specifier: string; typeOnly: boolean };

/** The relative specifiers of static, side-effect, re-exporting and dynamic imports, types included. */
function relativeImports(text: string): Import[] {
  const code = text
    .split('\n')
    .filter((line) => !/^\s*(\/\/|\/\*|\*)/.test(line))
    .join('\n');
  const pattern =
    /(?:\b(?:import|export)\s+(type\s)?[^;'"]*?\bfrom\s*|\bimport\s*\(?\s*)(['"])(\.[^'"]*)\2/g;
  return [...code.matchAll(pattern)].map((match) => ({
    specifier: match[3] ?? '',
    typeOnly: match[1] !== undefined,
  }));
}

function forbiddenImports(file: string, text: string): string[] {
  const importer = partOf(file);
  const allowed = allowedImports[importer];
  const place = path.relative(source, file);
  if (allowed === undefined) return [`${place}: the table knows no part named ${importer}`];
  return relativeImports(text).flatMap(({ specifier }) => {
    const target = path.resolve(path.dirname(file), specifier);
    if (path.relative(source, target).startsWith('..'))
      return [`${place} leaves src: ${specifier}`];
    const imported = partOf(target);
    if (imported === importer || allowed.includes(imported)) return [];
    return [`${place} may not import ${specifier}`];
  });
}

function sourceFiles(): string[] {
  return readdirSync(source, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => path.join(source, name));
}

/** The first import cycle, as a list of files that ends with its first one; type imports do not count. */
function findCycle(imports: ReadonlyMap<string, readonly string[]>): string[] {
  const done = new Set<string>();
  const walk = (file: string, above: readonly string[]): string[] => {
    if (above.includes(file)) return [...above.slice(above.indexOf(file)), file];
    if (done.has(file)) return [];
    for (const next of imports.get(file) ?? []) {
      const cycle = walk(next, [...above, file]);
      if (cycle.length > 0) return cycle;
    }
    done.add(file);
    return [];
  };
  for (const file of imports.keys()) {
    const cycle = walk(file, []);
    if (cycle.length > 0) return cycle;
  }
  return [];
}

test('imports between the parts of src point down only', () => {
  const files = sourceFiles();
  expect(files.length).toBeGreaterThan(0);
  expect(files.flatMap((file) => forbiddenImports(file, readFileSync(file, 'utf8')))).toEqual([]);
});

test('no files of src import each other in a cycle', () => {
  const targets = (file: string) =>
    relativeImports(readFileSync(file, 'utf8'))
      .filter(({ typeOnly }) => !typeOnly)
      .map(({ specifier }) => path.resolve(path.dirname(file), specifier).replace(/\.js$/, '.ts'));
  const imports = new Map(sourceFiles().map((file) => [file, targets(file)]));
  expect(findCycle(imports).map((file) => path.relative(source, file))).toEqual([]);
});

test('a cycle of imports is found', () => {
  const imports = { a: ['b'], b: ['c', 'd'], c: [], d: ['b'] };
  expect(findCycle(new Map(Object.entries(imports)))).toEqual(['b', 'd', 'b']);
});

test('every folder of src is in the table of allowed imports', () => {
  const folders = readdirSync(source, { withFileTypes: true }).filter((entry) =>
    entry.isDirectory(),
  );
  expect(Object.keys(allowedImports)).toEqual(
    expect.arrayContaining(folders.map(({ name }) => name)),
  );
});

test('a forbidden import is found in every syntax', () => {
  const file = path.join(source, 'database', 'claim.ts');
  const forbidden = [
    `import { Relay } from '../relay/relay.js';`,
    `import type { Relay } from "../relay/relay.js";`,
    `import {\n  Relay,\n  type RelayOptions,\n} from '../relay/relay.js';`,
    `import '../relay/relay.js';`,
    `export * from '../relay/relay.js';`,
    `const relay = await import('../relay/relay.js');`,
    `import { enqueue } from '../producer/outbox.js';`,
    `import { webhook } from '../destinations/webhook/webhook.js';`,
    `import manifest from '../../package.json';`,
  ];
  for (const text of forbidden) expect(forbiddenImports(file, text), text).toHaveLength(1);
});

test('an import of a lower or equal part is allowed, and a comment is not an import', () => {
  const file = path.join(source, 'relay', 'relay.ts');
  const text = [
    `import { claim } from '../database/claim.js';`,
    `import { WaybillError } from '../core/errors.js';`,
    `import { settle } from './delivery/settler.js';`,
    `import pg from 'pg';`,
    `// import { serve } from '../server/http.js';`,
  ].join('\n');
  expect(forbiddenImports(file, text)).toEqual([]);
});
