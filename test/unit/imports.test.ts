// Keeps the table of allowed imports between the parts of src: they point down only, so that a part can be
// read knowing nothing of what stands above it. A part that is new to the table fails too, because where it
// stands is a decision.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { expect, test } from 'vitest';

const ground = ['model', 'errors', 'version'];
const edges = ['database', 'transactions', 'destinations', 'telemetry', 'secret-keys'];
const core = ['outbox', 'inbox', 'endpoints', 'events', 'relay', 'subscribe', 'config', 'shards'];

/** Each folder or top-level file of src, and the others it may import. Top to bottom. */
const allowedImports: Record<string, string[]> = {
  index: ['server', ...core, ...edges, ...ground],
  nestjs: [...core, ...edges, ...ground],
  cli: ['dev', 'server', ...core, ...edges, ...ground],
  dev: ['server', ...core, ...edges, ...ground],
  server: [...core, ...edges, ...ground],
  // The parts of one layer do not import each other; an exception is named here, and says why.
  outbox: [...edges, ...ground],
  inbox: [...edges, ...ground],
  endpoints: [...edges, ...ground],
  // Schemas, their documents, and a destination with a function for each event: nothing that needs a database.
  events: ['destinations', ...ground],
  relay: [...edges, ...ground],
  // A subscription is a reader and a pipeline of the relay's, without the rest of it.
  subscribe: ['relay', ...edges, ...ground],
  // The databases of a configuration, by name, and who belongs to which.
  shards: ['database', ...ground],
  // The configuration is what a relay is made from.
  config: ['relay', 'shards', ...edges, ...ground],
  database: ground,
  transactions: ground,
  destinations: ground,
  telemetry: ground,
  'secret-keys': ground,
  // Bad values are refused where they are modelled, with the errors that everybody catches.
  model: ['errors'],
  errors: [],
  version: [],
};

const source = path.resolve('src');

/** The folder of src that a file lies in, or the name of a file at its top. */
function partOf(file: string): string {
  const [first = '', ...rest] = path.relative(source, file).split(path.sep);
  return rest.length > 0 ? first : first.replace(/\.[jt]s$/, '');
}

/** The relative specifiers of static, side-effect, re-exporting and dynamic imports, types included. */
function relativeImports(text: string): string[] {
  const code = text
    .split('\n')
    .filter((line) => !/^\s*(\/\/|\/\*|\*)/.test(line))
    .join('\n');
  const pattern = /(?:\bfrom\s*|\bimport\s*\(?\s*)(['"])(\.[^'"]*)\1/g;
  return [...code.matchAll(pattern)].map((match) => match[2] ?? '');
}

function forbiddenImports(file: string, text: string): string[] {
  const importer = partOf(file);
  const allowed = allowedImports[importer];
  const place = path.relative(source, file);
  if (allowed === undefined) return [`${place}: the table knows no part named ${importer}`];
  return relativeImports(text).flatMap((specifier) => {
    const target = path.resolve(path.dirname(file), specifier);
    if (path.relative(source, target).startsWith('..'))
      return [`${place} leaves src: ${specifier}`];
    const imported = partOf(target);
    if (imported === importer || allowed.includes(imported)) return [];
    return [`${place} may not import ${specifier}`];
  });
}

test('imports between the parts of src point down only', () => {
  const files = readdirSync(source, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => path.join(source, name));
  expect(files.length).toBeGreaterThan(0);
  expect(files.flatMap((file) => forbiddenImports(file, readFileSync(file, 'utf8')))).toEqual([]);
});

test('every folder of src is in the table of allowed imports', () => {
  const folders = readdirSync(source, { withFileTypes: true }).filter((entry) =>
    entry.isDirectory(),
  );
  expect(Object.keys(allowedImports)).toEqual(
    expect.arrayContaining(folders.map(({ name }) => name)),
  );
});

test('a forbidden import is caught in whatever form it is written', () => {
  const file = path.join(source, 'database', 'claim.ts');
  const forbidden = [
    `import { Relay } from '../relay/relay.js';`,
    `import type { Relay } from "../relay/relay.js";`,
    `import {\n  Relay,\n  type RelayOptions,\n} from '../relay/relay.js';`,
    `import '../relay/relay.js';`,
    `export * from '../relay/relay.js';`,
    `const relay = await import('../relay/relay.js');`,
    `import { enqueue } from '../outbox.js';`,
    `import { pool } from '../telemetry/metrics.js';`,
    `import manifest from '../../package.json';`,
  ];
  for (const text of forbidden) expect(forbiddenImports(file, text), text).toHaveLength(1);
});

test('an import from below or beside is let through, and a comment is no import', () => {
  const file = path.join(source, 'relay', 'relay.ts');
  const text = [
    `import { claim } from '../database/claim.js';`,
    `import { WaybillError } from '../errors.js';`,
    `import { settle } from './settler.js';`,
    `import pg from 'pg';`,
    `// import { serve } from '../server/http.js';`,
  ].join('\n');
  expect(forbiddenImports(file, text)).toEqual([]);
});

test('a part that the table does not know is refused', () => {
  const file = path.join(source, 'extras', 'extra.ts');
  expect(forbiddenImports(file, '')).toEqual([expect.stringContaining('no part named extras')]);
});
