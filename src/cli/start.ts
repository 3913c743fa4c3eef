// waybill start: run a relay until it is told to stop.

import { Command } from 'commander';
import type { Logger } from 'pino';

import { createRelay, createShardedRelay } from '../config.js';
import type { Config } from '../config.js';
import { Database, resolveDatabaseOptions } from '../database/connection.js';
import type { DatabaseOptions } from '../database/connection.js';
import { Replica } from '../database/replica.js';
import type { RelayTooOldError } from '../errors.js';
import { resolveServerOptions } from '../model/server-options.js';
import type { RunningServer } from '../server/server.js';
import type { Relay } from '../relay/relay.js';
import type { ShardedRelay } from '../relay/sharded-relay.js';
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
import { createLog, logEvent } from './log.js';
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

/** What the page asks for is bounded; a question that takes longer than this is given up. */
const statementTimeoutMs = 5000;
const connections = 4;
/** How long POST /drain waits for what is due. */
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
      '\nExamples:\n  $ waybill start\n  $ waybill start --config billing.config.ts --tenant acme\n  $ waybill start --shard eu us\n\nCtrl-C finishes or gives back what is held; a second Ctrl-C exits at once.\n\nExit codes: 0 told to stop, 1 an error, 2 the configuration cannot be used, 4 the schema is older than this version,\n8 the schema works with newer versions only, now or since it was migrated meanwhile.',
    )
    .action(async (flags: Flags) => {
      const config = await configuredRelay(flags);
      const log = createLog(flags.verbose ? 'debug' : 'info');
      if (config.shards !== undefined) return startShards(config, flags, log);
      const metrics = new Metrics({ destinations: Object.keys(config.destinations) });
      const onEvent = (event: RelayEvent): void => {
        metrics.observe(event);
        logEvent(log, event);
      };
      const relay = createRelay({ ...withFilters(config, flags), onEvent });
      // from now on: a signal that comes while it starts must not leave anything held
      const stopped = untilStopped();
      let server: RunningServer | null = null;
      try {
        await relay.start();
        server = await serve(config, flags, metrics, relay, onEvent);
        if (server !== null) logEvent(log, { name: 'serving', url: server.url });
        await Promise.race([stopped, relay.ended]);
      } finally {
        await relay.stop();
        await server?.close();
      }
      const { refusal } = relay;
      // a handler that ignores its abort must not keep the process
      process.exit(refusal === undefined ? exitCode.ok : reportFailure(refusal));
    });
}

/** A relay for each shard. The port is opened first: it says which of them are served, however long one takes. */
async function startShards(config: Config, flags: Flags, log: Logger): Promise<void> {
  const destinations = Object.keys(config.destinations);
  const metrics = new Map<string, Metrics>();
  const onEvent = (event: RelayEvent, shard: string): void => {
    metrics.get(shard)?.observe(event);
    logEvent(log, event, shard);
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
    if (server !== null) logEvent(log, { name: 'serving', url: server.url });
    // a signal that comes while it starts must not wait for a database that is away
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

/** The databases are closed after the port, and where it cannot be opened. */
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
): Promise<RunningServer | null> {
  if (config.server === null || flags.server === false) return null;
  const given = { ...config.server, ...(flags.port !== undefined && { port: flags.port }) };
  // above the file, as every address of the environment is
  const url = secretFromEnvironment('DATABASE_SERVER_URL') ?? config.server?.databaseUrl;
  const database = openDatabase({ ...config.database, ...(url && { url }) });
  const replica = startReplica(database, onEvent);
  // loaded when it is used: other commands start without it
  const { startServer } = await import('../server/server.js');
  return withDatabases([{ database, replica }], () =>
    startServer(resolveServerOptions(given), {
      database,
      ...(replica && { replica }),
      isReady: () => relay.refusal === undefined,
      metrics,
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
  // not awaited: a database that hangs must not hold up the port, nor the other shards
  void replica.start();
  return replica;
}
