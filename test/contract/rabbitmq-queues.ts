// A RabbitMQ broker for one block of tests, with a queue for each test that needs one, and senders to it.

import type { SyncMessage } from 'rabbitmq-client';
import { afterAll, beforeAll } from 'vitest';

import { rabbitmq } from '../../src/destinations/rabbitmq/rabbitmq.js';
import type { RabbitmqOptions } from '../../src/destinations/rabbitmq/rabbitmq.js';
import { Sender } from './sender.js';
import { peek, rabbitmqService, startRabbitmq } from './services/rabbitmq.js';
import type { Broker } from './services/rabbitmq.js';

const unavailable = rabbitmqService.unavailable();
if (unavailable !== null) console.warn(`The tests of RabbitMQ are left out: ${unavailable}.`);

export const withoutRabbitmq = unavailable !== null && !process.env['CI'];

export type RabbitmqQueues = {
  readonly broker: Broker;
  /** Creates an exchange and a queue of one name, bound by these keys. */
  makeQueue(keys?: readonly string[], queueArguments?: Record<string, unknown>): Promise<string>;
  open(options: Partial<RabbitmqOptions>): Promise<Sender>;
  inQueue(queue: string): Promise<SyncMessage[]>;
  idsIn(queue: string): Promise<string[]>;
};

/** Registers the hooks that start and stop it; the result can be used from `beforeAll` on. */
export function rabbitmqQueues(
  settings: () => Promise<Parameters<typeof startRabbitmq>[0]>,
): RabbitmqQueues {
  let started: Broker | undefined;
  let count = 0;
  const running = (): Broker => {
    if (started === undefined) throw new Error('the broker runs between beforeAll and afterAll');
    return started;
  };
  beforeAll(async () => {
    started = await startRabbitmq(await settings());
  });
  afterAll(() => started?.stop());
  const inQueue = (queue: string) => running().use((channel) => peek(channel, queue));
  return {
    get broker() {
      return running();
    },
    async makeQueue(keys = ['#'], queueArguments = {}) {
      const name = `queue${(count += 1)}`;
      await running().use(async (channel) => {
        await channel.exchangeDeclare({ exchange: name, type: 'topic', durable: true });
        await channel.queueDeclare({ queue: name, durable: true, arguments: queueArguments });
        for (const routingKey of keys)
          await channel.queueBind({ exchange: name, queue: name, routingKey });
      });
      return name;
    },
    open: (options) => Sender.open(rabbitmq({ url: running().url, ...options })),
    inQueue,
    idsIn: async (queue) => (await inQueue(queue)).map(({ messageId }) => messageId ?? ''),
  };
}
