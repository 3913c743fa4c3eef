// Several databases as shards of one application: the map, producers that use it, and relays that serve them.

import { onTestFinished } from 'vitest';

import { createShardedRelay } from '../../src/config.js';
import type { Config } from '../../src/config.js';
import type { Message } from '../../src/core/message.js';
import { createOutbox } from '../../src/producer/outbox.js';
import type { ShardedRelay } from '../../src/features/shards/relay.js';
import { defineShards } from '../../src/features/shards/shards.js';
import type { Shards, ShardsOptions } from '../../src/features/shards/shards.js';
import type { RelayEvent } from '../../src/telemetry/events.js';
import { rolePrefix, urlAs } from './logins.js';
import type { Login } from './logins.js';
import type { TestDatabase } from './postgres.js';
import type { EventOf } from './relay.js';
import { waitLimitMs } from './relay.js';
import { TcpProxy } from './tcp-proxy.js';
import { waitFor } from './wait.js';

export type Databases = Record<string, TestDatabase>;

export function shardsOf(
  databases: Databases,
  { urls = {}, ...more }: Partial<ShardsOptions> & { urls?: Record<string, string> } = {},
): Shards {
  const shards = Object.entries(databases).map(([name, { url, schema }]) => [
    name,
    { url: urls[name] ?? urlAs(url, 'test_relay'), schema, connectTimeoutMs: 5000 },
  ]);
  return defineShards({ shards: Object.fromEntries(shards) as ShardsOptions['shards'], ...more });
}

/** Enqueues each message in the database of its tenant, as an application does. */
export async function produce(
  databases: Databases,
  shards: Shards,
  messages: readonly Message[],
): Promise<void> {
  for (const [name, db] of Object.entries(databases)) {
    const own = messages.filter(({ tenantId }) => shards.shardOf(tenantId) === name);
    const outbox = createOutbox({ schema: db.schema, shard: { of: shards, name } });
    await db.inTransaction(async (client) => {
      await client.query(`SET LOCAL ROLE ${rolePrefix}producer`);
      await outbox.enqueueMany(client, own);
    });
  }
}

export type TestShardedRelay = {
  readonly relay: ShardedRelay;
  readonly events: { shard: string; event: RelayEvent }[];
  /** Waits for an event of this name from a shard. */
  readonly event: <Name extends RelayEvent['name']>(
    shard: string,
    name: Name,
  ) => Promise<EventOf<Name>>;
};

export function makeShardedRelay(
  config: Omit<Config, 'routes'> & { routes?: Config['routes']; only?: readonly string[] },
): TestShardedRelay {
  const events: TestShardedRelay['events'] = [];
  const relay = createShardedRelay({
    routes: Object.keys(config.destinations).map((name) => ({ topic: name, to: name })),
    ...config,
    relay: { stopDeadlineMs: 3000, ...config.relay },
    onEvent: (event, shard) => void events.push({ event, shard }),
  });
  onTestFinished(() => relay.stop());
  return {
    relay,
    events,
    event: (shard, name) =>
      waitFor(
        () =>
          events.find((seen) => seen.shard === shard && seen.event.name === name)?.event as EventOf<
            typeof name
          >,
        { what: `${name} of ${shard}`, timeoutMs: waitLimitMs },
      ),
  };
}

/** A proxy to a database that can be cut. */
export async function wireTo(
  db: TestDatabase,
  login: Login = 'test_relay',
): Promise<{ proxy: TcpProxy; url: string }> {
  const proxy = await TcpProxy.open();
  onTestFinished(() => proxy.close());
  const url = new URL(urlAs(db.url, login));
  proxy.leadTo({ host: url.hostname, port: Number(url.port) });
  url.hostname = proxy.address.host;
  url.port = String(proxy.address.port);
  return { proxy, url: url.href };
}
