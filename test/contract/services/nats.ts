// A nats-server with JetStream, and in it one stream for what the suite sends.

import { writeFileSync } from 'node:fs';
import path from 'node:path';

import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';

import { nats } from '../../../src/destinations/nats.js';
import {
  findProgram,
  freePort,
  host,
  makeFolder,
  removeFolder,
  startProcess,
} from './server-process.js';
import type { RunningService, ServiceKind } from './service.js';

const largestBytes = 100_000;

export const natsService: ServiceKind = {
  kind: 'nats',
  service: 'nats-server with JetStream, one server',
  unavailable: () =>
    findNats() === undefined
      ? 'no nats-server: install it (Debian: nats-server) or set WAYBILL_TEST_NATS to its program'
      : null,
  async start() {
    const server = await startNats({ largestBytes });
    await server.use(async (connection) => {
      const manager = await jetstreamManager(connection);
      await manager.streams.add({ name: 'contract', subjects: ['contract.>', 'taken'] });
    });
    return { ...server, received: () => server.use((connection) => idsIn(connection, 'contract')) };
  },
  make: (through, { missing, picky: _picky, ...settings } = {}) =>
    nats({
      servers: `nats://${through.host}:${through.port}`,
      subject: missing ? 'nowhere.{topic}' : '{topic}',
      ...settings,
    }),
  source: (through) => `waybill.nats({ servers: 'nats://${through.host}:${through.port}' })`,
  tooLargeBytes: largestBytes + 1,
  expected: {
    missing: { kind: 'retry', code: 'stream_missing' },
    oversized: { kind: 'reject', code: 'message_too_large' },
    refusedInBatch: { kind: 'retry', code: 'stream_missing' },
  },
};

export function findNats(): string | undefined {
  return findProgram('WAYBILL_TEST_NATS', ['/usr/bin/nats-server', '/usr/sbin/nats-server']);
}

export type NatsServer = Omit<RunningService, 'received'> & {
  readonly url: string;
  /** With a connection of its own, past every proxy. */
  use<T>(work: (connection: NatsConnection) => Promise<T>): Promise<T>;
};

/** `more` is text for its configuration file. */
export async function startNats(settings: {
  largestBytes?: number;
  more?: string;
  login?: { user: string; pass: string };
}): Promise<NatsServer> {
  const program = findNats();
  if (program === undefined) throw new Error(natsService.unavailable() ?? '');
  const folder = makeFolder('nats');
  const port = await freePort();
  const file = path.join(folder, 'nats.conf');
  writeFileSync(
    file,
    `listen: "${host}:${port}"
jetstream { store_dir: "${folder}/store" }
max_payload: ${settings.largestBytes ?? 1_048_576}
${settings.more ?? ''}
`,
  );
  const start = () => startProcess(program, ['-c', file], port, { cwd: folder });
  let server = await start();
  const url = `nats://${host}:${port}`;
  return {
    address: { host, port },
    url,
    async use(work) {
      const connection = await connect({ servers: url, ...settings.login });
      try {
        return await work(connection);
      } finally {
        await connection.close();
      }
    },
    kill: () => server.kill(),
    restart: async () => void (server = await start()),
    async stop() {
      await server.kill();
      removeFolder(folder);
    },
  };
}

export type StoredMessage = { subject: string; headers: Record<string, string>; body: string };

/** What a stream holds, from its first message to its last. */
export async function storedIn(
  connection: NatsConnection,
  stream: string,
): Promise<StoredMessage[]> {
  const { streams } = await jetstreamManager(connection);
  const { state } = await streams.info(stream);
  const stored: StoredMessage[] = [];
  for (let seq = Math.max(state.first_seq, 1); seq <= state.last_seq; seq += 1) {
    const message = await streams.getMessage(stream, { seq });
    if (message === null) continue;
    const pairs = message.header.keys().map((name) => [name, message.header.get(name)]);
    stored.push({
      subject: message.subject,
      headers: Object.fromEntries(pairs) as Record<string, string>,
      body: message.string(),
    });
  }
  return stored;
}

async function idsIn(connection: NatsConnection, stream: string): Promise<string[]> {
  const stored = await storedIn(connection, stream);
  return stored.map(({ headers }) => headers['waybill-id'] ?? '');
}
