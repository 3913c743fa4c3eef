// The producers: processes that write messages through their own proxy and are throttled while the queue is long. Their
// logs record the outcome of each transaction.

import path from 'node:path';

import { Child } from './child-process.js';
import { PostgresProxy } from './postgres-proxy.js';
import { readLines } from './sink.js';

/** The log entry of a producer about one message. */
export type Produced = {
  outcome: 'ok' | 'aborted' | 'unknown';
  transaction: string;
  id: string;
  topic: string;
  bodyHash: string;
};

type Said = { committed?: number };

/** Every message has one of these; the last goes to every destination. */
export const destinationsByTopic: Record<string, string[]> = {
  'ledger.posted': ['ledger'],
  'mail.sent': ['mail'],
  'crm.changed': ['crm'],
  'all.closed': ['ledger', 'mail', 'crm'],
};
/** Single deliveries cost more than batched ones: most messages go to the ledger. */
const topics = [
  ...Array<string>(36).fill('ledger.posted'),
  'mail.sent',
  'crm.changed',
  'all.closed',
];

export class Producers {
  readonly proxies: PostgresProxy[] = [];
  readonly #children: Child<Said>[] = [];
  readonly #logFiles: string[] = [];
  #committed = 0;
  #allowed = false;

  static async start(
    databaseUrl: string,
    directory: string,
    options: { count: number; seed: number },
  ): Promise<Producers> {
    const producers = new Producers();
    for (let index = 1; index <= options.count; index += 1) {
      const proxy = await PostgresProxy.start(databaseUrl);
      const name = `producer-${index}`;
      const logFile = path.join(directory, `${name}.log`);
      const child = new Child<Said>(
        'producer.mjs',
        {
          name,
          databaseUrl: proxy.through(databaseUrl),
          logFile,
          seed: options.seed + index,
          topics,
        },
        path.join(directory, `${name}.err`),
        ({ committed = 0 }) => (producers.#committed += committed),
      );
      producers.proxies.push(proxy);
      producers.#children.push(child);
      producers.#logFiles.push(logFile);
    }
    return producers;
  }

  /** Messages that were certainly committed so far. */
  get committed(): number {
    return this.#committed;
  }

  allow(allowed: boolean): void {
    if (allowed === this.#allowed) return;
    this.#allowed = allowed;
    for (const child of this.#children) child.tell({ allowed });
  }

  /** Lets each producer finish its transaction and end. */
  async finish(): Promise<void> {
    for (const child of this.#children) child.tell({ finish: true });
    for (const child of this.#children) {
      const { code } = await child.ended;
      if (code !== 0) throw new Error(`a producer ended with ${code}:\n${child.lastWords()}`);
    }
  }

  readLogs(): Produced[] {
    return this.#logFiles.flatMap((file) =>
      readLines(file).map((line) => {
        const [outcome, transaction = '', id = '', topic = '', bodyHash = ''] = line.split('\t');
        return { outcome: outcome as Produced['outcome'], transaction, id, topic, bodyHash };
      }),
    );
  }

  async stop(): Promise<void> {
    await Promise.all(this.#children.map((child) => child.kill()));
    await Promise.all(this.proxies.map((proxy) => proxy.close()));
  }
}
