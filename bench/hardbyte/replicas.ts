// The adapter processes of a cell, and the samples that they print. A replica that ends without being asked fails the
// cell, as in the harness.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline';

import { nodeBinary, rootDirectory } from '../harness/processes.js';
import { pause } from '../harness/rounds.js';

export type Sample = {
  phase: string;
  atMs: number;
  instance: number;
  metric: string;
  value: number;
  seconds: number;
};

type Line = { kind: string; t: string; metric: string; value: number; window_s: number };

const descriptorTimeoutMs = 60_000;
const keptOutput = 4000;

export class Replicas {
  readonly samples: Sample[] = [];
  /** The phase that samples belong to. */
  phase = '';
  /** Why the cell fails: what ended although it should run, or did not end when asked. */
  readonly failures: string[] = [];
  readonly #environment: Record<string, string>;
  readonly #running = new Map<number, ChildProcess>();
  #output = '';

  constructor(environment: Record<string, string>) {
    this.#environment = environment;
  }

  async start(instance: number): Promise<void> {
    if (this.#running.has(instance)) return;
    const child = spawn(nodeBinary(), [path.join(rootDirectory, 'bench/hardbyte/adapter.mjs')], {
      env: {
        ...process.env,
        NODE_OPTIONS: '',
        ...this.#environment,
        BENCH_INSTANCE_ID: String(instance),
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#running.set(instance, child);
    child.stderr.on('data', (chunk: Buffer) => {
      this.#output = (this.#output + chunk.toString('utf8')).slice(-keptOutput);
    });
    const startup = { described: false };
    createInterface(child.stdout).on('line', (text) => {
      const line = JSON.parse(text) as Line;
      if (line.kind === 'descriptor') startup.described = true;
      else this.#record(instance, line);
    });
    child.once('close', (code, signal) => {
      if (this.#running.get(instance) !== child) return;
      this.#running.delete(instance);
      this.failures.push(
        `replica ${instance} ended with ${signal ?? code} in ${this.phase}: ${this.#output}`,
      );
    });
    const deadlineMs = performance.now() + descriptorTimeoutMs;
    while (!startup.described && this.#running.get(instance) === child) {
      if (performance.now() > deadlineMs)
        throw new Error(`replica ${instance} printed no descriptor: ${this.#output}`);
      await pause(20);
    }
  }

  async kill(instance: number): Promise<void> {
    await this.#end(instance, 'SIGKILL');
  }

  /** Ends all replicas with SIGTERM; each must end with code 0 within the grace period. */
  async stopAll(graceMs: number): Promise<void> {
    await Promise.all(
      [...this.#running.keys()].map(async (instance) => {
        const { code, late } = await this.#end(instance, 'SIGTERM', graceMs);
        if (late || code !== 0)
          this.failures.push(
            `replica ${instance} ${late ? `did not end within ${graceMs} ms` : `ended with ${code}`}`,
          );
      }),
    );
  }

  async #end(
    instance: number,
    signal: NodeJS.Signals,
    graceMs = 5000,
  ): Promise<{ code: number | null; late: boolean }> {
    const child = this.#running.get(instance);
    if (child === undefined) return { code: 0, late: false };
    this.#running.delete(instance);
    const closed = new Promise<number | null>((resolve) => child.once('close', resolve));
    child.kill(signal);
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      child.kill('SIGKILL');
    }, graceMs);
    const code = await closed;
    clearTimeout(timer);
    return { code, late };
  }

  #record(instance: number, { t, metric, value, window_s: seconds }: Line): void {
    this.samples.push({ phase: this.phase, atMs: Date.parse(t), instance, metric, value, seconds });
  }
}
