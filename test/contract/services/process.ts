// A service as a separate process: started until it answers, killed as by a crash, and restarted in the same folder on
// the same port. At the end it is removed with everything it wrote.

import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import os from 'node:os';
import path from 'node:path';

import { waitFor } from '../../support/wait.js';

/** Whether a process listens on the port: enough for a service that listens only when it is ready. */
export async function isListening(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

export type ServiceProcessOptions = {
  program: string;
  /** The environment, instead of the tests' own, in addition to the path. */
  environment?: (directory: string) => Record<string, string>;
  args: (directory: string) => readonly string[];
  /** Whether it answers; polled after a start. */
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
    const { program, args, environment, answers } = this.#options;
    const { PATH = '' } = process.env;
    const child = spawn(program, args(this.directory), {
      cwd: this.directory,
      // its own process group, so that its children end with it
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
      ...(environment && { env: { PATH, ...environment(this.directory) } }),
    });
    this.#child = child;
    this.#words = '';
    // an interrupted run must not leave it behind
    const kill = (): void => killGroup(child);
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
    killGroup(child);
    await ended;
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

function killGroup({ pid }: ChildProcess): void {
  if (pid !== undefined) process.kill(-pid, 'SIGKILL');
}
