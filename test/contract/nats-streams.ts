// A nats-server for one block of tests, with a stream for each test that needs one, and senders to it.

import { jetstreamManager } from '@nats-io/jetstream';
import type { StreamConfig } from '@nats-io/jetstream';
import { afterAll, beforeAll } from 'vitest';

import { nats } from '../../src/destinations/nats/nats.js';
import type { NatsOptions } from '../../src/destinations/nats/nats.js';
import { Sender } from './sender.js';
import { natsService, startNats, storedIn } from './services/nats.js';
import type { NatsServer, StoredMessage } from './services/nats.js';

const unavailable = natsService.unavailable();
if (unavailable !== null) console.warn(`The tests of NATS are left out: ${unavailable}.`);

export const withoutNats = unavailable !== null && !process.env['CI'];

export type NatsStreams = {
  readonly server: NatsServer;
  /** Creates a stream for the subjects `NAME.>`. */
  makeStream(config?: Partial<StreamConfig>): Promise<string>;
  open(options: Partial<NatsOptions>): Promise<Sender>;
  stored(stream: string): Promise<StoredMessage[]>;
};

/** Registers the hooks that start and stop it; the result can be used from `beforeAll` on. */
export function natsStreams(): NatsStreams {
  let started: NatsServer | undefined;
  let count = 0;
  const running = (): NatsServer => {
    if (started === undefined) throw new Error('the server runs between beforeAll and afterAll');
    return started;
  };
  beforeAll(async () => {
    started = await startNats({});
  });
  afterAll(() => started?.stop());
  return {
    get server() {
      return running();
    },
    async makeStream(config = {}) {
      const name = `stream${(count += 1)}`;
      await running().use(async (connection) => {
        const manager = await jetstreamManager(connection);
        await manager.streams.add({ name, subjects: [`${name}.>`], ...config });
      });
      return name;
    },
    open: (options) => Sender.open(nats({ servers: running().url, ...options })),
    stored: (stream) => running().use((connection) => storedIn(connection, stream)),
  };
}
