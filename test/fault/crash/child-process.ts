// A child process of the harness: started with its options, controlled over IPC, with its output in a file.

import { fork } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export type Ending = { code: number | null; signal: NodeJS.Signals | null };

export class Child<Said extends object> {
  readonly #process: ChildProcess;
  readonly #logFile: string;
  readonly ended: Promise<Ending>;
  #ending: Ending | undefined;

  constructor(
    script:
      | 'relay.mjs'
      | 'producer.mjs'
      | 'sink.mjs'
      | 'poison-relay.mjs'
      | 'bank-relay.mjs'
      | 'stream.mjs'
      | 'stream-drain.mjs'
      | '../order/relay.mjs'
      | '../order/worker.mjs'
      | '../order/reader.mjs'
      | '../order/producer.mjs'
      | '../applications/relay.mjs',
    options: object,
    logFile: string,
    onSaid: (said: Said) => void,
  ) {
    this.#logFile = logFile;
    const log = openSync(logFile, 'a');
    const { NODE_OPTIONS: _, ...env } = process.env;
    this.#process = fork(
      path.join(path.dirname(fileURLToPath(import.meta.url)), script),
      [JSON.stringify(options)],
      { stdio: ['ignore', log, log, 'ipc'], execArgv: [], env },
    );
    closeSync(log);
    this.#process.on('message', (said) => onSaid(said as Said));
    this.ended = new Promise((resolve) => {
      const end = (code: number | null, signal: NodeJS.Signals | null) => {
        this.#ending ??= { code, signal };
        resolve(this.#ending);
      };
      // 'close' comes after the last message was read, 'exit' may come before
      this.#process.once('close', end);
      this.#process.once('error', () => end(null, null));
    });
  }

  get hasEnded(): boolean {
    return this.#ending !== undefined;
  }

  tell(message: object): void {
    // a process that was just killed no longer listens
    if (this.#process.connected) this.#process.send(message, () => {});
  }

  signal(signal: NodeJS.Signals): void {
    this.#process.kill(signal);
  }

  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.ended;
  }

  /** The end of its output, for an error message. */
  lastWords(): string {
    return readFileSync(this.#logFile, 'utf8').trimEnd().split('\n').slice(-15).join('\n');
  }
}
