// Processes of a run. Every contender works in its own process under the same Node, and talks to the bench over an
// IPC channel: { type, … }. The peers need a newer Node than the project, and not every contributor needs the
// download. So both are installed when a bench first needs them.

import { spawn, spawnSync } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { progress } from './report.js';

const benchDirectory = fileURLToPath(new URL('..', import.meta.url));
export const rootDirectory = path.dirname(path.resolve(benchDirectory));
const keptOutput = 4000;

export type PeerModule = 'graphile-worker' | 'pg-boss';

/** Null when the peers can run, otherwise the reason why they are left out. */
export function preparePeers(install: boolean): string | null {
  const installed = () =>
    ['graphile-worker', 'pg-boss', 'bullmq', '@dbos-inc/dbos-sdk'].every((name) =>
      existsSync(path.join(benchDirectory, 'node_modules', name)),
    );
  if (!installed()) {
    if (!install) return 'they are not installed: npm ci --prefix bench';
    progress('Installing the peers into bench/node_modules, once …');
    const { status } = spawnSync('npm', ['ci', '--prefix', benchDirectory], {
      stdio: ['ignore', 2, 2],
    });
    if (status !== 0) return `npm ci --prefix bench ended with ${status}`;
  }
  const [major = 0] = nodeVersion().split('.').map(Number);
  return major >= 22 ? null : `they need Node 22 and this is ${nodeVersion()}`;
}

/** The Node of all contenders: the one in bench/node_modules, or else the current one. */
export function nodeBinary(): string {
  const packaged = path.join(
    benchDirectory,
    'node_modules',
    `node-${process.platform}-${process.arch}`,
    'bin',
    'node',
  );
  return existsSync(packaged) ? packaged : process.execPath;
}

export function nodeVersion(): string {
  return spawnSync(nodeBinary(), ['-p', 'process.versions.node'], {
    encoding: 'utf8',
  }).stdout.trim();
}

export type Report = { type: string } & Record<string, unknown>;

export class Worker {
  readonly #child: ChildProcess;
  readonly #name: string;
  readonly #reports: Report[] = [];
  readonly #waiting = new Map<string, (report: Report) => void>();
  #output = '';
  #unendedLine = '';
  /** Lines of the log that are warnings or errors; failed deliveries are not counted. */
  warnings = 0;

  /** Starts `file` (from the root of the project) under the benches' Node. */
  constructor(file: string, parameters: readonly string[], environment: Record<string, string>) {
    this.#name = [file, ...parameters].join(' ');
    this.#child = spawn(nodeBinary(), [path.join(rootDirectory, file), ...parameters], {
      cwd: rootDirectory,
      env: { ...process.env, NODE_OPTIONS: '', ...environment },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    const keep = (chunk: Buffer): void => {
      this.#output = (this.#output + chunk.toString('utf8')).slice(-keptOutput);
    };
    this.#child.stdout?.on('data', keep);
    this.#child.stderr?.on('data', (chunk: Buffer) => {
      keep(chunk);
      const lines = (this.#unendedLine + chunk.toString('utf8')).split('\n');
      this.#unendedLine = lines.pop() ?? '';
      this.warnings += lines.filter(isWarning).length;
    });
    this.#child.on('message', (report: Report) => {
      const take = this.#waiting.get(report.type);
      this.#waiting.delete(report.type);
      if (take === undefined) this.#reports.push(report);
      else take(report);
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  send(report: Report): void {
    this.#child.send(report);
  }

  /** The next report of this type, which may have arrived already. */
  async next<T>(type: string, timeoutMs = 600_000): Promise<T> {
    const index = this.#reports.findIndex((report) => report.type === type);
    if (index >= 0) return this.#reports.splice(index, 1)[0] as T;
    let timer: NodeJS.Timeout | undefined;
    let onExit: (() => void) | undefined;
    try {
      return await new Promise<T>((resolve, reject) => {
        const fail = (why: string): void =>
          reject(new Error(`${this.#name} ${why}. Its last words:\n${this.#output}`));
        onExit = () => fail(`ended before it reported ${type}`);
        if (this.#child.exitCode !== null || this.#child.signalCode !== null) return onExit();
        this.#waiting.set(type, (report) => resolve(report as T));
        this.#child.once('close', onExit);
        timer = setTimeout(() => fail(`did not report ${type} in ${timeoutMs} ms`), timeoutMs);
      });
    } finally {
      clearTimeout(timer);
      if (onExit !== undefined) this.#child.off('close', onExit);
      this.#waiting.delete(type);
    }
  }

  async ask<T>(question: Report, answerType: string, timeoutMs?: number): Promise<T> {
    const answer = this.next<T>(answerType, timeoutMs);
    this.send(question);
    return answer;
  }

  /** Asks the process to stop; kills it if it does not. */
  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const closed = once(this.#child, 'close');
    this.#child.kill('SIGTERM');
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), 10_000);
    await closed;
    clearTimeout(timer);
  }
}

function isWarning(line: string): boolean {
  return /"level":[456]0/.test(line) && !line.includes('"msg":"delivery_failed"');
}

/** Runs a process to its end and returns its only report. */
export async function runToEnd<T>(
  file: string,
  parameters: readonly string[],
  environment: Record<string, string>,
): Promise<T> {
  const worker = new Worker(file, parameters, environment);
  try {
    return await worker.next<T>('done');
  } finally {
    await worker.stop();
  }
}

/** The login of relays, which has only the relay role; bench/waybill/contender.mjs creates it. */
export function relayUrl(url: string): string {
  return Object.assign(new URL(url), { username: 'bench_relay' }).href;
}

/** A relay in its own process, started the way users start it. */
export function startRelay(
  config: string,
  url: string,
  environment: Record<string, string> = {},
): Worker {
  return new Worker('dist/cli/main.js', ['start', '--config', `bench/waybill/${config}`], {
    ...environment,
    DATABASE_URL: relayUrl(url),
  });
}
