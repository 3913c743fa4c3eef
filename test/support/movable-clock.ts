// A PostgreSQL whose clock can be moved while it runs: it is started with the library of clock-offset.c, which adds an
// offset from a file to every time. Without a C compiler these tests are skipped with a message; on CI that is an error.

import { execFileSync, spawnSync } from 'node:child_process';
import {
  chmodSync,
  closeSync,
  mkdtempSync,
  openSync,
  readlinkSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

import { startPostgres } from '../../src/dev/embedded-postgres.js';
import type { PostgresServer } from '../../src/dev/embedded-postgres.js';

/** The C compiler, or undefined when the machine has none, or is not Linux. */
export function findCompiler(): string | undefined {
  const compiler = process.env['WAYBILL_TEST_CC'] ?? 'cc';
  if (
    process.platform === 'linux' &&
    spawnSync(compiler, ['--version'], { stdio: 'ignore' }).status === 0
  )
    return compiler;
  const reason =
    'they need Linux and a C compiler: install one (Debian: gcc, libc6-dev) or set WAYBILL_TEST_CC';
  if (process.env['CI'])
    throw new Error(`Tests of a clock that is corrected cannot run: ${reason}.`);
  console.warn(`Tests of a clock that is corrected are left out: ${reason}.`);
  return undefined;
}

export type MovableClock = {
  readonly server: PostgresServer;
  /** Sets how far the server's clock is ahead of this machine's. */
  setAhead(seconds: number): void;
  /** How far the server's clock is ahead. */
  readonly aheadMs: number;
  /** The times at which corrections began, by this machine's clock; they take up to changeMs. */
  readonly corrections: readonly number[];
  /** The time of this machine's clock when the server's clock showed this time. */
  trueMs(serverMs: number): number;
  remove(): Promise<void>;
};

/** The longest time that a change takes. */
export const changeMs = 100;

export async function startWithMovableClock(
  compiler: string,
  settings: Record<string, string> = { fsync: 'off' },
): Promise<MovableClock> {
  const directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-clock-'));
  // the server may run under another account
  chmodSync(directory, 0o755);
  const library = path.join(directory, 'clock-offset.so');
  const source = fileURLToPath(new URL('clock-offset.c', import.meta.url));
  execFileSync(compiler, ['-O2', '-Wall', '-Werror', '-shared', '-fPIC', '-o', library, source]);
  const offset = new Offset(path.join(directory, 'offset'));
  // the directory of the programs is known once the server runs
  const plain = await startPostgres();
  const programs = path.dirname(readlinkSync(`/proc/${plain.processId}/exe`));
  await plain.remove();
  for (const program of ['postgres', 'initdb']) {
    const file = path.join(directory, program);
    const environment = `LD_PRELOAD=${library} CLOCK_OFFSET_FILE=${offset.path}`;
    writeFileSync(file, `#!/bin/sh\n${environment} exec ${programs}/${program} "$@"\n`);
    chmodSync(file, 0o755);
  }
  const server = await startPostgres({ binDirectory: directory, settings });
  return {
    server,
    setAhead: (seconds) => offset.set(seconds),
    get aheadMs() {
      return offset.aheadMs;
    },
    corrections: offset.corrections,
    trueMs: (serverMs) => offset.trueMs(serverMs),
    remove: async () => {
      await server.remove();
      offset.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** The file with the offset in seconds, a 32-bit number, and its history. */
class Offset {
  readonly path: string;
  readonly corrections: number[] = [];
  readonly #file: number;
  readonly #periods: { fromMs: number; toMs: number; aheadMs: number }[] = [];
  aheadMs = 0;

  constructor(file: string) {
    this.path = file;
    this.#file = openSync(file, 'w');
    this.set(0);
  }

  set(seconds: number): void {
    const nowMs = Date.now();
    const current = this.#periods.at(-1);
    writeSync(this.#file, new Uint8Array(Int32Array.of(seconds).buffer), 0, 4, 0);
    const changedMs = Date.now();
    if (current !== undefined && this.aheadMs > 0) current.toMs = changedMs + changeMs;
    if (seconds * 1000 < this.aheadMs) this.corrections.push(nowMs);
    this.aheadMs = seconds * 1000;
    if (seconds > 0)
      this.#periods.push({
        fromMs: nowMs,
        toMs: Number.POSITIVE_INFINITY,
        aheadMs: this.aheadMs,
      });
  }

  close(): void {
    closeSync(this.#file);
  }

  /** Periods last minutes and are hours ahead, so at most one fits. */
  trueMs(serverMs: number): number {
    const period = this.#periods.find(
      ({ fromMs, toMs, aheadMs }) => serverMs >= fromMs + aheadMs && serverMs <= toMs + aheadMs,
    );
    return serverMs - (period?.aheadMs ?? 0);
  }
}
