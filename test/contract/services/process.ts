// A service as a process of its own: started until it answers, killed as a crash would, started again in the same
// folder and on the same port, and gone at the end with everything it wrote.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';

import { waitFor } from '../../support/wait.js';

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

export type ServiceProcessOptions = {
  program: string;
  args: (directory: string) => readonly string[];
  /** Whether it answers; asked again and again after a start. */
  answers: () => Promise<boolean>;
};

export class ServiceProcess {
  readonly directory: string;
  readonly #options: ServiceProcessOptions;
  #child: ChildProcess | undefined;
  #words = '';

  constructor(name: string, options: ServiceProcessOptions) {
    this.directory = mkdtempSync(path.join(os.tmpdir(), `waybill-${name}-`));
    this.#options = options;
  }

  async start(): Promise<void> {
    const { program, args, answers } = this.#options;
    const child = spawn(program, args(this.directory), {
      cwd: this.directory,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child = child;
    this.#words = '';
    // a run that is cut short must not leave it behind
    const kill = (): void => void child.kill('SIGKILL');
    process.once('exit', kill);
    child.once('exit', () => process.removeListener('exit', kill));
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text: string) => (this.#words += text));
    try {
      await waitFor(
        async () => {
          if (child.exitCode !== null) throw new Error(`${program} ended`);
          return answers();
        },
        { what: `${program} to answer`, timeoutMs: 60_000 },
      );
    } catch (error) {
      await this.stop();
      throw new Error(`${(error as Error).message}:\n${this.#words}`, { cause: error });
    }
  }

  async kill(): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.directory, { recursive: true, force: true });
  }
}
