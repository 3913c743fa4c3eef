// The entry points stay small: an application that only writes messages loads no relay, server or command line, that
// of a destination loads no client library, which need not be installed, and a command that only reads loads no relay.

import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

type Manifest = {
  exports: Record<string, { default: string }>;
  peerDependencies: Record<string, string>;
};

const manifest = JSON.parse(readFileSync('package.json', 'utf8')) as Manifest;

/** The entry points of destinations, with a destination that each makes, and the package that it asks for. */
const destinations: [name: string, made: string, library: string][] = [
  ['kafka', `kafka({ brokers: ['127.0.0.1:9092'], topic: '{topic}' })`, '@platformatic/kafka'],
  [
    'nats',
    `nats({ servers: 'nats://127.0.0.1:4222', subject: '{topic}' })`,
    '@nats-io/transport-node',
  ],
  [
    'rabbitmq',
    `rabbitmq({ url: 'amqp://127.0.0.1', exchange: 'shop', routingKey: '{topic}' })`,
    'rabbitmq-client',
  ],
  ['redis', `redis({ url: 'redis://127.0.0.1:6379' })`, 'redis'],
  [
    'sqs',
    `sqs({ queueUrl: 'https://sqs.eu-west-1.amazonaws.com/123456789012/orders' })`,
    '@aws-sdk/client-sqs',
  ],
];

/** Prints the address of each module that is loaded; the loader's own thread writes it. */
const hooks = `export async function resolve(name, context, next) {
  const found = await next(name, context);
  process._rawDebug(found.url);
  return found;
}`;

async function runScript(
  script: string,
  cwd?: string,
): Promise<{ stdout: string; stderr: string }> {
  const parameters = ['--input-type=module', '--eval', script];
  return promisify(execFile)(process.execPath, parameters, { cwd });
}

/** The address of the file of an entry point, such as `./producer`. */
function fileOf(entry: string): string {
  return pathToFileURL(path.resolve(manifest.exports[entry]?.default ?? 'missing')).href;
}

type Loaded = { modules: string[]; packages: string[] };

/** What an entry point loads. */
const loadedBy = (entry: string): Promise<Loaded> =>
  loadedByScript(`await import(${JSON.stringify(fileOf(entry))});`);

/** The modules of the package that a script loads, without their folder, and the packages that it loads. */
async function loadedByScript(script: string): Promise<Loaded> {
  const { stderr } = await runScript(`import { register } from 'node:module';
    register('data:text/javascript,${encodeURIComponent(hooks)}');
    ${script}`);
  const urls = [...new Set(stderr.split('\n').filter((line) => line.startsWith('file:')))];
  const own = pathToFileURL(path.resolve('dist')).href;
  return {
    modules: urls.filter((url) => url.startsWith(own)).map((url) => url.slice(own.length + 1)),
    packages: [
      ...new Set(
        urls.flatMap((url) => /\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url)?.[1] ?? []),
      ),
    ],
  };
}

const operators = /^(relay|server|cli|dev|database|doctor|listing|features)\//;

describe('waybill/producer', () => {
  it('loads 45 modules at most, of its own side of the package, and no other package', async () => {
    const { modules, packages } = await loadedBy('./producer');
    expect(packages).toEqual([]);
    expect(modules.length).toBeGreaterThan(20);
    expect(modules.length).toBeLessThanOrEqual(45);
    const foreign = modules.filter((name) => operators.test(name));
    expect(foreign).toEqual(['features/shards/shard-map.js']);
  });

  it('takes less than 40 % of the processor time that the whole package takes to import', async () => {
    // in one process, so that both meet the same machine; the rest of the package comes on top of the producer
    const script = `const now = () => { const { user, system } = process.cpuUsage(); return user + system; };
      const start = now();
      await import(${JSON.stringify(fileOf('./producer'))});
      const small = now();
      await import(${JSON.stringify(fileOf('.'))});
      console.log((small - start) / (now() - start));`;
    const shares: number[] = [];
    for (let run = 0; run < 3; run++) shares.push(Number((await runScript(script)).stdout));
    expect(Math.min(...shares)).toBeGreaterThan(0);
    expect(Math.min(...shares)).toBeLessThan(0.4);
  });
});

describe('waybill/receiver', () => {
  it('loads 45 modules at most, no relay, and no other package', async () => {
    const { modules, packages } = await loadedBy('./receiver');
    expect(packages).toEqual([]);
    expect(modules.length).toBeLessThanOrEqual(45);
    expect(modules.filter((name) => operators.test(name))).toEqual([]);
  });
});

/** A project with this package, as published, and no other. */
const project = mkdtempSync(path.join(os.tmpdir(), 'waybill-entry-'));
beforeAll(() => {
  const installed = path.join(project, 'node_modules/waybill');
  mkdirSync(installed, { recursive: true });
  cpSync('package.json', path.join(installed, 'package.json'));
  cpSync('dist', path.join(installed, 'dist'), { recursive: true });
});
afterAll(() => rmSync(project, { recursive: true }));

describe.each(destinations)('waybill/%s', (name, made, library) => {
  it('loads 30 modules at most, and no other package', async () => {
    const { modules, packages } = await loadedBy(`./${name}`);
    expect(packages).toEqual([]);
    expect(modules.length).toBeLessThanOrEqual(30);
    expect(modules.filter((module) => operators.test(module))).toEqual([]);
  });

  it('makes a destination without its client library, and names it when a relay opens it', async () => {
    expect(Object.keys(manifest.peerDependencies)).toContain(library);
    const script = `import { ${name} } from 'waybill/${name}';
      const made = ${made};
      console.log(typeof made.deliver, typeof made.deliverBatch);
      await made.open().catch((error) => console.log(error.code, error.message));`;
    const { stdout } = await runScript(script, project);
    expect(stdout).toMatch(/function/);
    expect(stdout).toContain(`npm install ${library}`);
  });
});

it('waybill loads its relay and the PostgreSQL driver, and no destination that needs a client library', async () => {
  const { modules, packages } = await loadedBy('.');
  expect(packages).toContain('pg');
  expect(modules).toContain('relay/relay.js');
  // a bundler would look for the library
  const folders = destinations.map(([name]) => `destinations/${name}/`);
  expect(modules.filter((name) => folders.some((folder) => name.startsWith(folder)))).toEqual([]);
});

it('waybill status loads 70 modules at most, and neither relay nor server', async () => {
  const { modules } = await loadedByScript(`process.argv = ['node', 'waybill', 'status'];
    process.env.DATABASE_URL = 'postgresql://127.0.0.1:1/none';
    process.on('exit', () => (process.exitCode = 0));
    await import(${JSON.stringify(pathToFileURL(path.resolve('dist/cli/main.js')).href)});`);
  expect(modules).toContain('cli/status.js');
  expect(modules.length).toBeLessThanOrEqual(70);
  expect(modules.filter((name) => /^(relay|server|destinations|config)\b/.test(name))).toEqual([]);
});

it('every entry point of the package is in the table of the documents', () => {
  const text = readFileSync('docs/reference/configuration.md', 'utf8');
  for (const entry of Object.keys(manifest.exports))
    expect(text).toContain(`| \`waybill${entry.slice(1)}\` |`);
});
