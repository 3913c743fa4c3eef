// Redis from Debian's package: one server that appends every write to a file before it answers.

import { existsSync } from 'node:fs';

import { createClient } from 'redis';

import { redis } from '../../../src/destinations/redis/redis.js';
import type { RedisOptions } from '../../../src/destinations/redis/redis.js';
import { ServiceProcess } from './process.js';
import { freePort } from '../../support/free-port.js';
import type { Address, RunningService, ServiceKind } from './service.js';

const program = process.env['WAYBILL_TEST_REDIS'] ?? '/usr/bin/redis-server';
const largestBytes = 1024 * 1024;
const stream = 'contract';
const plainKey = 'refused.one';

export function redisUnavailable(): string | null {
  return existsSync(program)
    ? null
    : `no Redis at ${program}: install it (Debian: redis-server) or set WAYBILL_TEST_REDIS to its program`;
}

export type RunningRedis = RunningService & {
  readonly url: string;
  /** Sends one command with its own client. */
  command<T>(...words: string[]): Promise<T>;
};

/** `settings` are lines of its configuration. */
export async function startRedis(settings: Record<string, string> = {}): Promise<RunningRedis> {
  const address = { host: '127.0.0.1', port: await freePort() };
  const url = `redis://${address.host}:${address.port}`;
  const command = async <T>(...words: string[]): Promise<T> => {
    const client = createClient({ url, socket: { reconnectStrategy: false } });
    client.on('error', () => undefined);
    await client.connect();
    try {
      return await client.sendCommand<T>(words);
    } finally {
      client.destroy();
    }
  };
  const server = new ServiceProcess('redis', {
    program,
    args: (directory) =>
      Object.entries({
        bind: address.host,
        port: String(address.port),
        dir: directory,
        save: '',
        appendonly: 'yes',
        appendfsync: 'always',
        ...settings,
      }).flatMap(([name, value]) => [`--${name}`, value]),
    answers: () =>
      command<string>('PING').then(
        (answer) => answer === 'PONG',
        (error: Error) => /^(NOAUTH|NOPERM)/.test(error.message),
      ),
  });
  await server.start();
  return {
    address,
    url,
    command,
    received: async () => {
      const entries = await command<[string, string[]][]>('XRANGE', stream, '-', '+');
      return entries.map(([, fields]) => fields[fields.indexOf('id') + 1] ?? '');
    },
    kill: () => server.kill(),
    restart: () => server.start(),
    stop: () => server.stop(),
  };
}

function optionsOf({ host, port }: Address): RedisOptions {
  return { url: `redis://${host}:${port}`, stream, maxMessageBytes: largestBytes };
}

export const redisService: ServiceKind = {
  kind: 'redis',
  service: 'Redis, one server, appendfsync always',
  unavailable: redisUnavailable,
  async start() {
    const server = await startRedis({ 'proto-max-bulk-len': String(largestBytes) });
    // the key of this message already holds another type
    await server.command('SET', plainKey, 'not a stream');
    return server;
  },
  make(through, { missing, picky, ...settings } = {}) {
    return redis({
      ...optionsOf(through),
      ...(missing && { stream: 'missing', createStream: false }),
      ...(picky && { stream: '{topic}' }),
      ...settings,
    });
  },
  source: (through) => `waybill.redis(${JSON.stringify(optionsOf(through))})`,
  tooLargeBytes: largestBytes,
  expected: {
    missing: { kind: 'retry', code: 'stream_missing' },
    oversized: { kind: 'reject', code: 'message_too_large' },
    refusedInBatch: { kind: 'reject', code: 'not_a_stream' },
  },
};
