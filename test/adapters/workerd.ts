// Runs a worker in workerd, the runtime of Cloudflare Workers. Without a bundler, its modules are the built files of
// Waybill as they are: everything that the worker imports, each under the name by which it is imported.

import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import path from 'node:path';

import { runProgram, temporaryDirectory } from '../support/cli.js';
import type { Running } from '../support/cli.js';
import { freePort } from '../support/free-port.js';
import { waitFor } from '../support/wait.js';

const relativeImport = /(?:\bfrom\s*|\bimport\s*\(?\s*)['"](\.[^'"]+)['"]/g;

/** A built file and all files that it imports, relative to dist. */
function filesOf(entry: string, found = new Set<string>()): Set<string> {
  if (found.has(entry)) return found;
  found.add(entry);
  const text = readFileSync(path.join('dist', entry), 'utf8');
  for (const [, specifier = ''] of text.matchAll(relativeImport))
    filesOf(path.posix.join(path.posix.dirname(entry), specifier), found);
  return found;
}

type Binding = { name: string; text: string };
type Served = { url: string; running: Running };

/** Serves a worker that imports one entry point and no other package. */
export function serveWorker(
  program: string,
  worker: string,
  entry: { specifier: string; file: string },
  binding: Binding,
): Promise<Served> {
  const folder = temporaryDirectory();
  const modules = ['worker.mjs', entry.specifier];
  cpSync(worker, path.join(folder, 'worker.mjs'));
  for (const file of filesOf(entry.file)) {
    const name = path.posix.join(path.posix.dirname(entry.specifier), 'dist', file);
    mkdirSync(path.join(folder, path.dirname(name)), { recursive: true });
    cpSync(path.join('dist', file), path.join(folder, name));
    modules.push(name);
  }
  writeFileSync(path.join(folder, entry.specifier), `export * from './dist/${entry.file}';\n`);
  return serveModules(program, folder, modules, binding);
}

/** Serves a worker with all that it imports in one file, as the tools of Cloudflare make it. */
export async function serveBundledWorker(
  program: string,
  worker: string,
  binding: Binding,
): Promise<Served> {
  const folder = temporaryDirectory();
  const { build } = await import('esbuild');
  await build({
    entryPoints: [worker],
    outfile: path.join(folder, 'worker.mjs'),
    bundle: true,
    format: 'esm',
    logLevel: 'silent',
    tsconfigRaw: '{}',
    conditions: ['workerd', 'worker', 'module'],
    external: ['node:*', 'cloudflare:*', 'pg-native'],
    alias: Object.fromEntries(builtinModules.map((name) => [name, `node:${name}`])),
    // pg is CommonJS, and calls require for modules of Node
    banner: {
      js: "import { createRequire as makeRequire } from 'node:module'; const require = makeRequire('/');",
    },
  });
  return serveModules(program, folder, ['worker.mjs'], binding);
}

/** Serves these modules, the first of which is the worker. It may only reach this machine. */
async function serveModules(
  program: string,
  folder: string,
  modules: readonly string[],
  binding: Binding,
): Promise<Served> {
  const port = await freePort();
  const listed = modules.map(
    (name) => `(name = ${JSON.stringify(name)}, esModule = embed ${JSON.stringify(name)})`,
  );
  const config = path.join(folder, 'worker.capnp');
  writeFileSync(
    config,
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .worker), (name = "internet", network = (allow = ["local"]))],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
);
const worker :Workerd.Worker = (
  modules = [${listed.join(', ')}],
  compatibilityDate = "2026-10-01",
  compatibilityFlags = ["nodejs_compat"],
  bindings = [(name = ${JSON.stringify(binding.name)}, text = ${JSON.stringify(binding.text)})],
);
`,
  );
  const running = runProgram(program, ['serve', config], {});
  const url = `http://127.0.0.1:${port}/`;
  await waitFor(
    async () => {
      if (running.process.exitCode !== null) throw new Error(`workerd ended: ${running.stderr}`);
      return fetch(url).then(
        () => true,
        () => false,
      );
    },
    { what: 'workerd' },
  );
  return { url, running };
}
