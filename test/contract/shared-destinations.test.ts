// One destination shared by relays of several databases, on real services. It is opened once, a relay that fails to
// start does not close it for the others, and it is closed when the last relay has stopped.

import { jetstreamManager } from '@nats-io/jetstream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { nats } from '../../src/destinations/nats/nats.js';
import { redis } from '../../src/destinations/redis/redis.js';
import type { Destination } from '../../src/destinations/destination.js';
import { testDatabase } from '../support/postgres.js';
import { numbered, send, untilPlaces } from '../support/relay.js';
import { makeShardedRelay, shardsOf, wireTo } from '../support/shards.js';
import { waitFor } from '../support/wait.js';
import { natsService, startNats, storedIn } from './services/nats.js';
import type { NatsServer } from './services/nats.js';
import { freePort } from '../support/free-port.js';
import { redisUnavailable, startRedis } from './services/redis.js';
import type { RunningRedis } from './services/redis.js';

const [eu, us] = [testDatabase(), testDatabase()];

/** One shard is unavailable at first, so that its relay fails while the other delivers. */
async function deliverFromBoth(
  topic: string,
  destination: Destination,
): Promise<() => Promise<void>> {
  const { proxy, url } = await wireTo(us);
  await proxy.leave();
  const { relay, event } = makeShardedRelay({
    shards: shardsOf({ eu, us }, { urls: { us: url } }),
    destinations: { [topic]: destination },
  });
  await relay.start();
  await event('us', 'shard_unavailable');
  await send(eu, numbered(topic, 10));
  await untilPlaces(eu, topic, { delivered: 10, waiting: 0, leased: 0 });
  await proxy.comeBack();
  await event('us', 'relay_started');
  await send(us, numbered(topic, 10));
  await send(eu, numbered(topic, 10));
  await untilPlaces(us, topic, { delivered: 10, waiting: 0, leased: 0 });
  await untilPlaces(eu, topic, { delivered: 20, waiting: 0, leased: 0 });
  return () => relay.stop();
}

function skipped(name: string, unavailable: string | null): boolean {
  if (unavailable === null) return false;
  if (process.env['CI']) throw new Error(unavailable);
  console.warn(`The tests of ${name} are left out: ${unavailable}.`);
  return true;
}

describe.skipIf(skipped('redis', redisUnavailable()))('redis', () => {
  let server: RunningRedis;
  beforeAll(async () => void (server = await startRedis()), 60_000);
  afterAll(() => server.stop());

  it('N9 M11 receives from both shards over one connection, which ends with the last relay', async () => {
    const stream = 'shards';
    const stop = await deliverFromBoth('to-redis', redis({ url: server.url, stream }));
    expect(await server.command('XLEN', stream)).toBe(30);
    const clients = async () => {
      const list = await server.command<string>('CLIENT', 'LIST');
      // the connection that asks is one of them
      return list.trimEnd().split('\n').length - 1;
    };
    expect(await clients()).toBe(1);
    await stop();
    await waitFor(async () => (await clients()) === 0, { what: 'the connection to end' });
  });
});

describe.skipIf(skipped('nats', natsService.unavailable()))('nats', () => {
  let server: NatsServer;
  let monitor: string;
  beforeAll(async () => {
    const port = await freePort();
    monitor = `http://127.0.0.1:${port}/connz`;
    server = await startNats({ more: `http: "127.0.0.1:${port}"` });
  }, 60_000);
  afterAll(() => server.stop());

  /** Only the connections of the destination. */
  const clients = async (): Promise<number> => {
    const { connections } = (await (await fetch(monitor)).json()) as {
      connections: { name?: string }[];
    };
    return connections.filter(({ name }) => name === 'waybill').length;
  };

  it('N9 M11 receives from both shards over one connection, which ends with the last relay', async () => {
    await server.use(async (connection) => {
      const manager = await jetstreamManager(connection);
      await manager.streams.add({ name: 'shards', subjects: ['to-nats'] });
    });
    const stop = await deliverFromBoth('to-nats', nats({ servers: server.url }));
    expect(await server.use((connection) => storedIn(connection, 'shards'))).toHaveLength(30);
    expect(await clients()).toBe(1);
    await stop();
    await waitFor(async () => (await clients()) === 0, { what: 'the connection to end' });
  });
});
