// A server as a process of its own: in a folder of its own, on ports that were free, gone when the tests are gone.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';

import { waitFor } from '../../support/wait.js';

export const host = '127.0.0.1';
const readyMs = 50_000;

/** The first of these programs that exists, or the one that the variable names. */
export function findProgram(variable: string, usual: readonly string[]): string | undefined {
  const named = process.env[variable];
  return (named === undefined ? usual : [named]).find((program) => existsSync(program));
}

export function makeFolder(name: string): string {
  return mkdtempSync(path.join(os.tmpdir(), `waybill-${name}-`));
}

export function removeFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true, maxRetries: 10 });
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, host);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

export type ServerProcess = {
  /** kill -9, with all that it started. */
  kill(): Promise<void>;
};

/** Starts it, and waits until somebody listens on the port. */
export async function startProcess(
  program: string,
  args: readonly string[],
  port: number,
  settings: { cwd: string; environment?: Record<string, string> },
): Promise<ServerProcess> {
  const { PATH = '', TMPDIR } = process.env;
  const child = spawn(program, args, {
    cwd: settings.cwd,
    env: { PATH, ...(TMPDIR !== undefined && { TMPDIR }), ...settings.environment },
    // a group of its own, so that all of it can be ended
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let words = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (words = (words + text).slice(-4000)));
  const ended = once(child, 'exit');
  const killGroup = (): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    } catch {
      // it is gone already
    }
  };
  process.on('exit', killGroup);
  const running = {
    async kill() {
      killGroup();
      await ended;
      process.off('exit', killGroup);
    },
  };
  try {
    await waitFor(
      () => {
        if (child.exitCode !== null) throw new Error(`${program} ended:\n${words}`);
        return isListening(port);
      },
      { what: `${program} to listen on ${port}`, timeoutMs: readyMs },
    );
    return running;
  } catch (error) {
    await running.kill();
    throw new Error(`${(error as Error).message}\n${words}`, { cause: error });
  }
}

async function isListening(port: number): Promise<boolean> {
  const socket = connect(port, host);
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
