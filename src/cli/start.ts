// waybill start: runs a relay until it is stopped.

import { Command } from 'commander';

import { createRelay, createShardedRelay } from '../config.js';
import type { Config } from '../config.js';
import { Database, resolveDatabaseOptions } from '../database/connection.js';
import type { DatabaseOptions } from '../database/connection.js';
import { Replica } from '../features/replicas/replica.js';
import type { RelayTooOldError } from '../core/errors.js';
import { resolveServerOptions } from '../server/options.js';
import type { RunningServer } from '../server/server.js';
import type { Relay } from '../relay/relay.js';
import type { ShardedRelay } from '../features/shards/relay.js';
import type { Emit, RelayEvent } from '../telemetry/events.js';
import { Metrics } from '../telemetry/metrics.js';
import { wholeNumber } from './arguments.js';
import {
  configuredRelay,
  secretFromEnvironment,
  sharedOptions,
  withFilters,
} from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { openLog } from './log.js';
import type { EventLog } from './log.js';
import { exitCode, reportFailure } from './output.js';
import { untilStopped } from './stop-signal.js';

type Flags = Omit<SharedFlags, 'shard'> & {
  shard?: string[];
  tenant?: string[];
  namespace?: string;
  verbose?: boolean;
  port?: number;
  server?: boolean;
};

/** Queries of the page are bounded; one that takes longer than this is cancelled. */
const statementTimeoutMs = 5000;
const connections = 4;
/** How long POST /drain waits for due deliveries. */
const drainMs = 50_000;

export function startCommand(): Command {
  return sharedOptions(new Command('start'), { several: true })
    .description('run a relay: claim, deliver and settle until stopped')
    .option('--tenant <id...>', 'serve only these tenants')
    .option('--namespace <name>', 'serve only this namespace')
    .option(
      '--port <n>',
      'the port of the API and the page (default: 4980, or the next free one)',
      wholeNumber,
    )
    .option('--no-server', 'open no port')
    .option('-v, --verbose', 'log every claim, delivery failure and settle')
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill start\n  $ waybill start --config billing.config.ts --tenant acme\n  $ waybill start --shard eu us\n\nCtrl-C stops the relay, which finishes or releases its messages; a second Ctrl-C exits at once.\n\nIf the database is down or read-only, the relay waits for it, at most relay.startupWaitMs (default: 300000).\n\nExit codes: 0 told to stop, 1 an error, 2 the configuration cannot be used, 4 the schema is older than this version,\n8 the schema works with newer versions only, now or since it was migrated meanwhile.',
    )
    .action(async (flags: Flags) => {
      const config = await configuredRelay(flags);
      const log = openLog(flags.verbose ? 'debug' : 'info');
      if (config.shards !== undefined) return startShards(config, flags, log);
      const metrics = new Metrics({ destinations: Object.keys(config.destinations) });
      const onAsleep: (() => void)[] = [];
      const onEvent = (event: RelayEvent): void => {
        metrics.observe(event);
        log.write(event);
        if (event.name === 'relay_asleep') for (const each of onAsleep) each();
      };
      const relay = createRelay({ ...withFilters(config, flags), onEvent });
      // registered before the start, so that a signal during the start leaves nothing held
      const stopped = untilStopped();
      let server: RunningServer | null = null;
      try {
        // a signal must not wait for an unreachable database
        const isStopped = await Promise.race([
          stopped.then(() => true),
          relay.start().then(() => false),
        ]);
        if (!isStopped) {
          server = await serve(config, flags, metrics, relay, onEvent, onAsleep);
          if (server !== null) log.write(serving(server, config));
          await Promise.race([stopped, relay.ended]);
        }
      } finally {
        await relay.stop();
        await server?.close();
      }
      const { refusal } = relay;
      // a handler that ignores its abort signal must not keep the process alive
      process.exit(refusal === undefined ? exitCode.ok : reportFailure(refusal));
    });
}

/** Says where the page is, and how to log in there. */
function serving({ url }: RunningServer, { server }: Config): RelayEvent {
  const login =
    server?.authentication === 'none'
      ? 'not needed'
      : 'with a token: waybill tokens add NAME --scope operate';
  return { name: 'serving', page: `${url}/`, login, url };
}

/** Starts a relay for each shard. The port opens first and says which shards run, however long one of them takes. */
async function startShards(config: Config, flags: Flags, log: EventLog): Promise<void> {
  const destinations = Object.keys(config.destinations);
  const metrics = new Map<string, Metrics>();
  const onEvent = (event: RelayEvent, shard: string): void => {
    metrics.get(shard)?.observe(event);
    log.write(event, shard);
  };
  const relay = createShardedRelay({
    ...withFilters(config, flags),
    ...(flags.shard && { only: flags.shard }),
    onEvent,
  });
  for (const shard of relay.names) metrics.set(shard, new Metrics({ destinations, shard }));
  const stopped = untilStopped();
  let server: RunningServer | null = null;
  let refusal: RelayTooOldError | undefined;
  try {
    server = await serveShards(config, flags, metrics, relay, onEvent);
    if (server !== null) log.write(serving(server, config));
    // a signal during the start must not wait for an unreachable database
    const told = Promise.race([stopped, relay.start().then(() => stopped)]);
    refusal = (await Promise.race([told, relay.refusedByAll])) ?? undefined;
  } finally {
    await relay.stop();
    await server?.close();
  }
  process.exit(refusal === undefined ? exitCode.ok : reportFailure(refusal));
}

async function serveShards(
  config: Config,
  flags: Flags,
  metrics: ReadonlyMap<string, Metrics>,
  relay: ShardedRelay,
  onEvent: (event: RelayEvent, shard: string) => void,
): Promise<RunningServer | null> {
  if (config.server === null || flags.server === false) return null;
  const given = { ...config.server, ...(flags.port !== undefined && { port: flags.port }) };
  const parts = [...metrics].map(([name, own]) => {
    const database = openDatabase(config.shards?.serverDatabaseOf(name) ?? {});
    const replica = startReplica(database, (event) => onEvent(event, name));
    return {
      name,
      database,
      ...(replica && { replica }),
      config,
      metrics: own,
      isRunning: () => relay.isRunning(name),
      refusal: () => relay.refusalOf(name)?.message,
      drain: () => relay.catchUp(name, { maxMs: drainMs }),
    };
  });
  const { startShardsServer } = await import('../server/server.js');
  const nextFreePort = given.port === undefined;
  return withDatabases(parts, () =>
    startShardsServer(resolveServerOptions(given), parts, { nextFreePort }),
  );
}

/** Closes the databases after the port, and also if the port cannot be opened. */
async function withDatabases(
  parts: readonly { database: Database; replica?: Replica | undefined }[],
  start: () => Promise<RunningServer>,
): Promise<RunningServer> {
  const closeAll = async (): Promise<void> => {
    for (const { replica } of parts) await replica?.close();
    for (const { database } of parts) await database.close();
  };
  try {
    const server = await start();
    return {
      url: server.url,
      async close() {
        await server.close();
        await closeAll();
      },
    };
  } catch (error) {
    await closeAll();
    throw error;
  }
}

function openDatabase(options: DatabaseOptions): Database {
  return new Database(resolveDatabaseOptions({ ...options, statementTimeoutMs }), {
    connections,
    applicationName: 'waybill server',
  });
}

async function serve(
  config: Config,
  flags: Flags,
  metrics: Metrics,
  relay: Relay,
  onEvent: Emit,
  onAsleep: (() => void)[],
): Promise<RunningServer | null> {
  if (config.server === null || flags.server === false) return null;
  const given = { ...config.server, ...(flags.port !== undefined && { port: flags.port }) };
  // takes precedence over the file, as every address in the environment does
  const url = secretFromEnvironment('DATABASE_SERVER_URL') ?? config.server?.databaseUrl;
  const database = openDatabase({ ...config.database, ...(url && { url }) });
  const replica = startReplica(database, onEvent);
  onAsleep.push(() => database.discardIdle());
  // imported on demand, so that other commands start faster
  const { startServer } = await import('../server/server.js');
  return withDatabases([{ database, replica }], () =>
    startServer(resolveServerOptions(given), {
      database,
      ...(replica && { replica }),
      config,
      isReady: () => relay.refusal === undefined,
      metrics,
      sleeping: { isAsleep: () => relay.isAsleep, wake: () => relay.wake() },
      drain: () => relay.catchUp({ maxMs: drainMs }),
      nextFreePort: given.port === undefined,
    }),
  );
}

function startReplica(database: Database, onEvent: Emit): Replica | undefined {
  if (database.options.replicaUrl === undefined) return undefined;
  const replica = new Replica(database, {
    connections,
    applicationName: 'waybill server',
    onChange: ({ lagMs, reason }) =>
      onEvent(
        reason === null
          ? { name: 'replica_used', lagMs: Math.round(lagMs ?? 0) }
          : { name: 'replica_unused', reason },
      ),
  });
  // not awaited: a database that hangs must not delay the port or the other shards
  void replica.start();
  return replica;
}
