// The harness's handle of the sink process: its address, its traps, and its log.

import { readFileSync } from 'node:fs';
import path from 'node:path';

import { waitFor } from '../../support/wait.js';
import { Child } from './child-process.js';

/** The sink's log entry about one message. */
export type Reception = {
  answer: 'accept' | 'retry' | 'reject';
  destination: string;
  id: string;
  /** Null if the sender does not send it. */
  claimNo: number | null;
  relay: string;
  bodyHash: string;
};

export type Trapped = { relay: string; destination: string; ids: string[] };

type Said = {
  port?: number;
  trapped?: string;
  destination?: string;
  ids?: string[];
  question?: number;
  count?: number;
};

export class Sink {
  readonly url: string;
  readonly #child: Child<Said>;
  readonly #logFile: string;
  readonly #heard: { traps: Map<string, Trapped>; answers: Map<number, number> };
  #questions = 0;

  private constructor(
    child: Child<Said>,
    port: number,
    logFile: string,
    heard: { traps: Map<string, Trapped>; answers: Map<number, number> },
  ) {
    this.#child = child;
    this.#logFile = logFile;
    this.#heard = heard;
    this.url = `http://127.0.0.1:${port}`;
  }

  static async start(directory: string): Promise<Sink> {
    const logFile = path.join(directory, 'sink.log');
    let port: number | undefined;
    const heard = { traps: new Map<string, Trapped>(), answers: new Map<number, number>() };
    const child = new Child<Said>(
      'sink.mjs',
      { logFile },
      path.join(directory, 'sink.err'),
      (said) => {
        port ??= said.port;
        const { trapped, destination = '', ids = [], question, count = 0 } = said;
        if (trapped !== undefined) heard.traps.set(trapped, { relay: trapped, destination, ids });
        if (question !== undefined) heard.answers.set(question, count);
      },
    );
    const given = await waitFor(() => port, { what: 'the sink' });
    return new Sink(child, given, logFile, heard);
  }

  /** Holds the relay's next request for good, logged or not, and reports its contents. */
  async trap(relay: string, logged: boolean, timeoutMs = 30_000): Promise<Trapped> {
    this.#child.tell({ trap: relay, logged });
    try {
      return await waitFor(() => this.#heard.traps.get(relay), {
        what: `a request of ${relay}`,
        timeoutMs,
      });
    } finally {
      this.#heard.traps.delete(relay);
      this.#child.tell({ untrap: relay });
    }
  }

  /** How many of these messages have reached it, from any relay. */
  async countSeen(destination: string, ids: readonly string[]): Promise<number> {
    this.#questions += 1;
    const question = this.#questions;
    this.#child.tell({ seen: { question, destination, ids } });
    const count = await waitFor(
      () => {
        const answer = this.#heard.answers.get(question);
        return answer === undefined ? undefined : { answer };
      },
      { what: 'an answer of the sink' },
    );
    this.#heard.answers.delete(question);
    return count.answer;
  }

  readLog(): Reception[] {
    return readLines(this.#logFile).map((line) => {
      const [answer, destination, id, claimNo, relay, bodyHash] = line.split('\t') as [
        Reception['answer'],
        ...string[],
      ];
      return {
        answer,
        destination: destination ?? '',
        id: id ?? '',
        claimNo: claimNo === '' ? null : Number(claimNo),
        relay: relay ?? '',
        bodyHash: bodyHash ?? '',
      };
    });
  }

  async stop(): Promise<void> {
    await this.#child.kill();
  }
}

export function readLines(file: string): string[] {
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line !== '');
}
