// One `postgres` process: started in its own session, awaited until it is ready, and stopped on request. A small
// watcher process stops the server however this process ends: it waits for the end of a pipe that only this process
// holds open, so even SIGKILL stops the server.

import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { Socket } from 'node:net';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

import { serverEnvironment, type ServerAccount } from './postgres-binaries.js';
import { refusedAccount } from './windows.js';

const readyTimeoutMs = 30_000;
const fastStopTimeoutMs = 20_000;
const immediateStopTimeoutMs = 10_000;
const pollMs = 10;

/** How a server stops: `fast` ends sessions and writes a checkpoint, `immediate` is a crash with recovery. */
export type StopMode = 'fast' | 'immediate';

export type ServerProcessOptions = {
  binDirectory: string;
  dataDirectory: string;
  /** A private directory; the watcher removes it if this process dies. */
  workDirectory: string;
  logFile: string;
  account: ServerAccount;
  port: number;
  settings: Record<string, string>;
  /** Whether the data outlive the server, so that it needs an orderly stop if this process dies. */
  keepsData: boolean;
};

/** The port was taken before the server could bind it. */
export class PortTakenError extends Error {}

/** A running server's process. */
export type ServerProcess = {
  processId: number;
  hasEnded(): boolean;
  stop(mode: StopMode): Promise<void>;
};

/** Starts a server and waits until it accepts connections. */
export async function startServerProcess(options: ServerProcessOptions): Promise<ServerProcess> {
  const settings = {
    listen_addresses: '127.0.0.1',
    port: String(options.port),
    // Connections come over loopback only: socket paths are limited to about 100 bytes, which the
    // temporary directories of macOS exceed.
    unix_socket_directories: '',
    ...options.settings,
  };
  const log = openSync(options.logFile, 'a');
  const logStart = readFileSync(options.logFile).length;
  const child = spawn(
    path.join(options.binDirectory, 'postgres'),
    [
      '-D',
      options.dataDirectory,
      ...Object.entries(settings).flatMap(([key, value]) => ['-c', `${key}=${value}`]),
    ],
    {
      ...options.account,
      cwd: options.workDirectory,
      env: serverEnvironment(options.workDirectory),
      // Its own session: Ctrl-C in the terminal must not stop the server before its clients have stopped.
      detached: true,
      stdio: ['ignore', log, log],
    },
  );
  closeSync(log);
  const gone = new Promise<void>((resolve) => {
    child.once('exit', () => resolve());
    child.once('error', () => resolve());
  });
  await Promise.race([once(child, 'spawn'), gone]);
  const processId = child.pid;
  if (processId === undefined)
    throw new Error(`${options.binDirectory}/postgres could not be started.`);

  const watcher = watchOver(processId, options);
  const forget = stopAtExit(processId);
  void gone.then(() => {
    watcher?.kill('SIGKILL');
    forget();
  });
  const running: ServerProcess = {
    processId,
    hasEnded: () => hasEnded(child),
    stop: (mode) => stopServer(child, gone, mode),
  };

  const deadline = Date.now() + readyTimeoutMs;
  while (!isReady(options.dataDirectory, processId)) {
    const ended = hasEnded(child);
    if (ended || Date.now() > deadline) {
      await running.stop('immediate');
      const words = readFileSync(options.logFile).subarray(logStart).toString('utf8');
      const refused = refusedAccount(words);
      if (refused !== undefined) throw new Error(refused);
      if (/could not bind .*address/i.test(words)) throw new PortTakenError(tail(words));
      throw new Error(
        `PostgreSQL ${ended ? 'ended while starting' : `was not ready after ${readyTimeoutMs} ms`}. The end of its log:\n${tail(words)}`,
      );
    }
    await delay(pollMs);
  }
  // The server must not keep this Node process alive.
  child.unref();
  return running;
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

function tail(words: string): string {
  return words.trimEnd().split('\n').slice(-15).join('\n');
}

/**
 * The server writes its process id on the first line of postmaster.pid and its state on the eighth. A connection to
 * the port could be answered by another server that took it first.
 */
function isReady(dataDirectory: string, processId: number): boolean {
  try {
    const lines = readFileSync(path.join(dataDirectory, 'postmaster.pid'), 'utf8').split('\n');
    const state = lines[7]?.trim();
    // a standby answers queries too
    return lines[0]?.trim() === String(processId) && (state === 'ready' || state === 'standby');
  } catch {
    return false;
  }
}

async function stopServer(child: ChildProcess, gone: Promise<void>, mode: StopMode): Promise<void> {
  const steps: [NodeJS.Signals, number][] = [
    ['SIGQUIT', immediateStopTimeoutMs],
    ['SIGKILL', immediateStopTimeoutMs],
  ];
  if (mode === 'fast') steps.unshift(['SIGINT', fastStopTimeoutMs]);
  child.ref();
  for (const [signal, timeoutMs] of steps) {
    if (hasEnded(child)) return;
    child.kill(signal);
    const timer = new AbortController();
    await Promise.race([
      gone.finally(() => timer.abort()),
      delay(timeoutMs, undefined, { signal: timer.signal }).catch(() => undefined),
    ]);
  }
}

/** Starts the watcher. Windows has no /bin/sh: there, only an orderly exit of this process stops the server. */
function watchOver(processId: number, options: ServerProcessOptions): ChildProcess | undefined {
  if (process.platform === 'win32') return undefined;
  // The lock file disappears before the process table entry, where a dead server stays until init reaps it.
  const script =
    'read -r _; kill -s "$1" "$2" 2>/dev/null; tries=0; ' +
    'while [ -e "$4/postmaster.pid" ] && kill -0 "$2" 2>/dev/null && [ "$tries" -lt 200 ]; ' +
    'do sleep 0.1; tries=$((tries + 1)); done; rm -rf "$3"';
  const signal = options.keepsData ? 'INT' : 'QUIT';
  const name = 'waybill-postgres-watcher';
  const { workDirectory, dataDirectory } = options;
  const watcher = spawn(
    '/bin/sh',
    ['-c', script, name, signal, String(processId), workDirectory, dataDirectory],
    { ...options.account, cwd: '/', detached: true, stdio: ['pipe', 'ignore', 'ignore'] },
  );
  // If the watcher fails, only this guarantee is lost.
  watcher.on('error', () => undefined);
  watcher.stdin?.on('error', () => undefined);
  watcher.unref();
  if (watcher.stdin instanceof Socket) watcher.stdin.unref();
  return watcher;
}

const runningProcessIds = new Set<number>();

/** Signals the server when this process exits: sooner than the watcher, and also on Windows. */
function stopAtExit(processId: number): () => void {
  if (runningProcessIds.size === 0) process.on('exit', stopAll);
  runningProcessIds.add(processId);
  return () => {
    runningProcessIds.delete(processId);
    if (runningProcessIds.size === 0) process.off('exit', stopAll);
  };
}

function stopAll(): void {
  for (const processId of runningProcessIds) {
    try {
      process.kill(processId, 'SIGINT');
    } catch {
      // It is gone already.
    }
  }
}
