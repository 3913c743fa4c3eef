// A RabbitMQ broker of one node, with an exchange and a durable queue for the suite. It has its own node name, ports
// and folders, so a broker that Debian's package started is not touched.

import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

import { Connection } from 'rabbitmq-client';
import type { Channel, SyncMessage } from 'rabbitmq-client';

import { rabbitmq } from '../../../src/destinations/rabbitmq/rabbitmq.js';
import { ServiceProcess, isListening } from './process.js';
import { freePort } from '../../support/free-port.js';
import type { RunningService, ServiceKind } from './service.js';

const host = '127.0.0.1';
const largestBytes = 200_000;

export const rabbitmqService: ServiceKind = {
  kind: 'rabbitmq',
  service: 'RabbitMQ, one node',
  unavailable: () =>
    findRabbitmq() === undefined || findEpmd() === undefined
      ? 'no RabbitMQ: install it (Debian: rabbitmq-server) or set WAYBILL_TEST_RABBITMQ to its program'
      : null,
  async start() {
    const broker = await startRabbitmq({ largestBytes });
    try {
      await broker.use((channel) => makeQueue(channel));
    } catch (error) {
      await broker.stop();
      throw error;
    }
    return {
      ...broker,
      received: () =>
        broker.use(async (channel) =>
          (await peek(channel, 'contract')).map(({ messageId }) => messageId ?? ''),
        ),
    };
  },
  make: (through, { missing, picky: _picky, ...settings } = {}) =>
    rabbitmq({
      url: `amqp://${through.host}:${through.port}`,
      exchange: missing ? 'nowhere' : 'contract',
      ...settings,
    }),
  source: (through) =>
    `waybill.rabbitmq({ url: 'amqp://${through.host}:${through.port}', exchange: 'contract' })`,
  tooLargeBytes: largestBytes + 1,
  expected: {
    missing: { kind: 'retry', code: 'exchange_missing' },
    oversized: { kind: 'reject', code: 'message_too_large' },
    refusedInBatch: { kind: 'retry', code: 'unroutable' },
  },
};

async function makeQueue(channel: Channel): Promise<void> {
  await channel.exchangeDeclare({ exchange: 'contract', type: 'topic', durable: true });
  await channel.queueDeclare({ queue: 'contract', durable: true });
  for (const routingKey of ['contract.#', 'taken'])
    await channel.queueBind({ exchange: 'contract', queue: 'contract', routingKey });
}

function findRabbitmq(): string | undefined {
  const program = process.env['WAYBILL_TEST_RABBITMQ'] ?? '/usr/lib/rabbitmq/bin/rabbitmq-server';
  return existsSync(program) ? program : undefined;
}

/** Erlang's port mapper (epmd). */
function findEpmd(): string | undefined {
  return ['/usr/bin/epmd', '/usr/local/bin/epmd'].find((program) => existsSync(program));
}

export type Broker = Omit<RunningService, 'received'> & {
  readonly url: string;
  /** Uses its own connection, without the proxy. */
  use<T>(work: (channel: Channel) => Promise<T>): Promise<T>;
  /** Runs one command of `rabbitmqctl` on it. */
  control(...command: string[]): Promise<void>;
};

/** `more` is text for its configuration file. */
export async function startRabbitmq(settings: {
  largestBytes?: number;
  more?: string;
}): Promise<Broker> {
  const program = findRabbitmq();
  const epmd = findEpmd();
  if (program === undefined || epmd === undefined)
    throw new Error(rabbitmqService.unavailable() ?? '');
  const [port, distributionPort, epmdPort] = [await freePort(), await freePort(), await freePort()];
  const environment = (directory: string): Record<string, string> => ({
    HOME: path.join(directory, 'home'),
    RABBITMQ_NODENAME: `waybill-${port}@localhost`,
    RABBITMQ_NODE_PORT: String(port),
    RABBITMQ_DIST_PORT: String(distributionPort),
    RABBITMQ_MNESIA_BASE: path.join(directory, 'data'),
    RABBITMQ_LOG_BASE: path.join(directory, 'log'),
    RABBITMQ_PID_FILE: path.join(directory, 'pid'),
    RABBITMQ_CONFIG_FILE: path.join(directory, 'rabbitmq.conf'),
    RABBITMQ_ENABLED_PLUGINS_FILE: path.join(directory, 'enabled_plugins'),
    RABBITMQ_CONF_ENV_FILE: path.join(directory, 'rabbitmq-env.conf'),
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: '+S 1:1',
    ERL_EPMD_PORT: String(epmdPort),
    ERL_EPMD_ADDRESS: host,
  });
  // the broker would start one that outlives it
  const names = new ServiceProcess('epmd', {
    program: epmd,
    args: () => ['-port', String(epmdPort), '-address', host],
    answers: () => isListening(epmdPort),
  });
  const server = new ServiceProcess('rabbitmq', {
    program,
    args: () => [],
    environment,
    answers: () => isListening(port),
  });
  const folder = server.directory;
  for (const part of ['home', 'data', 'log']) mkdirSync(path.join(folder, part));
  writeFileSync(
    path.join(folder, 'rabbitmq.conf'),
    `listeners.tcp.1 = ${host}:${port}
max_message_size = ${settings.largestBytes ?? 134_217_728}
disk_free_limit.absolute = 1MB
log.console = false
${settings.more ?? ''}
`,
  );
  await names.start();
  await server.start();
  const url = `amqp://guest:guest@${host}:${port}`;
  return {
    address: { host, port },
    url,
    use: (work) => withChannel(url, work),
    async control(...command) {
      const { PATH = '' } = process.env;
      await promisify(execFile)(path.join(path.dirname(program), 'rabbitmqctl'), command, {
        cwd: folder,
        env: { PATH, ...environment(folder) },
      });
    },
    kill: () => server.kill(),
    restart: () => server.start(),
    async stop() {
      await server.stop();
      await names.stop();
    },
  };
}

async function withChannel<T>(url: string, work: (channel: Channel) => Promise<T>): Promise<T> {
  const connection = new Connection({ url, retryLow: 50 });
  connection.on('error', () => undefined);
  try {
    const channel = await connection.acquire();
    return await work(channel);
  } finally {
    connection.unsafeDestroy();
  }
}

/** Reads the messages of a queue and leaves them there: nothing is acknowledged. */
export async function peek(channel: Channel, queue: string): Promise<SyncMessage[]> {
  const messages: SyncMessage[] = [];
  for (;;) {
    const message = await channel.basicGet({ queue });
    if (message === undefined) return messages;
    messages.push(message);
  }
}
