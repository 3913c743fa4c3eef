// A nats-server with JetStream and one stream for the suite.

import { existsSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { jetstreamManager } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';

import { nats } from '../../../src/destinations/nats/nats.js';
import { ServiceProcess, isListening } from './process.js';
import { freePort } from '../../support/free-port.js';
import type { RunningService, ServiceKind } from './service.js';

const host = '127.0.0.1';
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
    try {
      await server.use((connection) => makeStream(connection));
    } catch (error) {
      await server.stop();
      throw error;
    }
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

async function makeStream(connection: NatsConnection): Promise<void> {
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: 'contract', subjects: ['contract.>', 'taken'] });
}

function findNats(): string | undefined {
  const named = process.env['WAYBILL_TEST_NATS'];
  const usual = ['/usr/sbin/nats-server', '/usr/bin/nats-server'];
  return (named === undefined ? usual : [named]).find((program) => existsSync(program));
}

export type NatsServer = Omit<RunningService, 'received'> & {
  readonly url: string;
  /** Uses its own connection, without the proxy. */
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
  const port = await freePort();
  const server = new ServiceProcess('nats', {
    program,
    args: (directory) => ['-c', path.join(directory, 'nats.conf')],
    answers: () => isListening(port),
  });
  writeFileSync(
    path.join(server.directory, 'nats.conf'),
    `listen: "${host}:${port}"
jetstream { store_dir: "${server.directory}/store" }
max_payload: ${settings.largestBytes ?? 1_048_576}
${settings.more ?? ''}
`,
  );
  await server.start();
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
    restart: () => server.start(),
    stop: () => server.stop(),
  };
}

export type StoredMessage = { subject: string; headers: Record<string, string>; body: string };

/** The contents of a stream, from the first message to the last. */
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
