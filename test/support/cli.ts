// Runs the built command line program in its own process, as users do. `npm test` builds before it runs the tests.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { onTestFinished } from 'vitest';

import { urlAs } from './logins.js';
import type { Login } from './logins.js';
import type { TestDatabase } from './postgres.js';
import { waitFor } from './wait.js';

const program = path.resolve('dist', 'cli', 'main.js');

export type Finished = { code: number | null; stdout: string; stderr: string };

export type Running = {
  readonly process: ChildProcess;
  readonly stdout: string;
  readonly stderr: string;
  /** Waits until the output contains this text. */
  says(words: string | RegExp, timeoutMs?: number): Promise<void>;
  /** Waits until the process ends; one that does not end by itself is killed and fails the test. */
  ended(timeoutMs?: number): Promise<Finished>;
};

export type RunOptions = {
  /** Variables in addition to the few that the program needs. The tests' own environment is not passed on. */
  environment?: Record<string, string>;
  input?: string;
  cwd?: string;
};

/** Runs Node with these arguments; the process is killed when the test ends, at the latest. */
export function runNode(args: readonly string[], options: RunOptions = {}): Running {
  return runProgram(process.execPath, args, options);
}

/** Runs any program in the same way. */
export function runProgram(
  file: string,
  args: readonly string[],
  options: RunOptions = {},
): Running {
  const { PATH = '', HOME = '' } = process.env;
  const child = spawn(file, args, {
    cwd: options.cwd ?? os.tmpdir(),
    env: { PATH, HOME, ...options.environment },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const kill = () => void child.kill('SIGKILL');
  onTestFinished(kill);
  const output = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (output.stderr += text));
  child.stdin.on('error', () => undefined);
  child.stdin.end(options.input ?? '');
  const closed = once(child, 'close');
  return {
    process: child,
    get stdout() {
      return output.stdout;
    },
    get stderr() {
      return output.stderr;
    },
    async says(words, timeoutMs = 40_000) {
      const fits = (text: string) =>
        typeof words === 'string' ? text.includes(words) : words.test(text);
      await waitFor(() => fits(output.stdout) || fits(output.stderr) || child.exitCode !== null, {
        what: `${String(words)} in:\n${output.stdout}\n${output.stderr}`,
        timeoutMs,
      });
      if (!fits(output.stdout) && !fits(output.stderr))
        throw new Error(`ended without ${String(words)}:\n${output.stdout}\n${output.stderr}`);
    },
    async ended(timeoutMs = 40_000) {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<never>((_resolve, reject) => {
        timer = setTimeout(() => {
          kill();
          reject(
            new Error(`still running after ${timeoutMs} ms:\n${output.stdout}\n${output.stderr}`),
          );
        }, timeoutMs);
      });
      await Promise.race([closed, late]);
      clearTimeout(timer);
      return { code: child.exitCode, ...output };
    },
  };
}

/** Starts the command line program. */
export function startCli(args: readonly string[], options: RunOptions = {}): Running {
  if (!existsSync(program)) throw new Error('the program is not built: run npm run build first');
  return runNode([program, ...args], options);
}

/** Runs one command to its end. */
export async function cli(args: readonly string[], options: RunOptions = {}): Promise<Finished> {
  return startCli(args, options).ended();
}

/** The environment with which the program finds the test's database. */
export function environmentOf(db: TestDatabase, login?: Login): Record<string, string> {
  const url = login === undefined ? db.url : urlAs(db.url, login);
  return { DATABASE_URL: url, WAYBILL_SCHEMA: db.schema };
}

/** Runs a command on the test's own database. */
export async function cliOn(
  db: TestDatabase,
  args: readonly string[],
  input?: string,
): Promise<Finished> {
  return cli(args, { environment: environmentOf(db), ...(input !== undefined && { input }) });
}

/** Runs commands on the test's database with the rights of this login only. */
export function cliAs(login: Login): typeof cliOn {
  return (db, args, input) =>
    cli(args, { environment: environmentOf(db, login), ...(input !== undefined && { input }) });
}

/** What a command printed as JSON. */
export function json({ stdout, stderr }: Finished): unknown {
  try {
    return JSON.parse(stdout);
  } catch {
    throw new Error(`no JSON: ${stdout}\n${stderr}`);
  }
}

export function temporaryDirectory(): string {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-test-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** The address under which a script in another directory imports the built package. */
export const packageUrl = pathToFileURL(path.resolve('dist', 'index.js')).href;

/** The address of the entry point of a destination with a client library. */
export const destinationUrl = (name: string): string =>
  new URL(`destinations/${name}/index.js`, packageUrl).href;

const withLibraries = ['kafka', 'nats', 'rabbitmq', 'redis', 'sqs'];
const entries = JSON.stringify([packageUrl, ...withLibraries.map(destinationUrl)]);

/** A line of a script: `waybill` has everything that the package exports, and every destination. */
export const importAll = `const waybill = Object.assign({}, ...(await Promise.all(${entries}.map((url) => import(url)))));`;

/** Writes a configuration file whose body is the object given as source text, and returns its path. */
export function writeConfig(body: string, name = 'waybill.config.mjs'): string {
  const file = path.join(temporaryDirectory(), name);
  writeFileSync(
    file,
    `import { batchHandler, defineConfig, defineShards, handler, reject, retry, webhook } from ${JSON.stringify(packageUrl)};\n` +
      `void [batchHandler, defineShards, handler, reject, retry, webhook];\nexport default defineConfig(${body});\n`,
  );
  return file;
}
